"""The model of the best round is kept beside the last one, and a run may stop when nothing gets better."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from safetensors.numpy import load_file

from fedce.base.config import load
from fedce.core.best import WINDOW, best_round, has_stalled, smoothed
from fedce.engines.starting import execute, resume
from fedce.federation.session import Observer
from fedce.record.folder import RunFolder
from fedce.record.verify import verify
from support import Stopped, stopping_after

TINY = {
    "data.scale": "tiny",
    "rounds": 6,
    "model.channels": (4, 8),
    "engine.workers": 1,
    "engine.checkpoint_seconds": 0.0,
    "train.lr": 0.01,
}
some = st.lists(st.floats(0, 1), min_size=1, max_size=40)


@given(some)
def test_the_best_round_by_hand(scores):
    means = [np.mean(scores[max(0, i - WINDOW + 1) : i + 1]) for i in range(len(scores))]
    assert smoothed(scores) == pytest.approx(means)
    assert means[best_round(scores)] == pytest.approx(max(means))


@given(some, st.integers(1, 10))
def test_a_run_has_stalled_if_nothing_got_better_for_so_long(scores, patience):
    values = smoothed(scores)
    stalled = len(values) > patience and max(values[-patience:]) <= max(values[:-patience])
    assert has_stalled(scores, patience) == stalled
    assert not has_stalled(scores, None)


def models(config, folder: Path) -> list[np.ndarray]:
    """The common model before the first round and after each, in one vector each."""
    seen: list[np.ndarray] = []
    execute(config, folder, observer=Observer(round=lambda done: seen.append(done.state.params.vector.copy())))
    return seen


def vector(path: Path) -> np.ndarray:
    return np.concatenate([value.reshape(-1).astype(np.float32) for value in load_file(path).values()])


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> tuple[RunFolder, list[np.ndarray]]:
    folder = tmp_path_factory.mktemp("best") / "run"
    seen = models(load(None, TINY), folder)
    return RunFolder(folder), seen


def test_the_best_model_is_the_one_of_its_round(ran):
    run, after_round = ran
    results = run.results
    scores = [done.mean_score for done in run.rounds()]
    scores.append(np.mean(list(results["validation_dice"].values())))
    assert results["best_round"] == best_round(scores)
    assert results["best_score"] == pytest.approx(max(smoothed(scores)))
    best = load_file(run.best_file)
    if results["best_round"] > 0:
        expected = after_round[results["best_round"] - 1]
        assert sorted(vector(run.best_file).tolist()) == sorted(expected.tolist())
    assert best.keys() == load_file(run.model_file).keys()
    assert verify(run).problems == ()


def test_a_resumed_run_keeps_the_same_best_model(ran, tmp_path: Path):
    with pytest.raises(Stopped):
        execute(load(None, TINY), tmp_path / "run", observer=stopping_after(3))
    resume(tmp_path / "run")
    assert (tmp_path / "run" / "best.safetensors").read_bytes() == ran[0].best_file.read_bytes()


def test_a_run_stops_when_its_score_no_longer_rises_and_its_ledger_is_sound(tmp_path: Path):
    config = load(None, {**TINY, "rounds": 30, "patience": 2, "train.lr": 1e-7})
    result = execute(config, tmp_path / "run", report=False)
    run = RunFolder(tmp_path / "run")
    scores = [done.mean_score for done in run.rounds()]
    assert result.values["rounds"] == len(scores) < 30
    assert has_stalled(scores, 2)
    assert not has_stalled(scores[:-1], 2)
    assert verify(run).problems == ()


def test_standalone_has_no_common_model_to_be_best(tmp_path: Path):
    result = execute(load(None, {**TINY, "rounds": 2, "algorithm.name": "standalone"}), tmp_path / "run", report=False)
    assert "best_round" not in result.values
    assert not (tmp_path / "run" / "best.safetensors").exists()


def test_predict_takes_the_best_model(ran, tmp_path: Path, fedce):
    Image.new("RGB", (48, 48), (90, 40, 20)).save(tmp_path / "a.png")
    done = fedce("predict", ran[0].path, tmp_path / "a.png", "--best", "--out", tmp_path / "masks")
    assert done.exit_code == 0, done.output
    refused = fedce("predict", ran[0].path, tmp_path / "a.png", "--best", "--site", "site1", "--out", tmp_path / "more")
    assert refused.exit_code == 2
    assert "leave out --site or --best" in refused.stderr
