"""Recipes fill what nobody wrote; the paper's is D12 and D17, with the authors' network."""

import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from monai.losses import DiceLoss
from torch import nn
from torch.nn import functional as F

from fedce import load_sites, run
from fedce.base.config import Config, dumps, load, parse
from fedce.base.errors import ConfigError
from fedce.base.tables import ModelConfig, TrainConfig
from fedce.learning.learner import Learner
from fedce.learning.networks import build, check_fits

PAPER = parse({"recipe": "paper"})


def test_the_papers_recipe_is_the_papers():  # D12, D17
    train = PAPER.train
    assert (train.optimizer, train.betas, train.lr, train.batch_size) == ("adam", (0.9, 0.99), 1e-3, 8)
    assert (train.epochs, train.loss, train.optimizer_state) == (1, "dice", "persist")
    assert (PAPER.n_rounds, PAPER.data.size, PAPER.data.split) == (200, 256, (0.5, 0.25, 0.25))
    assert (PAPER.model.name, PAPER.model.channels) == ("unet-classic", (32, 64, 128, 256, 512))


def test_the_small_recipe_is_the_defaults():
    assert parse({"recipe": "small"}) == Config() == parse({})


def test_what_a_person_wrote_wins(tmp_path: Path):
    file = tmp_path / "a.toml"
    file.write_text('recipe = "paper"\nrounds = 7\n[model]\nchannels = [8, 16]\n[train]\nlr = 0.1\n')
    config = load(file, {"data.size": 64, "train.epochs": 2})
    assert (config.n_rounds, config.model.channels, config.train.lr) == (7, (8, 16), 0.1)
    assert (config.data.size, config.train.epochs) == (64, 2)
    assert (config.model.name, config.train.batch_size) == ("unet-classic", 8)
    assert load(file, {"recipe": "small"}).model.name == "unet"


def test_a_resolved_experiment_holds_everything(tmp_path: Path):
    written = tomllib.loads(dumps(PAPER))
    assert (written["rounds"], written["data"]["size"], written["model"]["channels"][-1]) == (200, 256, 512)
    (tmp_path / "config.toml").write_text(dumps(PAPER))
    assert load(tmp_path / "config.toml") == PAPER


@pytest.mark.parametrize(
    ("tree", "line"),
    [
        ({"recipe": "papr"}, "recipe: unknown recipe, did you mean 'paper'?; known: plan, small, paper (got 'papr')"),
        ({"recipe": 3}, "recipe: input should be a valid string (got 3)"),
        ({"recipe": "paper", "train": 3}, "train:"),
    ],
)
def test_a_recipe_that_is_not_known_is_one_line(tree, line):
    with pytest.raises(ConfigError) as caught:
        parse(tree)
    assert line in str(caught.value)


@pytest.mark.parametrize(
    ("n_channels", "n_classes", "count"), [(3, 1, 7_763_041), (3, 2, 7_763_074), (1, 1, 7_762_465)]
)
def test_the_papers_network_has_7_76_million_parameters(n_channels: int, n_classes: int, count: int):
    network = build(PAPER.model, n_channels, n_classes, seed=0)
    assert sum(parameter.numel() for parameter in network.parameters()) == count
    check_fits(network, n_channels, n_classes, (32, 64))


def textbook(x: torch.Tensor, weights: list[torch.Tensor], n_levels: int) -> torch.Tensor:
    """The network once more, by torch's functions, in the order in which its parameters stand."""
    down, rest = weights[: 6 * n_levels], weights[6 * n_levels :]
    up, rest = rest[: 2 * (n_levels - 1)], rest[2 * (n_levels - 1) :]
    merge, (last_weight, last_bias) = rest[:-2], rest[-2:]

    def two(x, own):
        for kernel, scale, shift in (own[:3], own[3:]):
            x = F.relu(F.batch_norm(F.conv2d(x, kernel, padding=1), None, None, scale, shift, training=True))
        return x

    passed = []
    for level in range(n_levels):
        x = two(x if level == 0 else F.max_pool2d(x, 2), down[6 * level : 6 * level + 6])
        passed.append(x)
    for i in range(n_levels - 1):
        x = F.conv_transpose2d(x, up[2 * i], up[2 * i + 1], stride=2)
        x = two(torch.cat([x, passed[n_levels - 2 - i]], 1), merge[6 * i : 6 * i + 6])
    return F.conv2d(x, last_weight, last_bias)


def test_a_step_is_that_of_plain_torch():
    """Batch 8, Adam (0.9, 0.99) by hand, MONAI's Dice loss."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 255, (8, 3, 32, 32)).astype(np.uint8)
    masks = (rng.random((8, 2, 32, 32)) > 0.6).astype(np.uint8)
    network = build(PAPER.model, 3, 2, seed=0)
    before = [parameter.detach().clone().requires_grad_() for parameter in network.parameters()]
    ours = Learner(network, PAPER.train, "unit", torch.device("cpu"))
    trained = ours.train(ours.params, ours.batch(pixels, masks), 1, {})
    loss = DiceLoss(sigmoid=True)(textbook(torch.tensor(pixels) / 255, before, 5), torch.tensor(masks).float())
    gradients = torch.autograd.grad(loss, before)
    assert trained.loss == pytest.approx(float(loss.detach()), abs=1e-6)
    after = ours.network.parameters()
    for weight, gradient, now in zip(before, gradients, after, strict=True):
        # Adam's first step: the mean and the square root of the mean square are the gradient and its size.
        expected = weight - 1e-3 * gradient / (gradient.abs() + 1e-8)
        # Where a gradient is next to nothing, rounding decides its sign.
        clear = gradient.abs() > 1e-5
        torch.testing.assert_close(now.detach()[clear], expected.detach()[clear], atol=2e-5, rtol=0)
    assert sum(int((g.abs() > 1e-5).sum()) for g in gradients) > 1_000_000


@pytest.mark.parametrize(
    ("config", "line"),
    [
        (ModelConfig(name="unet-classic", res_units=2), "unet-classic has no residual units"),
        (ModelConfig(name="unet-classic", channels=(4,)), "at least two levels"),
        (
            ModelConfig(name="unet-classic", options={"a": 1}),
            "model.options is for dynunet, segresnet and networks by import path",
        ),
        (ModelConfig(name="unet-clasic"), "did you mean 'unet-classic'?"),
    ],
)
def test_a_classic_network_that_cannot_be_made_is_one_line(config: ModelConfig, line: str):
    with pytest.raises(ConfigError) as caught:
        build(config, 3, 2, 0)
    assert line in str(caught.value)


@pytest.mark.parametrize("norm", ["instance", "group"])
def test_other_norms_take_the_place_of_batch_norm(norm: str):
    network = build(ModelConfig(name="unet-classic", channels=(8, 16), norm=norm), 1, 1, 0)
    kind = {"instance": nn.InstanceNorm2d, "group": nn.GroupNorm}[norm]
    assert sum(isinstance(module, kind) for module in network.modules()) == 6
    Learner(network, TrainConfig(), "unit", torch.device("cpu"))


def test_a_round_with_the_papers_network(tmp_path: Path):
    sites = load_sites("fundus6", scale="tiny", size=32, sites=("site1", "site3"))
    result = run(sites, out=tmp_path / "run", rounds=1, settings={"recipe": "paper", "engine.workers": 1})
    written = tomllib.loads((tmp_path / "run" / "config.toml").read_text())
    assert (written["recipe"], written["model"]["name"], written["rounds"]) == ("paper", "unet-classic", 1)
    assert written["data"]["size"] == 32, "the sites were loaded so"
    assert sum(result.contributions.values()) == pytest.approx(1)
    assert result.values["rounds"] == 1
