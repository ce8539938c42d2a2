"""fedce doctor --gpu, on made-up trainings; a real comparison needs a GPU."""

import pytest

from fedce.base.errors import ConfigError
from fedce.questions.gpu import TOLERANCE, Trained, check_gpu


def test_trainings_that_agree_are_ok():
    asked = []

    def train(trial):
        asked.append(trial)
        return Trained(0.8 + (0.01 if trial.device == "cuda" else 0), 3.0)

    found = list(check_gpu(2, train))
    assert [one.verdict for one in found] == ["ok"] * 7
    assert found[0].found == "2 CUDA devices"
    assert {(trial.data, trial.device, trial.amp) for trial in asked} == {
        *((data, "cpu", "off") for data in ("fundus6", "volume6")),
        *((data, "cuda", amp) for data in ("fundus6", "volume6") for amp in ("off", "bf16", "fp16")),
    }


def test_a_precision_that_loses_dice_is_a_problem():
    found = list(check_gpu(1, lambda trial: Trained(0.7 if trial.amp == "fp16" else 0.8, 1.0)))
    assert [one.what for one in found if one.verdict == "problem"] == [
        "gpu, fundus6, amp fp16",
        "gpu, volume6, amp fp16",
    ]
    assert f"allowed are {TOLERANCE['fp16']:g}" in found[3].found


def test_a_training_that_fails_on_the_gpu_is_a_finding():
    def train(trial):
        if trial.amp == "bf16":
            raise RuntimeError("no bf16 here")
        return Trained(0.8, 1.0)

    assert "no bf16 here" in next(one for one in check_gpu(1, train) if one.verdict == "problem").found


def test_without_a_gpu_it_is_one_line():
    with pytest.raises(ConfigError, match="no CUDA device"):
        list(check_gpu(0))
