"""`pack`: models travel in fewer bytes, and every engine, site and check sees the same numbers."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.bits import rounds_of

from fedce.algorithms import make
from fedce.base.config import load
from fedce.base.errors import ConfigError
from fedce.core.messages import Task
from fedce.core.packing import packed
from fedce.core.params import Params
from fedce.core.site import Memory
from fedce.engines import remote
from fedce.engines.packing import Packing
from fedce.engines.starting import coordinate, execute
from fedce.federation.checkpoint import load_state, save_state
from fedce.questions.audit import audit
from fedce.record.folder import RunFolder
from fedce.record.verify import verify
from fedce.site.hospital import MemoryFiles, perform
from fedce.site.wire import Parcel, TaskForm, kind_of
from remote_sites import (
    TINY,
    crash_in_round_three,
    no_waiting,  # noqa: F401 (a fixture)
    post_of,
    replace_engine,
    resident,
    signed_anew,
)
from support import FakeSite, events_of, layout, params

MEMBERS = {f"site{i}": "" for i in range(1, 7)}


def experiment(pack: str, **changes):
    return load(None, {**TINY, "engine.members": MEMBERS, "engine.deadline_seconds": 60, "pack": pack, **changes})


def hospitals_of(config, homes: Path):
    return {name: resident(config, name, homes / name) for name in config.engine.members}


def run_remotely(config, folder: Path, homes: Path):
    """The run's result, and the bytes of its tasks and answers."""
    post = post_of(hospitals_of(config, homes))
    counted = []

    def count(node, about, answer):
        if kind_of(about) == "task":
            counted.append(len(answer.to_bytes()))
        return answer

    post.when = count
    result = coordinate(config, folder, post)
    down = sum(len(parcel.to_bytes()) for _, parcel in post.sent if kind_of(parcel.about) == "task")
    return result, down, sum(counted)


def same(one, other) -> bool:
    keys = ("model_sha256", "contributions", "dice", "worth")
    return all(one.values[key] == other.values[key] for key in keys)


def test_lossless_is_the_same_run_in_fewer_bytes(tmp_path: Path):
    plain, plain_down, plain_up = run_remotely(experiment("none"), tmp_path / "plain", tmp_path / "a")
    result, down, up = run_remotely(experiment("lossless"), tmp_path / "run", tmp_path / "b")
    assert same(result, plain)
    assert rounds_of(tmp_path / "run") == rounds_of(tmp_path / "plain")
    assert up < 0.9 * plain_up
    assert down < 0.7 * plain_down


@pytest.mark.parametrize(
    "changes",
    [
        {"model.norm": "site", "alone": True},
        {"algorithm.name": "cgsv", "algorithm.variant": "rewards"},
        {"algorithm.name": "standalone"},
        {"sites_per_round": 3, "rounds": 5},
        {"freerider.detect": True, "freerider.plant": {"site2": "flip"}},
    ],
    ids=["site norms", "own models", "standalone", "drawn", "detector"],
)
def test_16_bits_give_the_same_bits_on_every_engine(tmp_path: Path, changes):
    config = experiment("fp16", **changes)
    here = execute(replace_engine(config, "local"), tmp_path / "local", report=False)
    there, _, _ = run_remotely(config, tmp_path / "remote", tmp_path / "homes")
    assert same(there, here)
    assert rounds_of(tmp_path / "remote") == rounds_of(tmp_path / "local")
    assert verify(RunFolder(tmp_path / "remote")).problems == ()


def test_16_bits_halve_what_travels(tmp_path: Path):
    config = {"rounds": 4, "worth.every": 0, "guard": "off"}
    plain, plain_down, plain_up = run_remotely(experiment("none", **config), tmp_path / "plain", tmp_path / "a")
    result, down, up = run_remotely(experiment("fp16", **config), tmp_path / "run", tmp_path / "b")
    assert result.values["model_sha256"] != plain.values["model_sha256"]
    n = len(MEMBERS)
    about = 2000 * n * 5
    whole = plain_down // 5
    assert up < 0.5 * plain_up + about
    assert down < whole + 0.5 * (plain_down - whole) + about, "the first model is whole, the others are steps from it"


def test_the_same_bits_with_two_workers_and_after_a_kill(tmp_path: Path):
    config = replace_engine(experiment("fp16", rounds=4), "local")
    whole = execute(config, tmp_path / "whole", report=False)
    two = config.model_copy(update={"engine": config.engine.model_copy(update={"workers": 2})})
    assert same(execute(two, tmp_path / "two", report=False), whole)

    hospitals = hospitals_of(experiment("fp16", rounds=4), tmp_path / "homes")
    post = post_of(hospitals)
    post.when = crash_in_round_three
    with pytest.raises(KeyboardInterrupt):
        coordinate(experiment("fp16", rounds=4), tmp_path / "run", post)
    # Server and sites begin again from their disks.
    again = post_of(hospitals_of(experiment("fp16", rounds=4), tmp_path / "homes"))
    assert same(coordinate(experiment("fp16", rounds=4), tmp_path / "run", again), whole)


def test_a_site_that_lost_its_process_gets_the_whole_model(tmp_path: Path, monkeypatch):
    """At the same address: the server can't know that the site no longer has the model it was sent."""
    monkeypatch.setattr(remote, "FIRST_PAUSE", 0.01)
    config = experiment("fp16")
    whole, _, _ = run_remotely(config, tmp_path / "whole", tmp_path / "a")
    hospitals = hospitals_of(config, tmp_path / "b")
    post, lost = post_of(hospitals), []

    def lose(node, about, answer):
        if node == "node-site3" and '"round_no":1' in about and '"evaluate"' not in about and not lost:
            lost.append(node)
            reborn = resident(config, "site3", tmp_path / "b" / "site3")
            post.answers["node-site3"] = reborn.answer
            return "its process ended"
        return answer

    def forget(node, about, answer):
        if node == "node-site3" and '"round_no":1' in about and not lost:
            lost.append(node)
            hospitals["site3"]._held = ()
        return answer

    for when in (lose, forget):
        lost.clear()
        post.when = when
        folder = tmp_path / when.__name__
        assert same(coordinate(config, folder, post), whole)
        assert lost
        hospitals = hospitals_of(config, tmp_path / "c")
        post = post_of(hospitals)
    told = "site3 failed: it no longer has the model that this one is a difference to, and gets the whole one"
    assert told in events_of(tmp_path / "forget")


def test_a_broken_packet_is_refused_in_one_line_and_the_round_goes_on(tmp_path: Path):
    config = experiment("lossless")
    hospitals = hospitals_of(config, tmp_path / "homes")
    post = post_of(hospitals)

    def spoil(node, about, answer):
        if node == "node-site2" and '"round_no":1' in about and answer.arrays:
            return Parcel(answer.about, {"params": answer.arrays["params"][:-9]})
        if node == "node-site3" and '"round_no":1' in about and answer.arrays:
            return Parcel(answer.about, {"params": np.zeros(10, np.float32)})
        return answer

    post.when = spoil
    coordinate(config, tmp_path / "run", post)
    said = events_of(tmp_path / "run")
    assert any(event.startswith("site2 refused: its packed model of ") and "can't be read (" in event for event in said)
    expected = "site3 refused: expected a packed model, because the experiment has pack = 'lossless', got float32 (10,)"
    assert expected in said
    assert "site2" not in RunFolder(tmp_path / "run").rounds()[1].sites


def test_a_packet_of_another_model_than_the_signed_one_is_refused(tmp_path: Path):
    config = experiment("fp16")
    hospitals = hospitals_of(config, tmp_path / "homes")
    post = post_of(hospitals)
    post.when = lambda node, about, answer: (
        signed_anew(hospitals["site2"], answer, model="00" * 32) if node == "node-site2" and answer.arrays else answer
    )
    coordinate(config, tmp_path / "run", post)
    assert "site2 refused: its model is not the one that it signed" in events_of(tmp_path / "run")


def test_an_audit_does_16_bit_rounds_again_to_the_last_bit(tmp_path: Path):
    config = experiment("fp16", audit=1.0)
    run_remotely(config, tmp_path / "run", tmp_path / "homes")
    found = audit(RunFolder(tmp_path / "run"), "site2", "fundus6", home=tmp_path / "homes" / "site2")
    assert found.problems == ()
    again = [fact for fact in found.facts if "drawn for the audit" in fact]
    assert len(again) == 3
    for fact in again:
        distances = dict(text.rsplit(" ", 1) for text in fact.partition("differences: ")[2].split(", "))
        assert float(distances["update"]) == 0.0, "with the rest that the site kept"


def test_an_unknown_way_to_pack_is_one_line():
    with pytest.raises(ConfigError, match=r"pack: .*'none', 'lossless' or 'fp16'"):
        load(None, {"pack": "zip"})


def test_a_score_after_training_is_of_the_model_that_was_sent():
    """To the server, nothing else exists."""
    site = FakeSite("a", [1 + 2**-13], score=lambda w: float(w.vector[0]) / 4)
    task = Task("a", 0, params([0.0]), score_local=True)
    reply, memory = perform(make("fedavg", {}), site, task, None, pack="fp16")
    assert reply.params.vector.tolist() == memory.params.vector.tolist() == [1.0]
    assert reply.score_local == 0.25
    assert memory.rest.tolist() == [2**-13]


def test_what_rounding_left_out_is_on_disk_and_earlier_files_have_none(tmp_path: Path):
    model, rest = params([1.0, 2.0]), np.float32([0.25, 0.5])
    files = MemoryFiles(tmp_path / "site", model.layout)
    files.save(Memory(0, model, rest=rest))
    assert files.newest().rest.tolist() == [0.25, 0.5]
    files.save(Memory(1, model))
    assert files.newest().rest is None
    state = replace(make("fedavg", {}).begin(["a", "b"], model), rest=rest)
    save_state(tmp_path / "state.safetensors", state)
    assert load_state(tmp_path / "state.safetensors", state).rest.tolist() == [0.25, 0.5]


class TestPacking:
    def setup_method(self):
        self.layout = layout(5000)
        rng = np.random.default_rng(0)
        self.models = [Params(self.layout, rng.normal(size=5000).astype(np.float32)) for _ in range(3)]
        self.packing = Packing("lossless")

    def base(self, site: str, model: int) -> str:
        parcel = self.packing.parcel(Task(site, 0, self.models[model]), "00", 1, "")
        return TaskForm.read(parcel.about).base

    def test_only_sites_that_answered_to_the_newest_model_get_a_difference_to_it(self):
        assert self.base("a", 0) == ""
        self.packing.arrived(Task("a", 0, self.models[0]))
        assert self.base("a", 1) == self.models[0].digest
        assert self.base("b", 1) == ""
        self.packing.arrived(Task("b", 0, self.models[1]))
        assert self.base("a", 2) == "", "one model is remembered, however many sites there are"
        assert self.base("b", 2) == self.models[1].digest
        self.packing.forget("b")
        assert self.base("b", 2) == ""

    def test_a_model_that_goes_to_all_sites_is_packed_once(self, monkeypatch):
        calls = []
        monkeypatch.setattr("fedce.site.travel.packed", lambda *a, **k: calls.append(a) or packed(*a, **k))
        sent = [self.packing.parcel(Task(site, 0, self.models[0]), "00", 1, "") for site in "abc"]
        assert len(calls) == 1
        assert sent[0].arrays is sent[2].arrays
        assert [TaskForm.read(parcel.about).site for parcel in sent] == ["a", "b", "c"]

    def test_nothing_is_remembered_where_nothing_is_packed(self):
        self.packing = Packing("none")
        self.packing.arrived(Task("a", 0, self.models[0]))
        parcel = self.packing.parcel(Task("a", 0, self.models[1]), "00", 1, "")
        assert parcel.arrays["params"] is self.models[1].vector
