"""What work is done, counted and not timed: counts don't flicker, and a regression of speed shows in them first."""

import subprocess
import sys
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.contestants import work
from benchmarks.server import Replies
from torch.utils._python_dispatch import TorchDispatchMode

from fedce.algorithms import FedCE
from fedce.base.config import parse
from fedce.base.tables import ModelConfig, TrainConfig
from fedce.core.params import BLOCK, Entry, Layout, Params
from fedce.data import load_sites
from fedce.engines.local import LocalEngine
from fedce.engines.shared import Shelf
from fedce.federation.loop import rounds
from fedce.federation.plan import Participants
from fedce.guard import Guarded
from fedce.learning.learner import Learner
from fedce.learning.networks import build


class Counting(TorchDispatchMode):
    """Counts torch's operations, and those that only move memory."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.found[str(func)] += 1
        return func(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def network():
    return build(ModelConfig(channels=(4, 8)), 3, 1, seed=0)


def pixels():
    rng = np.random.default_rng(0)
    return rng.integers(0, 255, (24, 3, 32, 32)).astype(np.uint8), (rng.random((24, 1, 32, 32)) > 0.5).astype(np.uint8)


def test_training_takes_fewer_operations_than_a_plain_loop():
    images, masks = pixels()
    learner = Learner(network(), TrainConfig(), "unit", torch.device("cpu"))
    data, start = learner.batch(images, masks), learner.params
    moments = learner.train(start, data, 0, {}).moments
    plain, part = network(), work.Part(torch.tensor(images), torch.tensor(masks).bool())
    optimizer = work.adam(plain)
    work.train(plain, optimizer, part)
    with Counting() as ours:
        learner.train(start, data, 0, moments)
    with Counting() as theirs:
        work.train(plain, optimizer, part)
    assert ours.found.total() < theirs.found.total()
    name = "aten.convolution_backward.default"
    assert ours.found[name] == theirs.found[name] > 0


def test_scoring_takes_one_forward_pass_and_no_copy_of_the_images():
    images, masks = pixels()
    learner = Learner(network(), TrainConfig(), "unit", torch.device("cpu"))
    data, params = learner.batch(images, masks), learner.params
    learner.counts([params], data)  # A network is tried once on an image of a new size.
    with Counting() as counted:
        learner.counts([params], data)
    n_batches, n_convolutions = 2, sum(isinstance(m, torch.nn.modules.conv._ConvNd) for m in network().modules())
    assert convolutions(counted) == n_batches * n_convolutions
    assert counted.found["aten.index.Tensor"] == 0
    assert not [name for name in counted.found if "batch_norm" in name or "prelu" in name]  # They are fused.


def convolutions(counted: Counting) -> int:
    kinds = ("aten.conv2d", "aten.conv_t", "mkldnn._conv")
    return sum(n for name, n in counted.found.items() if name.startswith(kinds))


def test_several_models_are_scored_in_one_pass_over_the_images():
    images, masks = pixels()
    learner = Learner(network(), TrainConfig(), "zscore", torch.device("cpu"))
    data, first = learner.batch(images, masks), learner.params
    second = learner.train(first, data, 0, {}).params
    one_by_one = [learner.counts([model], data)[0] for model in (first, second, first)]
    with Counting() as one:
        learner.counts([first], data)
    with Counting() as three:
        together = learner.counts([first, second, first], data)
    assert convolutions(three) == 3 * convolutions(one)
    for name in ("aten.div_.Tensor", "aten.mean.dim"):
        assert three.found[name] == one.found[name] > 0, name
    for ours, theirs in zip(together, one_by_one, strict=True):
        assert np.array_equal(ours.overlap, theirs.overlap)
        assert np.array_equal(ours.total, theirs.total)


def calls_of_a_round(n_sites: int, folder: Path) -> int:
    """Functions that the server's part of a round calls."""
    layout = Layout((Entry("w", (1000,), "trainable"),))
    algorithm = Guarded(FedCE())
    state = algorithm.begin([f"{i:04d}" for i in range(n_sites)], Params(layout, np.zeros(1000, np.float32)))
    with Shelf(folder) as shelf:
        *_, done = rounds(algorithm, state, Replies(shelf), 3)
        counted = 0

        def count(frame, event, argument):
            nonlocal counted
            counted += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            next(rounds(algorithm, done.state, Replies(shelf), 4))
        finally:
            sys.setprofile(None)
    return counted


def test_the_servers_work_grows_with_the_sites_and_not_with_their_square(tmp_path: Path):
    few, many = calls_of_a_round(20, tmp_path), calls_of_a_round(80, tmp_path)
    assert many < 4.2 * few


def peak_of_a_round(n_sites: int, folder: Path) -> int:
    """Bytes, with all models in a file."""
    layout = Layout((Entry("w", (40 * BLOCK,), "trainable"),))
    algorithm = Guarded(FedCE())
    state = algorithm.begin([f"{i:04d}" for i in range(n_sites)], Params(layout, np.zeros(layout.size, np.float32)))
    with Shelf(folder, most=0) as shelf:
        engine = Replies(shelf)
        next(rounds(algorithm, state, engine, 1))
        tracemalloc.start()
        try:
            next(rounds(algorithm, state, engine, 1))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


def test_the_servers_memory_hardly_grows_with_the_sites(tmp_path: Path):
    few, many = peak_of_a_round(10, tmp_path), peak_of_a_round(40, tmp_path)
    a_model = 4 * 40 * BLOCK
    assert many - few < 0.1 * 30 * a_model  # One block of each, where 30 more models would be ten times as much.


def test_a_forked_worker_imports_nothing_any_more(tmp_path: Path):
    """What a first round needs, a worker inherits."""
    config = parse({"data": {"scale": "tiny", "sites": ["site1", "site2"]}, "model": {"channels": [4, 8]}})

    class Watched(Participants):
        def perform(self, task, memory):
            before = len(sys.modules)
            reply, memory = super().perform(task, memory)
            (tmp_path / task.site).write_text(str(len(sys.modules) - before))
            return reply, memory

    participants = Watched(config, load_sites(config.data))
    state = participants.initial_state()
    with LocalEngine(participants, tmp_path / "memory", workers=2) as engine:
        next(rounds(participants.algorithm, state, engine, 1))
    assert {int((tmp_path / site).read_text()) for site in state.sites} <= set(range(6))


HELP = "from fedce.cli import main; main(['--help'], standalone_mode=False)"


@pytest.mark.parametrize("code", ["import fedce", HELP])
def test_nothing_heavy_is_imported_before_it_is_needed(code):
    heavy = ("torch", "monai", "scipy", "matplotlib", "SimpleITK", "numpy", "pydantic")
    script = f"{code}\nimport sys\nprint('imported:', *[name for name in {heavy} if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert shown.splitlines()[-1].split() == ["imported:"]


def test_training_does_without_torchs_compiler():
    """Some 800 modules, which the first optimizer of a process would import."""
    script = (
        "import sys, torch, fedce.learning.learner as learn; from fedce.base.config import ModelConfig, TrainConfig\n"
        "import numpy as np; from fedce.learning.networks import build\n"
        "for kind in ('adam', 'adamw', 'sgd'):\n"
        "    train, cpu = TrainConfig(optimizer=kind), torch.device('cpu')\n"
        "    made = learn.Learner(build(ModelConfig(channels=(4, 8)), 3, 1, 0), train, 'unit', cpu)\n"
        "    data = made.batch(np.zeros((8, 3, 32, 32), np.uint8), np.zeros((8, 1, 32, 32), np.uint8))\n"
        "    made.train(made.params, data, 0, {})\n"
        "print('torch._dynamo' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert shown.strip() == "False"
