"""Results of trainings in a file that travels between machines."""

import json
import shutil
from dataclasses import asdict

import pytest

from fedce import studies
from fedce.base.config import load
from fedce.base.errors import RunError
from fedce.base.files import sealed
from fedce.questions import jobs
from fedce.questions.jobs import Store
from fedce.questions.results_file import Kept, ResultsFile
from fedce.studies import Context, conduct, in_full, norms

SMALL = {"recipe": "small", "rounds": 2, "model.channels": (4, 8), "data.scale": "tiny", "data.size": 32}
ALONE_ENOUGH = ("performance", "fairness", "contribution", "shift")


def context(folder, results) -> Context:
    config = load(None, SMALL)
    return Context(
        config, [0, 1], Store(folder, results=ResultsFile(results)), methods=("standalone", "fedavg", "fedce")
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Some studies on another machine: its store, and the file with their results."""
    folder = tmp_path_factory.mktemp("another-machine")
    conduct(ALONE_ENOUGH, context(folder / "store", folder / "results.jsonl"))
    return folder


@pytest.fixture
def results(tmp_path, trained):
    return shutil.copy(trained / "results.jsonl", tmp_path / "results.jsonl")


def changed(file, **values):
    found = [{**json.loads(line), **values} for line in file.read_text().splitlines()]
    file.write_text(
        "".join(json.dumps(sealed({k: v for k, v in one.items() if k != "digest"})) + "\n" for one in found)
    )


def test_another_machine_trains_nothing_and_finds_the_same(tmp_path, trained, results, monkeypatch):
    first = conduct(ALONE_ENOUGH, context(trained / "store", results))
    monkeypatch.setattr(jobs, "_train", lambda *given: pytest.fail("a training was repeated"))
    there = context(tmp_path / "there", results)
    there.store.read_in_full(in_full(ALONE_ENOUGH, there))
    assert there.store.missing(studies.needed(ALONE_ENOUGH, there)) == []
    assert [outcome.tables for outcome in conduct(ALONE_ENOUGH, there)] == [outcome.tables for outcome in first]
    assert "another version" not in studies.about(ALONE_ENOUGH, there, "fedce study")["size"]


def test_what_reads_ledgers_is_trained_here(tmp_path, results):
    there = context(tmp_path / "there", results)
    there.store.read_in_full(in_full(["fairness", "convergence"], there))
    missing = there.store.missing(studies.needed(["fairness", "convergence"], there))
    assert {config.algorithm.name for config in missing} == {"fedavg", "fedce"}, "convergence has no Standalone"


def test_the_page_says_that_another_version_made_the_results(tmp_path, results):
    n = len(results.read_text().splitlines())
    changed(results, code="0.0.9 abc")
    there = context(tmp_path / "there", results)
    assert there.store.missing(studies.needed(ALONE_ENOUGH, there)) == []
    said = studies.about(ALONE_ENOUGH, there, "fedce study")["size"]
    assert f"The results of {n} of {n} trainings were made by another version of fedce" in said


def test_results_of_this_code_come_before_those_of_other_code(tmp_path):
    file = ResultsFile(tmp_path / "results.jsonl")
    for code, dice in (("ours", 0.9), ("theirs", 0.1), ("older", 0.2)):
        file.add(Kept("key", "name", code, {}, {"dice": {"north": dice}}))
    again = ResultsFile(file.path)
    assert [again.find("key", code).results["dice"]["north"] for code in ("ours", "theirs", "new")] == [0.9, 0.1, 0.2]
    assert again.find("other", "ours") is None


def test_lines_of_two_files_may_be_put_into_one(tmp_path):
    for name in ("a", "b"):
        ResultsFile(tmp_path / name).add(Kept(name, name, "code", {}, {"command": "fedce", "data": "DIR", "dice": {}}))
    both = tmp_path / "both"
    both.write_text((tmp_path / "a").read_text() + (tmp_path / "b").read_text())
    found = ResultsFile(both)
    assert all(found.find(name, "code").results == {"dice": {}} for name in ("a", "b")), "no folder of the machine"


@pytest.mark.parametrize("line", ["", "[]", "{}", "no JSON", '{"digest": 1}'])
def test_a_line_that_is_no_result_is_named(tmp_path, line):
    ResultsFile(tmp_path / "results").add(good := Kept("key", "name", "code", {}, {"dice": {}}))
    with (tmp_path / "results").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(RunError, match="line 2: expected the results of a training"):
        ResultsFile(tmp_path / "results")
    (tmp_path / "results").write_text(json.dumps(asdict(good)) + "\n")
    with pytest.raises(RunError, match="line 1"):
        ResultsFile(tmp_path / "results")


def test_a_changed_number_is_found(tmp_path):
    file = tmp_path / "results"
    ResultsFile(file).add(Kept("key", "name", "code", {}, {"dice": {"north": 0.81}}))
    file.write_text(file.read_text().replace("0.81", "0.91"))
    with pytest.raises(RunError, match="line 1"):
        ResultsFile(file)


def test_the_study_of_norms_needs_results_alone(tmp_path):
    here = context(tmp_path, tmp_path / "results")
    assert in_full(["norms", "performance"], here) == []
    assert norms.STUDY.in_full is not None
