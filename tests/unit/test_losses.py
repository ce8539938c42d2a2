"""Losses: by import path with options, plain functions, class weights, heads; mixed precision and clipping."""

import numpy as np
import pytest
import torch
from monai.losses import DiceLoss
from torch import nn
from torch.nn import functional

from fedce.base.errors import ConfigError
from fedce.base.tables import ModelConfig, TrainConfig
from fedce.learning.learner import Learner, check_amp
from fedce.learning.losses import heads_of, make_loss, over_heads
from fedce.learning.networks import build

CPU = torch.device("cpu")
LOGITS = torch.randn(3, 2, 16, 16, generator=torch.Generator().manual_seed(0))
MASKS = (torch.rand(3, 2, 16, 16, generator=torch.Generator().manual_seed(1)) > 0.6).float()


def squared(logits, masks, scale=1.0):
    return scale * (torch.sigmoid(logits) - masks) ** 2


def not_a_tensor(logits, masks):
    return 0.5


READY = nn.MSELoss()


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def gradient_of(loss):
    logits = LOGITS.clone().requires_grad_()
    loss(logits, MASKS).backward()
    return logits.grad


def test_a_plain_function_is_a_loss():
    made = make_loss(f"{__name__}:squared")
    assert made(LOGITS, MASKS) == squared(LOGITS, MASKS).mean()
    by_hand = gradient_of(lambda logits, masks: squared(logits, masks).mean())
    assert torch.equal(gradient_of(made), by_hand)


def test_a_function_with_options():
    assert make_loss(f"{__name__}:squared", {"scale": 3.0})(LOGITS, MASKS) == squared(LOGITS, MASKS, 3.0).mean()


def test_a_function_of_torch():
    made = make_loss("torch.nn.functional:binary_cross_entropy_with_logits")
    assert made(LOGITS, MASKS) == functional.binary_cross_entropy_with_logits(LOGITS, MASKS)


def test_an_object_is_a_loss():
    assert make_loss(f"{__name__}:READY") is READY


def test_a_function_without_a_tensor_is_one_line():
    with pytest.raises(ConfigError, match="returns a float, expected a tensor"):
        make_loss(f"{__name__}:not_a_tensor")(LOGITS, MASKS)


def test_a_function_with_unknown_options_is_one_line():
    with pytest.raises(ConfigError, match=r"train\.loss.*colour"):
        make_loss(f"{__name__}:squared", {"colour": 1})


@pytest.mark.parametrize(("weights", "expected"), [((1.0, 0.0), [1, 0]), ((1.0, 3.0), [0.25, 0.75])])
def test_class_weights_are_a_weighted_mean_of_the_classes_own_losses(weights, expected):
    alone = [DiceLoss(sigmoid=True)(LOGITS[:, i : i + 1], MASKS[:, i : i + 1]) for i in (0, 1)]
    found = make_loss("dice", weights=weights)(LOGITS, MASKS)
    assert found == pytest.approx(float(sum(w * one for w, one in zip(expected, alone, strict=True))))


def test_a_class_without_weight_has_no_gradient():
    gradient = gradient_of(make_loss("dice-ce", weights=(1.0, 0.0)))
    assert gradient[:, 0].abs().max() > 0
    assert gradient[:, 1].abs().max() == 0


def test_weights_that_sum_to_nothing_are_refused():
    with pytest.raises(ValueError, match="above 0"):
        TrainConfig(class_weights=(0.0, 0.0))


def test_heads_weigh_half_as_much_each():
    loss = DiceLoss(sigmoid=True)
    small = functional.interpolate(LOGITS, size=(8, 8), mode="bilinear")
    target = functional.interpolate(MASKS, size=(8, 8), mode="nearest-exact")
    found = over_heads(loss, [LOGITS, small], MASKS)
    assert found == pytest.approx(float(2 / 3 * loss(LOGITS, MASKS) + 1 / 3 * loss(small, target)))
    assert over_heads(loss, [LOGITS], MASKS) == loss(LOGITS, MASKS)


def test_stacked_heads_are_found():
    assert [tuple(head.shape) for head in heads_of(torch.zeros(2, 3, 4, 8, 8), 2)] == [(2, 4, 8, 8)] * 3
    assert [tuple(head.shape) for head in heads_of(torch.zeros(2, 4, 8, 8, 8), 3)] == [(2, 4, 8, 8, 8)]


class TwoHeads(nn.Module):
    """Answers with a list in training, like networks with deep supervision."""

    def __init__(self):
        super().__init__()
        self.full = nn.Conv2d(1, 1, 3, padding=1)
        self.coarse = nn.Conv2d(1, 1, 3, padding=1, stride=2)

    def forward(self, images):
        if images.shape[-1] % 4:
            raise ValueError("expected a multiple of 4")
        return [self.full(images), self.coarse(images)] if self.training else self.full(images)


@pytest.mark.parametrize("size", [16, 18])
def test_a_network_that_answers_with_a_list_trains_both_heads(size):
    ours = Learner(TwoHeads(), TrainConfig(optimizer="sgd", lr=0.1), "unit", CPU)
    rng = np.random.default_rng(0)
    data = ours.batch(
        rng.integers(0, 255, (4, 1, size, size)).astype(np.uint8),
        (rng.random((4, 1, size, size)) > 0.5).astype(np.uint8),
    )
    before = ours.params
    trained = ours.train(before, data, 0, {})
    moved = {
        entry.name: np.abs(trained.params.vector[where] - before.vector[where]).max()
        for entry, where in ours.layout.slices()
    }
    assert moved["full.weight"] > 0
    assert moved["coarse.weight"] > 0
    assert ours.masks(trained.params, data).shape == (4, 1, size, size)


# --- precision and clipping -------------------------------------------------------------------


def trained_with(**train):
    network = build(ModelConfig(channels=(4, 8)), 1, 1, seed=0)
    ours = Learner(network, TrainConfig(optimizer="sgd", momentum=0.0, lr=0.1, batch_size=8, **train), "unit", CPU)
    rng = np.random.default_rng(0)
    data = ours.batch(
        rng.integers(0, 255, (8, 1, 32, 32)).astype(np.uint8), (rng.random((8, 1, 32, 32)) > 0.5).astype(np.uint8)
    )
    before = ours.params
    return before, ours.train(before, data, 0, {})


def step_of(**train):
    before, trained = trained_with(**train)
    return float(np.linalg.norm(trained.params.trainable - before.trainable))


def test_a_clipped_gradient_has_the_stated_norm():
    whole = step_of()
    assert step_of(clip=whole / 0.1 / 2) == pytest.approx(whole / 2, rel=1e-3)
    assert step_of(clip=1e6) == pytest.approx(whole, rel=1e-6)


def test_bf16_on_the_cpu_changes_little():
    _, exact = trained_with()
    _, rough = trained_with(amp="bf16")
    assert rough.loss == pytest.approx(exact.loss, abs=0.01)
    assert rough.loss != exact.loss
    assert rough.params.vector.dtype == np.float32


@pytest.mark.parametrize(("amp", "device", "line"), [("fp16", "cpu", "needs a CUDA device"), ("bf16", "mps", "mps")])
def test_precision_that_the_device_lacks_is_one_line(amp, device, line):
    with pytest.raises(ConfigError, match=line):
        check_amp(amp, torch.device(device))
