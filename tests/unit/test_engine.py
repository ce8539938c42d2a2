"""The local engine: failures are told with site, round and reason; memories survive; bits don't depend on workers."""

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from fedce.algorithms import FedCE
from fedce.algorithms.fedce_at_sites import Received
from fedce.base.errors import DataError, EngineError, RunError
from fedce.core.messages import Task
from fedce.core.site import Memory
from fedce.engines.local import LocalEngine
from fedce.engines.shared import Block, Shelf
from fedce.site.hospital import MemoryFiles, perform
from support import FakeSite, layout, params


@dataclass
class FakeParticipants:
    sites: Mapping[str, FakeSite]
    algorithm: object = field(default_factory=FedCE)
    device: str | None = None

    def device_of(self, worker, n_workers):
        return "cpu"

    @property
    def layout(self):
        return layout(2)

    @property
    def whole_layout(self):
        return layout(2)

    @property
    def keeps(self):
        return self.algorithm.keeps

    @property
    def work_by_site(self):
        return {name: site.n_train for name, site in self.sites.items()}

    def is_there(self, task):
        return True

    def perform(self, task, memory):
        return perform(self.algorithm, self.sites[task.site], task, memory)


class DyingSite(FakeSite):
    def train(self, w, round_no, moments, pull=None):
        os.kill(os.getpid(), signal.SIGKILL)


class RaisingSite(FakeSite):
    def __init__(self, name, error):
        super().__init__(name, [1, 0])
        self.error = error

    def train(self, w, round_no, moments, pull=None):
        raise self.error


def participants(*sites):
    return FakeParticipants({site.name: site for site in sites})


def tasks(names, round_no=0, **fields):
    return [Task(name, round_no, params([1.0, 2.0]), **fields) for name in names]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_every_site_answers_for_itself(tmp_path: Path, workers):
    sites = [FakeSite(name, [i, -i], n_train=10 * (i + 1)) for i, name in enumerate("abcd")]
    with LocalEngine(participants(*sites), tmp_path, workers) as engine:
        replies = {reply.site: reply for reply in engine.ask(tasks("abcd"))}
    assert [replies[name].params.vector.tolist() for name in "abcd"] == [[1 + i, 2 - i] for i in range(4)]
    assert [replies[name].n_train for name in "abcd"] == [10, 20, 30, 40]


@pytest.mark.parametrize("workers", [1, 2])
def test_sites_can_be_sent_models_of_their_own(tmp_path: Path, workers):
    with LocalEngine(participants(FakeSite("a", [1, 1]), FakeSite("b", [1, 1])), tmp_path, workers) as engine:
        replies = engine.ask([Task("a", 0, params([0, 0])), Task("b", 0, params([5, 5]))])
    assert {reply.site: reply.params.vector.tolist() for reply in replies} == {"a": [1, 1], "b": [6, 6]}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_site_that_raises_is_named(tmp_path: Path, workers):
    site = RaisingSite("bad", DataError("no light"))
    with (
        LocalEngine(participants(FakeSite("good", [1, 0]), site), tmp_path, workers) as engine,
        pytest.raises(EngineError, match=r"^round 4, site 'bad': no light$") as caught,
    ):
        engine.ask(tasks(["good", "bad"], round_no=3))
    assert caught.value.trace == ""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_bug_keeps_its_trace(tmp_path: Path, workers):
    site = RaisingSite("bad", ZeroDivisionError("oops"))
    with (
        LocalEngine(participants(FakeSite("good", [1, 0]), site), tmp_path, workers) as engine,
        pytest.raises(EngineError, match="site 'bad': ZeroDivisionError: oops") as caught,
    ):
        engine.ask(tasks(["good", "bad"]))
    assert "in train" in caught.value.trace


def test_a_worker_that_dies_is_told_with_its_site_and_round(tmp_path: Path):
    sites = participants(FakeSite("good", [1, 0]), DyingSite("dying", [1, 0]))
    with (
        LocalEngine(sites, tmp_path, 2) as engine,
        pytest.raises(EngineError, match="round 5, site 'dying': its worker process was ended by signal 9"),
    ):
        engine.ask(tasks(["good", "dying"], round_no=4))


def test_workers_end_with_their_engine(tmp_path: Path):
    with LocalEngine(participants(FakeSite("a", [1, 0]), FakeSite("b", [1, 0])), tmp_path, 2) as engine:
        processes = engine._team.processes
        assert all(process.is_alive() for process in processes)
    assert not any(process.is_alive() for process in processes)


@pytest.mark.parametrize("workers", [1, 2])
def test_memories_are_kept_between_asks_and_found_again_on_disk(tmp_path: Path, workers):
    sites = participants(FakeSite("a", [1, 0]), FakeSite("b", [0, 1]))
    with LocalEngine(sites, tmp_path, workers) as engine:
        engine.ask(tasks("ab", 0))
        second = engine.ask(tasks("ab", 1, rho=0.5, persist=True))
        assert all(reply.error_without is not None for reply in second)
    with LocalEngine(sites, tmp_path, workers) as engine:
        third = engine.ask(tasks("ab", 2, rho=0.5))
        assert all(reply.error_without is not None for reply in third)
    with LocalEngine(sites, tmp_path / "other", workers) as engine:
        assert all(reply.error_without is None for reply in engine.ask(tasks("ab", 2, rho=0.5)))


def test_a_site_keeps_its_last_two_memories(tmp_path: Path):
    files = MemoryFiles(tmp_path, layout(2), keeps=Received)
    for round_no in range(4):
        moments = {"exp_avg": np.ones(2, np.float32) * round_no, "step": np.array(3.0, np.float32)}
        files.save(Memory(round_no, params([round_no, 0]), moments, Received(params([0, round_no]))))
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        "round-000002.safetensors",
        "round-000003.safetensors",
    ]
    found = files.load(before=3)
    assert (found.round_no, found.params.vector.tolist(), found.own.params.vector.tolist()) == (2, [2, 0], [0, 2])
    assert found.moments["step"].shape == ()
    assert found.moments["exp_avg"].tolist() == [2, 2]
    assert files.load(before=2) is None


def test_a_memory_of_a_round_that_a_kill_undid_does_not_push_out_the_one_that_counts(tmp_path: Path):
    files = MemoryFiles(tmp_path, layout(2))
    for round_no in (3, 5):  # 3 is the server's; 5 was saved, then the run was killed.
        files.save(Memory(round_no, params([round_no, 0])))
    assert files.load(before=4).round_no == 3
    files.save(Memory(6, params([6, 0])))
    assert files.load(before=4).round_no == 3, "killed again before the server's next checkpoint"


def test_more_workers_than_sites_are_not_started(tmp_path: Path):
    with LocalEngine(participants(FakeSite("a", [1, 0]), FakeSite("b", [1, 0])), tmp_path, 9) as engine:
        assert len(engine._team.processes) == 2


@pytest.mark.parametrize("inherited", [True, False])
def test_a_block_gives_back_what_was_put(inherited):
    block = Block(100_000, inherited)
    assert block.get() is None
    arrays = {"a": np.arange(7, dtype=np.float32), "b": np.array(3.0, np.float32), "c": np.ones((2, 3))}
    block.put(arrays, {"round": 1})
    found, about = block.get()
    assert about == {"round": 1}
    assert all((found[key] == arrays[key]).all() and found[key].shape == arrays[key].shape for key in arrays)
    with pytest.raises(ValueError, match="can't hold"):
        block.put({"big": np.zeros(100_000)}, {})
    block.close()
    assert block.path is None or not block.path.exists()


def test_a_shelf_keeps_models_in_memory_up_to_a_limit_and_beyond_it_in_a_file(tmp_path: Path):
    vectors = [np.random.default_rng(i).normal(size=1000).astype(np.float32) for i in range(5)]
    shelf = Shelf(tmp_path, most=8000)
    kept = [shelf.keep(vector) for vector in vectors]
    assert [own is vector for own, vector in zip(kept, vectors, strict=True)] == [True, True, False, False, False]
    for own, vector in zip(kept, vectors, strict=True):
        np.testing.assert_array_equal(own, vector)
    assert not any(tmp_path.iterdir())  # The file has no name, so that nothing is left of it after a kill.
    shelf.clear()
    np.testing.assert_array_equal(kept[4], vectors[4])
    assert shelf.keep(vectors[0]) is vectors[0]


def test_a_shelf_on_a_full_disk_says_so(tmp_path: Path):
    with pytest.raises(RunError, match="can't keep a round's models"):
        Shelf(tmp_path / "gone", most=0).keep(np.zeros(10, np.float32))


def test_a_shelf_takes_few_of_the_open_files(tmp_path: Path):
    before = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").is_dir() else 0
    shelf = Shelf(tmp_path, most=0)
    kept = [shelf.keep(np.full(100, i, np.float32)) for i in range(300)]
    assert all((own == i).all() for i, own in enumerate(kept))
    after = len(list(Path("/proc/self/fd").iterdir())) if before else 0
    assert after - before <= 2
