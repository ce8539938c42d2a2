"""Local training against plain torch, scores against MONAI."""

import numpy as np
import pytest
import torch
from monai.losses import DiceLoss
from monai.metrics import compute_dice
from torch import nn

from fedce.base.config import parse
from fedce.base.errors import ConfigError
from fedce.base.tables import ModelConfig, TrainConfig
from fedce.core.scoring import dice
from fedce.learning.batches import to_input, to_unit
from fedce.learning.learner import Learner, counted, layout_of
from fedce.learning.losses import make_loss
from fedce.learning.networks import build, check_fits, choose_device
from fedce.learning.speed import NarrowUpsampling, QuickPrelu, speed_up

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def images(n=20, size=32, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 255, (n, 3, size, size)).astype(np.uint8), (rng.random((n, 2, size, size)) > 0.7).astype(
        np.uint8
    )


def learner(norm="batch", **train):
    network = build(ModelConfig(channels=(4, 8), norm=norm), 3, 2, seed=0)
    return Learner(network, TrainConfig(**train), "unit", CPU)


def plain_training(config, pixels, masks, seed, n_rounds=1):
    """What a textbook loop does with separate tensors."""
    network = build(ModelConfig(channels=(4, 8)), 3, 2, seed=0)
    form = speed_up(network)  # A bias before a batch norm has no gradient but rounding, which Adam makes much of.
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    if config.optimizer == "sgd":
        optimizer = torch.optim.SGD(network.parameters(), config.lr, config.momentum)
    else:
        optimizer = kinds[config.optimizer](network.parameters(), config.lr, config.betas, fused=True, weight_decay=0.0)
    loss_of = DiceLoss(sigmoid=True)
    x, y = (torch.tensor(pixels).float() / 255).contiguous(memory_format=form), torch.tensor(masks).float()
    network.train()
    for _ in range(n_rounds):
        torch.manual_seed(seed)
        for rows in torch.randperm(len(x)).split(config.batch_size):
            optimizer.zero_grad()
            loss = loss_of(network(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
    return network


def test_the_gradient_is_that_of_a_whole_pass():
    """One step of SGD with rate 1 over all images goes by the gradient."""
    pixels, masks = images()
    ours = learner(optimizer="sgd", momentum=0.0, lr=1.0, batch_size=20)
    data, before = ours.batch(pixels, masks), ours.params
    loss, gradient = ours.gradient(before, data)
    trained = ours.train(before, data, 1, {})
    assert loss == pytest.approx(trained.loss, rel=1e-5)
    assert np.allclose(before.trainable - trained.params.trainable, gradient, atol=1e-6)
    assert np.abs(gradient).max() > 1e-3


def test_every_step_is_told():
    pixels, masks = images()
    ours = learner(batch_size=8)
    steps = []
    ours.after_step = steps.append
    trained = ours.train(ours.params, ours.batch(pixels, masks), 1, {})
    assert len(steps) == 3
    assert np.array_equal(steps[-1].vector, trained.params.vector)
    assert not np.array_equal(steps[0].vector, steps[1].vector)


def test_the_fast_way_gives_the_same_numbers():
    usual, fast = (build(ModelConfig(channels=(8, 16, 32)), 3, 2, seed=0).eval() for _ in range(2))
    form = speed_up(fast)
    assert form == torch.channels_last
    assert sum(isinstance(module, NarrowUpsampling) for module in fast.modules()) == 1
    x = torch.rand(4, 3, 32, 32)
    ours, theirs = fast(x.contiguous(memory_format=form)), usual(x)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    ours.square().sum().backward()
    theirs.square().sum().backward()
    for (name, one), other in zip(fast.named_parameters(), usual.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-3, msg=name)
    assert torch.backends.mkldnn.enabled


@pytest.mark.parametrize("slope", [0.25, 0.0, -0.5, 1.5])
@pytest.mark.parametrize("shape", [(4, 8, 16, 16), (2, 4, 8, 8, 8)])
def test_the_quick_prelu_gives_torchs_bits(shape, slope):
    torch.manual_seed(0)
    quick, usual = nn.Sequential(nn.PReLU(init=slope)), nn.PReLU(init=slope)
    speed_up(quick)
    assert isinstance(quick[0], QuickPrelu)
    form = torch.channels_last if len(shape) == 4 else torch.contiguous_format
    x, gradient = (torch.randn(shape).contiguous(memory_format=form) for _ in range(2))
    x.flatten()[0] = 0.0
    found = []
    for module in (quick, usual):
        given = x.clone(memory_format=torch.preserve_format).requires_grad_()
        made = module(given)
        made.backward(gradient)
        found.append((made, given.grad, next(module.parameters()).grad))
    for ours, theirs in zip(*found, strict=True):
        assert ours.shape == theirs.shape
        assert torch.equal(ours, theirs)
    with torch.inference_mode():
        assert torch.equal(quick(x), usual(x))


def test_a_prelu_with_a_slope_for_each_channel_stays_torchs():
    network = nn.Sequential(nn.PReLU(4))
    speed_up(network)
    assert type(network[0]) is nn.PReLU


def test_a_network_of_ones_own_gets_its_images_as_usual():
    assert speed_up(nn.Sequential(nn.Flatten())) == torch.contiguous_format


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_training_is_the_textbook_loop(optimizer):
    pixels, masks = images()
    ours = learner(optimizer=optimizer)
    data = ours.batch(pixels, masks)
    first = ours.train(ours.params, data, 7, {})
    second = ours.train(first.params, data, 7, first.moments)
    expected = plain_training(ours.config, pixels, masks, 7, n_rounds=2)
    for entry, where in ours.layout.slices():
        tensor = expected.state_dict()[entry.name].numpy().reshape(-1)
        np.testing.assert_allclose(second.params.vector[where], tensor, rtol=1e-5, atol=1e-6, err_msg=entry.name)


def test_moments_can_be_reset():
    pixels, masks = images()
    ours = learner(optimizer_state="reset")
    data = ours.batch(pixels, masks)
    first = ours.train(ours.params, data, 7, {})
    assert first.moments == {}
    kept = learner()
    again = kept.train(first.params, kept.batch(pixels, masks), 7, {})
    np.testing.assert_array_equal(ours.train(first.params, data, 7, {}).params.vector, again.params.vector)


def test_training_depends_on_its_inputs_alone():
    pixels, masks = images()
    ours = learner()
    start, data = ours.params, ours.batch(pixels, masks)
    first = ours.train(start, data, 7, {})
    ours.train(first.params, data, 8, first.moments)
    torch.rand(5)
    np.testing.assert_array_equal(ours.train(start, data, 7, {}).params.vector, first.params.vector)
    assert ours.train(start, data, 9, {}).params.digest != first.params.digest


def test_training_leaves_the_callers_random_state_alone():
    ours = learner()
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    ours.train(ours.params, ours.batch(*images(8)), 7, {})
    assert torch.equal(torch.rand(3), expected)


def test_dice_is_monais():
    rng = torch.Generator().manual_seed(0)
    predicted, truth = (torch.rand(9, 3, 16, 16, generator=rng) > 0.6 for _ in range(2))
    truth[0], predicted[1], truth[2, 1] = False, False, False
    predicted[2, 1] = False
    expected = compute_dice(predicted.float(), truth.float(), include_background=True, ignore_empty=False)
    np.testing.assert_allclose(dice(*counted(predicted, truth).numpy()), expected.numpy(), rtol=1e-6)


def test_empty_masks():  # D15
    empty, full = torch.zeros(1, 1, 4, 4, dtype=torch.bool), torch.ones(1, 1, 4, 4, dtype=torch.bool)
    assert [
        float(dice(*counted(a, b).numpy())[0, 0])
        for a, b in ((empty, empty), (full, empty), (empty, full), (full, full))
    ] == [1, 0, 0, 1]


def test_scores_are_of_the_given_model_and_do_not_change_it():
    ours = learner()
    data = ours.batch(*images(70))
    start = ours.params
    (first,) = ours.counts([start], data)
    assert first.overlap.shape == first.total.shape == (70, 2)
    trained = ours.train(start, data, 1, {})
    (again,) = ours.counts([start], data)
    np.testing.assert_array_equal((again.overlap, again.total), (first.overlap, first.total))
    assert ours.params.digest == start.digest != trained.params.digest


@pytest.mark.parametrize(("norm", "has_buffers"), [("batch", True), ("instance", False), ("group", False)])
def test_norms(norm, has_buffers):
    ours = learner(norm)
    kinds = {entry.kind for entry in ours.layout.entries}
    assert ("buffer" in kinds) == has_buffers
    trained = ours.train(ours.params, ours.batch(*images()), 1, {})
    assert np.isfinite(trained.params.vector).all()


def test_counters_count_batches():
    ours = learner(batch_size=5)
    trained = ours.train(ours.params, ours.batch(*images(20)), 1, {})
    assert set(trained.params.vector[ours.layout.n_averaged :]) == {4.0}


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(3, 3, 1)
        self.b = nn.Conv2d(3, 3, 1)
        self.b.weight = self.a.weight
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.head = nn.Conv2d(3, 2, 1)

    def forward(self, x):
        return self.head(self.b(self.a(x)))


def test_tied_weights_stay_tied_and_frozen_ones_stay():
    names = [entry.name for entry in layout_of(Tied()).entries]
    assert "b.weight" not in names
    assert names[-1] == "frozen"
    ours = Learner(Tied(), TrainConfig(lr=0.1), "unit", CPU)
    trained = ours.train(ours.params, ours.batch(*images()), 1, {})
    assert torch.equal(ours.network.a.weight, ours.network.b.weight)
    assert trained.params.vector[-2:].tolist() == [1.0, 1.0]


def test_a_network_by_import_path():
    config = ModelConfig(
        name="monai.networks.nets:BasicUNet",
        options={"spatial_dims": 2, "in_channels": 3, "out_channels": 2, "features": [8] * 6},
    )
    check_fits(build(config, 3, 2, 0), 3, 2, (32, 32))


@pytest.mark.parametrize(
    ("config", "line"),
    [
        (ModelConfig(name="unett"), "did you mean 'unet'?"),
        (ModelConfig(name="monai.networks.nets:Nope"), "can't import"),
        (ModelConfig(name="monai.networks.nets:BasicUNet", options={"colour": 1}), "model.options does not fit"),
        (ModelConfig(name="builtins:dict"), "not a torch.nn.Module"),
        (ModelConfig(channels=(4,)), "at least two levels"),
    ],
)
def test_a_network_that_cannot_be_made_is_one_line(config, line):
    with pytest.raises(ConfigError, match=r"model|network|import|levels") as caught:
        build(config, 3, 2, 0)
    assert line in str(caught.value)


def test_images_that_do_not_fit_the_network():
    with pytest.raises(ConfigError, match="can't take images of 33x33"):
        check_fits(nn.Linear(3, 2), 3, 2, (33, 33))
    with pytest.raises(ConfigError, match="one channel for each class"):
        check_fits(build(ModelConfig(), 3, 2, 0), 3, 5, (32, 32))


def test_initial_weights_depend_on_the_seed_alone():
    digests = [
        Learner(build(ModelConfig(), 3, 2, seed), TrainConfig(), "unit", CPU).params.digest for seed in (0, 0, 1)
    ]
    assert digests[0] == digests[1] != digests[2]


def test_normalisation():
    pixels = torch.tensor(images(4)[0])
    assert 0 <= to_input(to_unit(pixels), "unit").min() <= to_input(to_unit(pixels), "unit").max() <= 1
    scaled = to_input(to_unit(pixels), "zscore")
    torch.testing.assert_close(scaled.mean((2, 3)), torch.zeros(4, 3), atol=1e-5, rtol=0)
    assert torch.isfinite(to_input(torch.zeros(1, 3, 8, 8), "zscore")).all()


def test_devices_and_losses():
    assert choose_device("auto").type in ("cpu", "cuda", "mps")
    with pytest.raises(ConfigError, match="can't be used here"):
        choose_device("warp")
    with pytest.raises(ConfigError, match="unknown loss"):
        make_loss("dicee")


def test_a_loss_that_would_take_logits_for_probabilities_is_refused():
    for name in ("DiceLoss", "DiceCELoss", "TverskyLoss", "GeneralizedDiceLoss", "DiceFocalLoss"):
        for options in ({}, {"sigmoid": False}):
            with pytest.raises(ConfigError, match=r"set train\.loss_options = \{sigmoid = true\}$"):
                make_loss(f"monai.losses:{name}", options)
    logits, masks = torch.randn(2, 1, 8, 8), torch.rand(2, 1, 8, 8) > 0.5
    made = make_loss("monai.losses:DiceLoss", {"sigmoid": True, "squared_pred": True})
    assert torch.equal(made(logits, masks.float()), DiceLoss(sigmoid=True, squared_pred=True)(logits, masks.float()))
    # It applies the sigmoid by itself, and has no such argument.
    assert make_loss("monai.losses:FocalLoss")


def test_options_that_a_loss_does_not_take_are_one_line():
    with pytest.raises(ConfigError, match=r"can't be made with train\.loss_options = .*wrong"):
        make_loss("monai.losses:DiceLoss", {"sigmoid": True, "wrong": 1})
    with pytest.raises(ConfigError, match=r"can't be made with train\.loss_options"):
        make_loss("monai.losses:DiceLoss", {"sigmoid": True, "softmax": True})
    with pytest.raises(ConfigError, match="'dice' has none, leave them out"):
        parse({"train": {"loss_options": {"sigmoid": True}}})
    assert isinstance(make_loss("monai.losses:TverskyLoss", {"sigmoid": True}), nn.Module)
