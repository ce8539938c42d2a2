"""The challenge: rounds are drawn by a hidden seed, and a site can do again what it said in them."""

import json
import shutil
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedce.base.config import load
from fedce.base.errors import ConfigError, RunError
from fedce.base.files import digest_of, read_tensors, write_tensors
from fedce.core.challenge import drawn_by, hash_of
from fedce.engines.prolonging import prolong
from fedce.engines.starting import conduct, coordinate, execute, resume
from fedce.federation.session import Observer
from fedce.questions.audit import audit
from fedce.record.entries import Continued
from fedce.record.folder import RunFolder
from fedce.record.verify import Verdict, verify
from remote_sites import TINY, no_waiting, post_of, replace_engine, resident, signed_anew  # noqa: F401 (a fixture)
from support import Stopped, made_anew, stopping_after

seeds = st.binary(min_size=32, max_size=32).map(bytes.hex)


@given(seeds, st.sampled_from([0.01, 0.05, 0.5, 1.0]), st.integers(0, 50), st.integers(1, 200))
def test_rounds_are_drawn_by_the_stated_rule(seed, part, first, n):
    """By hand: the first seven bytes of SHA-256(seed, "/", round) as a fraction, below the part; or the least."""
    lots = {
        number: int.from_bytes(sha256(bytes.fromhex(seed) + f"/{number}".encode()).digest()[:7]) / 2**56
        for number in range(first, first + n)
    }
    drawn = drawn_by(seed, part, first, first + n)
    assert drawn == {number for number in lots if lots[number] < part or lots[number] == min(lots.values())}
    assert drawn, "at least one"


def test_five_in_a_hundred_rounds_are_drawn():
    n = sum(len(drawn_by(f"{i:064x}", 0.05, 0, 200)) for i in range(200))
    # 40,000 rounds: 2,000 are expected, with a standard deviation of 44.
    assert 1850 < n < 2150


def local(**changes):
    return replace_engine(load(None, {**TINY, "audit": 1.0, **changes}), "local")


def told(run: Path, site: str, home: Path | None = None) -> Verdict:
    return audit(RunFolder(run), site, "fundus6", home=home)


@pytest.mark.parametrize(
    "changes",
    [
        {"train.schedule": "cosine", "freerider.detect": True},
        {"model.norm": "site", "alone": True, "personalise": 1},
        {"algorithm.name": "fedbn"},
        {"algorithm.name": "ditto"},
        {"algorithm.name": "qfedavg"},
        {"sites_per_round": 3, "rounds": 4},
    ],
    ids=["detector", "site norms", "fedbn", "ditto", "qfedavg", "drawn sites"],
)
def test_an_honest_site_does_every_round_again_to_the_last_bit(tmp_path: Path, changes):
    execute(local(**changes), tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    assert verify(run).problems == ()
    found = told(run.path, "site2")
    assert found.problems == ()
    again = [fact for fact in found.facts if "drawn for the audit" in fact]
    assert len(again) == sum("site2" in done.sites for done in run.rounds())
    for fact in again:
        distances = [float(text.rpartition(" ")[2]) for text in fact.partition("differences: ")[2].split(", ")]
        assert max(distances) < 1e-5, "replicates are recorded with five digits"


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("overstate", "error without it: site2 said"),
        ("flip", "update: what site2 sent is"),
        ("shift", "change of running statistics: what site2 sent is"),
        ("repeat", "update: what site2 sent is"),
        ("silent", "error without it: site2 said nothing"),
    ],
)
def test_a_cheat_can_t_reproduce_what_it_said(tmp_path: Path, kind, what):
    execute(local(**{"freerider.plant": {"site2": kind}, "guard": "off"}), tmp_path / "run")
    lie = told(tmp_path / "run", "site2")
    assert any(problem.startswith("round 2, drawn for the audit") and what in problem for problem in lie.problems)
    assert told(tmp_path / "run", "site1").problems == ()


def remote(tmp_path: Path, **changes):
    settings = {**TINY, "audit": 1.0, "engine.members": {f"site{i}": "" for i in range(1, 7)}, **changes}
    config = load(None, settings)
    return config, {name: resident(config, name, tmp_path / "homes" / name) for name in config.engine.members}


@pytest.mark.parametrize("norm", ["batch", "site"])
def test_over_a_network_the_site_keeps_its_own_memory(tmp_path: Path, norm):
    config, hospitals = remote(tmp_path, **{"freerider.plant": {"site2": "overstate"}, "model.norm": norm})
    coordinate(config, tmp_path / "run", post_of(hospitals))
    assert verify(RunFolder(tmp_path / "run")).problems == ()
    assert told(tmp_path / "run", "site1", tmp_path / "homes" / "site1").problems == ()
    lies = told(tmp_path / "run", "site2", tmp_path / "homes" / "site2").problems
    assert [lie.partition(",")[0] for lie in lies if "error without it" in lie] == ["round 2", "round 3"]
    with pytest.raises(ConfigError, match="give the folder of site1, with its key, as --home DIR"):
        told(tmp_path / "run", "site1", tmp_path / "nowhere")
    shutil.rmtree(tmp_path / "homes" / "site1")
    (tmp_path / "homes" / "site1").mkdir()
    lost = told(tmp_path / "run", "site1", tmp_path / "homes" / "site1").problems
    assert any("site1 has kept no memory of it" in problem for problem in lost)


def test_neither_side_can_name_other_models_later(tmp_path: Path):
    config, hospitals = remote(tmp_path)
    coordinate(config, tmp_path / "run", post_of(hospitals))
    run, home = RunFolder(tmp_path / "run"), tmp_path / "homes" / "site1"
    memory = next((home).glob("*/audit/round-000001.safetensors"))
    arrays, about = read_tensors(memory)
    write_tensors(memory, {**arrays, "/params": arrays["/params"] + np.float32(0.1)}, about)
    problems = told(run.path, "site1", home).problems
    assert (
        "round 2, drawn for the audit: the site's memory does not hold the model that it signed in round 1" in problems
    )
    # A memory of another round would not be held against any signature.
    about["memory"]["round_no"] += 7
    write_tensors(memory, arrays, about)
    problems = told(run.path, "site1", home).problems
    assert "round 2, drawn for the audit: the site's memory is of round 8, and its last answer" in " ".join(problems)
    arrays, about = read_tensors(run.start_file(2))
    write_tensors(run.start_file(2), {"start": arrays["start"] + np.float32(0.1)}, about)
    changed = "audit/round-000002/start.safetensors is not what the ledger says was kept"
    assert f"round 3, drawn for the audit: {changed}" in told(run.path, "site2", tmp_path / "homes" / "site2").problems
    assert "audit/round-000002/start.safetensors is not what was kept of round 3" in verify(run).problems

    def hide_it(entries):
        kept = next(entry for entry in entries if entry.get("round") == 2 and entry["kind"] == "round")["drawn"]
        kept["audit/round-000002/start.safetensors"] = digest_of(run.start_file(2))

    made_anew(run, hide_it)
    framed = told(run.path, "site2", tmp_path / "homes" / "site2").problems
    why = "the model that the coordinator kept is not the one that the site was sent"
    assert f"round 3, drawn for the audit: {why}" in framed


def test_an_answer_to_another_model_is_refused(tmp_path: Path):
    config, hospitals = remote(tmp_path)
    post = post_of(hospitals)
    post.when = lambda node, about, answer: (
        signed_anew(hospitals["site3"], answer, received="00" * 32)
        if node == "node-site3" and '"task"' in about
        else answer
    )
    coordinate(config, tmp_path / "run", post)
    assert "it answered to another model than it was sent" in (tmp_path / "run" / "ledger.jsonl").read_text()


def test_a_killed_run_keeps_what_it_drew(tmp_path: Path):
    config = local(rounds=5, audit=0.3, **{"engine.checkpoint_seconds": 1000.0})
    with pytest.raises(Stopped):
        execute(config, tmp_path / "run", observer=stopping_after(1))
    with pytest.raises(Stopped):
        resume(tmp_path / "run", observer=stopping_after(3))
    resume(tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    assert verify(run).problems == ()
    drawn = [done.round_no for done in run.rounds() if done.drawn is not None]
    assert drawn == sorted(drawn_by(run.ledger().end.seed, 0.3, 0, 5))
    found = told(run.path, "site4")
    assert found.problems == ()
    assert sum("done again" in fact for fact in found.facts) == len(drawn)


def test_a_killed_federation_keeps_what_it_drew(tmp_path: Path):
    config, hospitals = remote(tmp_path, rounds=4)
    for place in ('"round_no":1', '"round_no":3'):
        post = post_of(hospitals)

        def crash(node, about, answer, place=place):
            if place in about and node == "node-site4":
                raise KeyboardInterrupt
            return answer

        post.when = crash
        with pytest.raises(KeyboardInterrupt):
            coordinate(config, tmp_path / "run", post)
        # The sites were killed too: only their disks are left.
        hospitals = {name: resident(config, name, tmp_path / "homes" / name) for name in hospitals}
    coordinate(config, tmp_path / "run", post_of(hospitals))
    assert verify(RunFolder(tmp_path / "run")).problems == ()
    for site in ("site1", "site4", "site6"):
        found = told(tmp_path / "run", site, tmp_path / "homes" / site)
        assert found.problems == ()
        assert sum("done again" in fact for fact in found.facts) == 4


def test_a_coordinator_who_draws_other_rounds_is_found(tmp_path: Path):
    execute(local(rounds=4, audit=0.05), tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    drawn = next(done for done in run.rounds() if done.drawn is not None)
    other = next(done for done in run.rounds() if done.drawn is None)
    shutil.copytree(run.path, tmp_path / "copy")

    def move(entries):
        by_round = {entry["round"]: entry for entry in entries if entry["kind"] == "round"}
        by_round[other.round_no]["drawn"] = by_round[drawn.round_no].pop("drawn")

    problems = verify(made_anew(run, move)).problems
    assert f"round {drawn.round_no + 1} was not drawn for an audit, and is by the seed" in problems
    assert f"round {other.round_no + 1} was drawn for an audit, and is not by the seed" in problems
    for change in (lambda entries: entries[-1].pop("seed"), lambda entries: entries[-1].update(seed="00")):
        shutil.rmtree(run.path)
        shutil.copytree(tmp_path / "copy", run.path)
        found = verify(made_anew(RunFolder(run.path), change)).problems
        assert any("the end does not hold the seed whose hash" in problem for problem in found)


def test_a_run_that_goes_on_has_a_new_seed(tmp_path: Path):
    execute(local(rounds=2), tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    first = run.ledger().end.seed
    prolong(run.path, {"rounds": 4}, observer=Observer())
    conduct(None, run.path)
    run = RunFolder(run.path)
    second = run.ledger().end.seed
    assert second != first
    assert run.ledger().of(Continued)[0].challenge == hash_of(second)
    assert verify(run).problems == ()
    found = told(run.path, "site5")
    assert found.problems == ()
    assert sum("done again" in fact for fact in found.facts) == 4


def test_what_is_not_drawn_leaves_nothing_behind(tmp_path: Path):
    execute(local(rounds=4, audit=0.05), tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    drawn = [done.round_no for done in run.rounds() if done.drawn is not None]
    there = {path.name for path in run.audit_folder.iterdir() if path.name.startswith("round-")}
    assert there == {f"round-{round_no:06d}" for round_no in drawn}
    execute(local(rounds=2, audit=0), tmp_path / "none")
    assert not (tmp_path / "none" / "audit").exists()
    assert verify(RunFolder(tmp_path / "none")).problems == ()
    assert any("none was drawn in this run" in why for why in told(tmp_path / "none", "site1").unchecked)


def test_without_its_seed_a_run_does_not_go_on(tmp_path: Path):
    with pytest.raises(Stopped):
        execute(local(), tmp_path / "run", observer=stopping_after(0))
    seed = RunFolder(tmp_path / "run").seed_file(0)
    assert seed.stat().st_mode & 0o077 == 0, "nobody else reads it before the end"
    seed.write_text(json.dumps({"seed": "00" * 32}))
    with pytest.raises(RunError, match="is not the seed whose hash the ledger holds"):
        resume(tmp_path / "run")
    seed.write_text("{}")
    with pytest.raises(RunError, match="does not hold the seed of the audit's rounds"):
        resume(tmp_path / "run")


def test_models_that_are_no_longer_here_are_named(tmp_path: Path):
    execute(local(), tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    shutil.rmtree(run.start_file(1).parent)
    verdict = verify(run)
    assert verdict.problems == ()
    assert "the models of drawn rounds that are not here, and can't be audited: 2" in verdict.unchecked
    problem = "round 2, drawn for the audit: audit/round-000001/start.safetensors is not here: the coordinator has it"
    assert problem in told(run.path, "site1").problems
