"""A finished run goes on: the same bits as an uninterrupted run, credit kept, and one ledger over all parts."""

import json
import shutil
from pathlib import Path

import pytest

from fedce.base.config import load
from fedce.base.errors import RunError
from fedce.engines import prolonging, starting
from fedce.engines.prolonging import prolong
from fedce.engines.starting import conduct, execute
from fedce.federation import session
from fedce.federation.lines import versions
from fedce.federation.plan import resolve
from fedce.federation.session import Observer
from fedce.record.entries import Continued
from fedce.record.folder import RunFolder
from fedce.record.verify import verify
from fedce.site.resident import Resident, at_hospital
from support import Post, write_images

TINY = {"data.scale": "tiny", "model.channels": [4, 8], "engine.workers": 1, "rounds": 2}
SAME = ("contributions", "model_sha256", "dice", "intervals", "flags", "best_round", "rounds", "order_settled_from")


@pytest.mark.parametrize("algorithm", ["fedce", "fedavg", "ditto", "fedadam"])
def test_more_rounds_give_what_one_long_run_gives(tmp_path: Path, algorithm: str):
    changes = {**TINY, "algorithm.name": algorithm}
    execute(load(None, changes), tmp_path / "parts", report=False)
    first = RunFolder(tmp_path / "parts").lines()
    in_parts = conduct(None, tmp_path / "parts", more={"rounds": 4}).values
    whole = execute(load(None, {**changes, "rounds": 4}), tmp_path / "whole").values
    assert {key: in_parts.get(key) for key in SAME} == {key: whole.get(key) for key in SAME}
    run = RunFolder(tmp_path / "parts")
    assert run.lines()[: len(first)] == first, "the first part stays as it was"
    assert verify(run).problems == ()
    (line,) = run.ledger().of(Continued)
    assert line.changed.rounds == [2, 4]
    assert (line.round_no, line.changed.joined, line.changed.left) == (2, [], [])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for site in ("north", "south", "west"):
        write_images(tmp_path / "data" / site, value=1)
    changes = {**TINY, "data.source": str(tmp_path / "data")}
    execute(load(None, changes), tmp_path / "run")
    return tmp_path


def test_a_member_comes_and_another_goes_and_credit_stays(folder: Path):
    run = RunFolder(folder / "run")
    before = run.results["contributions"]
    write_images(folder / "data" / "east", value=1, n=9)
    shutil.rmtree(folder / "data" / "south")
    after = conduct(None, folder / "run", more={"rounds": 5}).values
    (line,) = run.ledger().of(Continued)
    assert (line.changed.joined, line.changed.left) == (["east"], ["south"])
    assert verify(RunFolder(folder / "run")).problems == ()
    assert after["contributions"].keys() == {"north", "south", "west", "east"}
    assert after["contributions"]["south"] > 0
    assert before["south"] > 0
    assert sum(after["contributions"].values()) == pytest.approx(1)
    assert after["dice"].keys() == {"north", "west", "east"}
    assert set(run.rounds()[-1].sites) == {"north", "west", "east"}
    assert set(json.loads(run.splits_file.read_text())) == {"north", "west", "east"}


def test_an_experiment_without_a_site_goes_on_without_it(folder: Path, fedce):
    left_out = 'data.sites=["north","west"]'
    done = fedce("run", "--resume", folder / "run", "--rounds", 3, "--set", left_out)
    assert done.exit_code == 0, done.output
    assert "goes on from round 2 to round 3; left: south" in done.stderr
    assert RunFolder(folder / "run").config.data.sites == ("north", "west")
    shown = fedce("ledger", "show", folder / "run")
    assert "after round 2, to round 3; left: south" in shown.stdout


@pytest.mark.parametrize("when", ["before the line", "after the line"])
def test_a_kill_leaves_the_finished_run_or_one_that_can_be_resumed(folder: Path, monkeypatch, when: str):
    run = RunFolder(folder / "run")
    before = run.lines()
    # The first call of settle is the one that looks for leftovers.
    name, n_good = ("append", 0) if when == "before the line" else ("settle", 1)
    original, calls = getattr(RunFolder, name), []

    def killed(self, *arguments):
        calls.append(1)
        if len(calls) > n_good:
            raise KeyboardInterrupt
        return original(self, *arguments)

    monkeypatch.setattr(RunFolder, name, killed)
    with pytest.raises(KeyboardInterrupt):
        prolong(folder / "run", {"rounds": 3}, observer=Observer())
    monkeypatch.undo()
    assert RunFolder(folder / "run").lines()[: len(before)] == before
    result = conduct(None, folder / "run")
    again = RunFolder(folder / "run")
    assert result.values["rounds"] == (3 if when == "after the line" else 2)
    assert len(again.rounds()) == result.values["rounds"]
    assert verify(again).problems == ()


def test_the_parts_of_a_ledger_are_checked_against_each_other(folder: Path):
    conduct(None, folder / "run", more={"rounds": 3})
    run = RunFolder(folder / "run")
    earlier = run.config_until(2)
    text = earlier.read_text()
    earlier.write_text(text.replace("lr = 0.001", "lr = 0.002"))
    assert any("config-until-round-2.toml is not the file" in problem for problem in verify(run).problems)
    earlier.unlink()
    assert any("config-until-round-2.toml is missing" in problem for problem in verify(run).problems)


@pytest.mark.parametrize(
    ("more", "words"),
    [({"rounds": 2}, "has 2 rounds; to train further, --rounds must be above 2"), ({"rounds": 3}, "has other data")],
)
def test_what_can_not_go_on_is_one_line_and_changes_nothing(folder: Path, more, words: str):
    if more["rounds"] == 3:
        shutil.copy(folder / "data/north/images/0.png", folder / "data/north/images/1.png")
    before = {path: path.read_bytes() for path in (folder / "run").iterdir() if path.is_file()}
    with pytest.raises(RunError, match=words):
        conduct(None, folder / "run", more=more)
    assert {path: path.read_bytes() for path in (folder / "run").iterdir() if path.is_file()} == before


def test_other_classes_than_the_models_are_one_line_and_change_nothing(folder: Path):
    """All members may be exchanged, and the new ones may have other classes in their dataset.json."""
    for site in ("east", "centre"):
        write_images(folder / "data" / site, value=1)
        (folder / "data" / site / "dataset.json").write_text(json.dumps({"labels": {"organ": 1}}))
    before = RunFolder(folder / "run").lines()
    with pytest.raises(RunError, match="the model knows the classes foreground, and the data have organ"):
        conduct(None, folder / "run", more={"rounds": 3, "data.sites": ["east", "centre"]})
    assert RunFolder(folder / "run").lines() == before


def test_a_run_of_an_earlier_format_does_not_go_on(folder: Path, monkeypatch):
    """The ledger of another version must not get lines of this one."""
    monkeypatch.setattr(session, "FORMAT", 5)
    before = RunFolder(folder / "run").lines()
    with pytest.raises(RunError, match="has format 4, and this version of fedce writes format 5"):
        conduct(None, folder / "run", more={"rounds": 3})
    assert RunFolder(folder / "run").lines() == before


def test_an_unfinished_run_must_be_finished_first(folder: Path):
    (folder / "run" / "results.json").unlink()
    with pytest.raises(RunError, match="is not finished"):
        conduct(None, folder / "run", more={"rounds": 9})


def test_sites_on_other_machines_go_on_too(tmp_path: Path):
    names = ("site1", "site2", "site3")
    members = dict.fromkeys(names, "")
    config = load(None, {**TINY, "data.sites": names, "engine.name": "flower", "engine.members": members})

    def residents(config) -> Post:
        sites = [
            Resident(at_hospital(resolve(config), name, "fundus6"), name, tmp_path / name, versions()) for name in names
        ]
        return Post({site.site: site.answer for site in sites})

    starting.coordinate(config, tmp_path / "run", residents(config))
    prolonging.prolong(tmp_path / "run", {"rounds": 4}, observer=Observer())
    longer = RunFolder(tmp_path / "run").config
    found = starting.coordinate(longer, tmp_path / "run", residents(longer)).values
    assert verify(RunFolder(tmp_path / "run")).problems == ()
    local = execute(load(None, {**TINY, "data.sites": names, "rounds": 4}), tmp_path / "local").values
    assert found["contributions"] == local["contributions"]
    assert found["model_sha256"] == local["model_sha256"]
