"""recipe = "plan" over a network: the coordinator plans from what the sites tell of their images."""

import json
import tomllib
from pathlib import Path

import pytest

from fedce import __version__
from fedce.base.config import dumps, load, parse, with_planned
from fedce.base.errors import ConfigError
from fedce.base.recipes import PLANNED
from fedce.data import load_sites
from fedce.data.fingerprint import fingerprints_of
from fedce.engines.joining import SILENT_SECONDS, Reports, Rules
from fedce.engines.planning import Collecting
from fedce.engines.starting import coordinate
from fedce.federation.plan import resolve
from fedce.federation.session import Observer
from fedce.learning.planning import completed_by, plan_of
from fedce.record.folder import RunFolder
from fedce.record.verify import verify
from remote_sites import Clock, no_waiting, post_of, resident  # noqa: F401 (a fixture)
from support import made_anew

WRITTEN = {"recipe": "plan", "rounds": 2, "model.channels": [4, 8], "personalise": 0, "data.scale": "tiny"}
REMOTE = {"engine.name": "flower", "engine.members": {f"site{i}": "" for i in range(1, 7)}}


@pytest.fixture
def config():
    return load(None, {**WRITTEN, **REMOTE})


@pytest.fixture
def hospitals(tmp_path: Path, config):
    return {name: resident(config, name, tmp_path / "homes" / name) for name in config.engine.members}


def test_the_coordinator_plans_what_a_local_run_would(tmp_path: Path, config, hospitals):
    notices: list[str] = []
    coordinate(config, tmp_path / "run", post_of(hospitals), observer=Observer(notice=notices.append))
    run = RunFolder(tmp_path / "run")
    tree = {"recipe": "plan", "rounds": 2, "personalise": 0, "model": {"channels": [4, 8]}, "data": {"scale": "tiny"}}
    here = completed_by(tree, plan_of(fingerprints_of(load_sites("fundus6", scale="tiny")), tree)).config
    assert (run.config.train, run.config.model, run.config.rounds) == (here.train, here.model, here.rounds)
    assert run.config.data.normalize == here.data.normalize == "zscore"
    assert run.config.unplanned == ()
    assert any(notice.startswith("planned from the data: ") and "train.loss" in notice for notice in notices)
    verdict = verify(run)
    assert verdict.problems == ()
    assert "planned from 6 fingerprints, each signed by its site" in verdict.facts
    sent = json.loads(run.fingerprints_file.read_text())["sites"]
    assert set(sent) == set(hospitals)
    told = json.loads(json.loads(sent["site1"]["content"])["fingerprint"])
    assert told == json.loads(fingerprints_of(load_sites("fundus6", scale="tiny")).sites[0].model_dump_json())


def test_a_lost_question_is_asked_again_and_an_answered_one_is_not(config, hospitals):
    clock, post = Clock(), post_of(hospitals)
    asked_at: dict[str, list[float]] = {}

    def lose_one(node, about, answer):
        asked_at.setdefault(node, []).append(clock.now)
        return None if node == "node-site6" and len(asked_at[node]) == 1 else answer

    post.when = lose_one
    rules = Rules("00", config.engine.members, 2, 10_000, None, __version__)
    sent = Collecting(post, rules, Reports(lambda event: None), clock, lambda seconds: clock.pause(0.5)).all()
    assert set(sent) == set(hospitals)
    assert asked_at.pop("node-site6") == pytest.approx([0, SILENT_SECONDS], abs=1)
    assert all(len(times) == 1 for times in asked_at.values())


def test_a_resumed_run_keeps_its_plan_and_restarted_sites_know_it(tmp_path: Path, config, hospitals):
    whole = coordinate(config, tmp_path / "whole", post_of(hospitals))
    again = {name: resident(config, name, tmp_path / "again" / name) for name in hospitals}
    post = post_of(again)

    def crash(node, about, answer):
        if '"round_no":1' in about and node == "node-site4":
            raise KeyboardInterrupt
        return answer

    post.when = crash
    with pytest.raises(KeyboardInterrupt):
        coordinate(config, tmp_path / "run", post)
    restarted = {name: resident(config, name, tmp_path / "again" / name) for name in hospitals}
    post = post_of(restarted)
    asked: list[str] = []
    post.when = lambda node, about, answer: (asked.append(about), answer)[1]
    result = coordinate(config, tmp_path / "run", post)
    assert result.values["model_sha256"] == whole.values["model_sha256"]
    assert not any('"wants":"fingerprint"' in about for about in asked), "the recorded plan is used"
    assert verify(RunFolder(tmp_path / "run")).problems == ()


def test_a_site_may_refuse(tmp_path: Path, config, hospitals):
    (tmp_path / "homes" / "site3" / "no-fingerprint").touch()
    notices: list[str] = []
    result = coordinate(config, tmp_path / "run", post_of(hospitals), observer=Observer(notice=notices.append))
    assert "site3: sends no fingerprint; the plan is made without it" in notices
    assert "site3" in result.contributions, "it takes part all the same"
    assert (
        "planned from 5 fingerprints, each signed by its site; 1 refused to send one"
        in verify(RunFolder(tmp_path / "run")).facts
    )
    for name in hospitals:
        (tmp_path / "homes" / name / "no-fingerprint").touch()
    with pytest.raises(ConfigError, match="needs fingerprints of at least two sites, and 0 sent one"):
        coordinate(config, tmp_path / "none", post_of(hospitals))


def test_a_changed_plan_is_found(tmp_path: Path, config, hospitals):
    coordinate(config, tmp_path / "run", post_of(hospitals))
    run = RunFolder(tmp_path / "run")

    def change(entries):
        entries[0]["planned"]["train.batch_size"] += 1

    problems = verify(made_anew(run, change)).problems
    assert "config.toml does not hold the values that were planned from the sites' fingerprints" in problems
    content = json.loads(run.fingerprints_file.read_text())
    content["sites"]["site1"]["signature"] = content["sites"]["site2"]["signature"]
    run.fingerprints_file.write_text(json.dumps(content))
    assert "fingerprints.json is not the file that the run began with" in verify(run).problems


def test_an_unplanned_experiment_travels_as_a_file(config):
    assert set(config.unplanned) >= set(PLANNED) - {"rounds", "model.channels", "personalise"}
    assert "rounds" not in config.unplanned, "a key that a person wrote wins"
    assert load_text(dumps(resolve(config))).unplanned == config.unplanned
    values = {"train.loss": "dice-ce", "data.size": 64}
    assert with_planned(load_text(dumps(resolve(config))), values).data.size == 64
    with pytest.raises(ConfigError, match=r"the plan sets engine\.tell, which the experiment does not leave to a plan"):
        with_planned(config, {"engine.tell": "all"})


def load_text(text: str):
    return parse(tomllib.loads(text))


def test_on_one_machine_a_plan_needs_the_data_at_once():
    with pytest.raises(ConfigError, match='recipe = "plan" takes rounds from the data'):
        load(None, {"recipe": "plan"})
