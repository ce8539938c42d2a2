"""Ground truth and comparisons: each training once, resumable, the same tables whatever happened in between."""

import csv
import json
import os
import shutil
import signal
import time
from dataclasses import fields, replace
from hashlib import sha256
from pathlib import Path

import pytest
from benchmarks.bits import rounds_of

from fedce import load_sites
from fedce.base.config import parse
from fedce.engines.starting import execute
from fedce.federation.plan import Participants
from fedce.questions.compare import Row, table, to_latex
from fedce.questions.jobs import Store, _code_version, _kin
from fedce.questions.value import trainings, value
from fedce.record.folder import RunFolder
from processes import Started
from support import write_site

TINY = {"rounds": 2, "data": {"scale": "tiny", "size": 32}, "model": {"channels": [4, 8]}}
SITES = [f"site{i}" for i in range(1, 7)]


def config(**changes):
    return parse({**TINY, **changes})


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Store:
    return Store(tmp_path_factory.mktemp("store"))


def folders(store: Store) -> set[str]:
    return {path.name for path in store.folder.iterdir()}


def test_leave_one_out_is_the_drop_without_each_site(store: Store):
    found = value(config(), "loo", store)
    whole = found.utilities["+".join(SITES)]
    for site in SITES:
        without = found.utilities["+".join(other for other in SITES if other != site)]
        assert found.values[site] == pytest.approx(whole - without)
    assert sum(found.shares.values()) == pytest.approx(1)
    assert len(folders(store)) == found.n_trained == 7


def test_what_is_kept_is_not_trained_again(store: Store):
    value(config(), "loo", store)
    before = {path: path.stat().st_mtime_ns for path in store.folder.rglob("results.json")}
    value(config(), "loo", store)
    assert before == {path: path.stat().st_mtime_ns for path in store.folder.rglob("results.json")}


def test_other_settings_data_or_seeds_are_other_trainings(store: Store):
    paths = {
        store.path(config(**changes))
        for changes in ({}, {"seed": 1}, {"rounds": 3}, {"leave_out": ["site1"]}, {"train": {"lr": 0.01}})
    }
    assert len(paths) == 5
    assert store.path(config(engine={"workers": 7})) == store.path(config())


def test_a_coalition_of_one_or_none_has_a_value_too(store: Store):
    alone, nobody = store.run([config(leave_out=SITES[1:]), config(leave_out=SITES)])
    assert alone.contributions == {**dict.fromkeys(SITES, 0.0), "site1": 1.0}
    assert len(nobody.dice) == 6


def test_reconstruction_adds_up_to_the_gain(store: Store):
    found = value(config(), "reconstruction", store)
    assert found.n_trained == 1
    (result,) = store.run(trainings(config(), "reconstruction", SITES))
    first = RunFolder(result.folder).rounds()[0].mean_score
    last = sum(result.values["validation_dice"].values()) / 6
    assert sum(found.values.values()) == pytest.approx(last - first, abs=1e-5)
    assert result.values["banzhaf"].keys() == found.values.keys()
    assert result.values["banzhaf"] != found.values


@pytest.mark.parametrize("name", ["standalone", "ditto", "fedadam"])
def test_reconstruction_is_refused_where_it_would_be_wrong(store: Store, name):
    with pytest.raises(ValueError, match="only for methods whose common model is the weighted mean"):
        value(config(algorithm={"name": name}), "reconstruction", store)


def test_what_is_valued_is_the_common_model():
    """A left-out site that trains on by itself would hide what it loses."""
    for method in ("loo", "shapley", "reconstruction"):
        runs = trainings(config(personalise=3, alone=True), method, ["site1", "site2", "site3"])
        assert all((run.personalise, run.alone) == (0, False) for run in runs)


def test_the_store_knows_the_code_and_the_device(store: Store, monkeypatch):
    before = store.path(config())
    monkeypatch.setattr("fedce.questions.jobs._code_version", lambda: "another")
    assert store.path(config()) != before
    assert len(_code_version()) > 64
    assert not _code_version().endswith(sha256(b"").hexdigest())


def test_shapley_needs_all_coalitions_and_refuses_too_many():
    assert len(trainings(config(), "shapley", SITES)) == 64
    with pytest.raises(ValueError, match="2\\^12 trainings"):
        trainings(config(), "shapley", [str(i) for i in range(12)])
    with pytest.raises(ValueError, match="already leaves out site1"):
        trainings(config(leave_out=["site1"]), "loo", SITES)


def test_exact_shapley_of_two_sites_by_retraining(tmp_path: Path, store: Store):
    for name in ("north", "south"):
        write_site(tmp_path / "data", name)
    two = parse({"rounds": 1, "data": {"source": str(tmp_path / "data")}, "model": {"channels": [4, 8]}})
    found = value(two, "shapley", store)
    u = found.utilities
    expected = 0.5 * (u["north"] - u[""]) + 0.5 * (u["north+south"] - u["south"])
    assert found.values["north"] == pytest.approx(expected)


COMPARE = (
    *("compare", "--algorithms", "standalone,fedavg,fedce", "--seeds", "0,1", "--scale", "tiny", "--rounds", "2"),
    *("--set", "data.size=32", "--set", "model.channels=[4,8]"),
)


def test_compare_writes_one_table_four_ways(tmp_path: Path, fedce):
    run = fedce(*COMPARE, "--truth", "loo", "--store", tmp_path / "store", "--out", tmp_path / "out")
    assert run.exit_code == 0, run.output
    rows = list(csv.reader((tmp_path / "out" / "compare.csv").read_text().splitlines()))
    assert [row[0] for row in rows] == ["algorithm", "standalone", "fedavg", "fedce"]
    assert rows[1][rows[0].index("MB")] == "0", "Standalone exchanges nothing"
    content = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert sum(content["truth"]["shares"].values()) == pytest.approx(1)
    assert content["rows"][2]["truth_pearson"] is not None
    by_seed = content["truth"]["by_seed"]
    assert content["truth"]["values"]["site1"] == pytest.approx(sum(one["site1"] for one in by_seed.values()) / 2)
    assert content["truth"]["reliability"]["ceiling"] <= 1
    assert "even a perfect estimate" in " ".join(run.stdout.split())
    assert content["rows"][1]["gain"].keys() == set(SITES)
    assert (tmp_path / "out" / "compare.md").read_text().startswith("| algorithm |")
    assert "\\toprule" in (tmp_path / "out" / "compare.tex").read_text()
    # 3 x 2 trainings, and 6 more for each seed's leave-one-out; FedCE with everybody serves both.
    assert len(list((tmp_path / "store").iterdir())) == 6 + 12


def test_a_killed_comparison_ends_with_the_same_table(tmp_path: Path, fedce):
    whole = fedce(*COMPARE, "--store", tmp_path / "whole", "--out", tmp_path / "a")
    assert whole.exit_code == 0, whole.output
    arguments = [*COMPARE, "--store", str(tmp_path / "store"), "--out", str(tmp_path / "b")]
    process = Started(arguments, tmp_path / "errors")
    deadline = time.monotonic() + 300
    while not list((tmp_path / "store").glob("*/ledger.jsonl")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "b").exists()
    assert fedce(*arguments).exit_code == 0

    def content(folder):
        rows = json.loads((folder / "compare.json").read_text())["rows"]
        return [{key: row[key] for key in ("algorithm", "dice", "dice_std", "contributions", "gain")} for row in rows]

    assert content(tmp_path / "a") == content(tmp_path / "b")


def test_value_on_the_command_line(tmp_path: Path, fedce):
    out = tmp_path / "run"
    settings = ("--set", "data.size=32", "--set", "model.channels=[4,8]")
    assert fedce("run", "--scale", "tiny", "--rounds", 2, "--workers", 1, "--out", out, *settings).exit_code == 0
    run = fedce("value", out, "--store", tmp_path / "store")
    assert run.exit_code == 0, run.output
    assert "7 trainings" in run.stderr
    assert json.loads((out / "value-loo.json").read_text())["method"] == "loo"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("value", "RUN", "--method", "shaply"), "unknown method 'shaply', did you mean 'shapley'?"),
        (("value", "nowhere"), "can't read the experiment file nowhere"),
        (("compare", "--algorithms", "fedce,fedvag"), "unknown algorithm 'fedvag', did you mean 'fedavg'?"),
        (("compare", "--algorithms", "fedce", "--seeds", "a"), "--seeds: expected whole numbers"),
        (("compare", "--algorithms", "fedce", "--seeds=-1"), "--seeds: expected whole numbers from 0 such as 0,1,2"),
        (("compare", "--algorithms", ","), "--algorithms: expected names"),
    ],
)
def test_bad_input(tiny_run: Path, tmp_path: Path, fedce, arguments, line):
    named = [tiny_run if argument == "RUN" else argument for argument in arguments]
    refused = fedce(*named, "--store", tmp_path / "store", "--out", tmp_path / "out")
    assert refused.exit_code == 2
    assert line in refused.stderr.splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_latex_escapes_names():
    values = {"my_site": 0.5}
    row = Row(
        **{field.name: values if "Mapping" in str(field.type) else 0.5 for field in fields(Row)}
        | {"algorithm": "x_y", "title": "x_y", "metrics": {}, "metrics_by_site": {}}
    )
    assert r"my\_site" in to_latex(*table([row]))
    assert r"x\_y" in to_latex(*table([row]))


def test_coalitions_share_their_first_round_and_nothing_else(tmp_path: Path, monkeypatch):
    """As if each had been trained by itself, to the last bit."""
    three = SITES[:3]
    coalitions = trainings(config(data={**TINY["data"], "sites": three}), "loo", three)
    assert len({_kin(one) for one in coalitions}) == 1  # Of these, only the whole federation measures worth.
    assert len({one.worth for one in coalitions}) == 2
    played = []
    play = Participants.play_first_round
    monkeypatch.setattr(
        Participants, "play_first_round", lambda self: played.append(self.config.leave_out) or play(self)
    )
    together = Store(tmp_path / "store").run(coalitions, workers=2)
    assert played == [()]
    for coalition, result in zip(coalitions, together, strict=True):
        alone = execute(coalition, tmp_path / "-".join(["alone", *coalition.leave_out]), report=False)
        assert result.values["model_sha256"] == alone.values["model_sha256"]
        assert result.contributions == alone.contributions
        assert rounds_of(result.folder) == rounds_of(alone.folder)


def test_a_first_round_with_another_task_is_played_again():
    two = config(data={**TINY["data"], "sites": SITES[:2]})
    participants = Participants(two, load_sites(two.data))
    state = participants.initial_state()
    task = participants.algorithm.task(state, state.sites[0])
    participants.first_round = participants.play_first_round()
    first, memory = participants.perform(task, None)
    assert participants.perform(task, None)[0] is first
    assert participants.perform(replace(task, round_no=1), memory)[0] is not first
    assert participants.perform(task, None)[0] is not first  # It is not kept beyond the first round.
    with_score = replace(task, score_local=True)
    participants.first_round = participants.play_first_round()
    assert participants.perform(with_score, None)[0].score_local is not None


def test_a_terminated_comparison_ends_its_trainings_and_says_how_to_go_on(tmp_path: Path):
    """SIGTERM, to the whole group as a scheduler sends it: no training goes on, and the store can be used."""
    arguments = ["compare", "--algorithms", "fedavg,uniform", "--seeds", "0", "--scale", "tiny", "--rounds", "300"]
    arguments += ["--workers", "2", "--store", str(tmp_path / "store"), "--out", str(tmp_path / "out")]
    process = Started(arguments, tmp_path / "errors", new_session=True)
    limit = time.monotonic() + 300
    while len(list((tmp_path / "store").glob("*/ledger.jsonl"))) < 2:
        assert time.monotonic() < limit
        time.sleep(0.05)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.killpg(process.pid, signal.SIGTERM)
    code, errors = process.wait(timeout=300), (tmp_path / "errors").read_text()
    assert code == 143, errors
    assert errors.splitlines()[-1] == "fedce: stopped; the same command continues from here"
    assert "Traceback" not in errors
    assert len(children) == 2
    assert not [child for child in children if Path(f"/proc/{child}").exists()]


def test_a_store_that_was_damaged_or_killed_in_any_state(tmp_path: Path, fedce):
    """A changed result is one line that names the folder to delete; a killed creation is begun again."""
    store = tmp_path / "store"
    command = ("compare", "--algorithms", "fedavg", "--seeds", "0", "--scale", "tiny", "--rounds", 1, "--workers", 1)
    command = (*command, "--store", store, "--out", tmp_path / "out", "--json")
    rows = json.loads(fedce(*command).stdout)["rows"]
    (training,) = store.iterdir()
    assert store.stat().st_mode & 0o777 == training.stat().st_mode & 0o777 == 0o700
    results = training / "results.json"
    dice = rows[0]["dice"]["site1"]
    results.write_text(results.read_text().replace(f'"site1": {dice}', '"site1": 0.5', 1))
    refused = fedce(*command)
    assert refused.exit_code == 2
    line = refused.stderr.strip()
    assert len(line.splitlines()) == 1
    assert "results.json was changed since it was written" in line
    assert f"delete {training} and call the same command again" in line
    for left in ([], [".lock"], [".lock", ".config.toml.77.tmp"], [".lock", "config.toml"]):
        shutil.rmtree(training)
        training.mkdir()
        for name in left:
            (training / name).write_text("seed = 7" if name == "config.toml" else "")
        again = fedce(*command)
        assert again.exit_code == 0, again.output
        assert json.loads(again.stdout)["rows"][0]["dice"] == rows[0]["dice"]
