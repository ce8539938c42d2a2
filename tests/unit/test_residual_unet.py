"""The U-Net of the plan: MONAI's, but its logits come straight from a convolution."""

import pytest
import torch
from monai.networks.nets import UNet
from torch import nn

from fedce.base.tables import ModelConfig
from fedce.learning.networks import build

OURS = ModelConfig(channels=(4, 8, 16), res_units=2)


def test_without_residual_units_it_is_monais_u_net():
    ours = build(OURS.model_copy(update={"res_units": 0}), 3, 2, 0)
    theirs = UNet(2, 3, 2, channels=(4, 8, 16), strides=(2, 2), norm="batch")
    theirs.load_state_dict(ours.state_dict())
    images = torch.rand(2, 3, 16, 16)
    assert torch.equal(ours(images), theirs(images))


@pytest.mark.parametrize("norm", ["batch", "instance"])
def test_no_norm_stands_between_the_features_and_the_logits(norm):
    """MONAI's last level normalises one channel for each class before its residual unit."""
    last = list(build(OURS.model_copy(update={"norm": norm}), 3, 2, 0).model)[-1]
    theirs = list(UNet(2, 3, 2, channels=(4, 8, 16), strides=(2, 2), num_res_units=2, norm=norm).model)[-1]
    assert [type(module) for module in last.modules()][1:] == [nn.ConvTranspose2d]
    assert any(isinstance(module, nn.BatchNorm2d | nn.InstanceNorm2d) for module in theirs.modules())


def test_its_other_levels_have_residual_units():
    def n_weights(res_units):
        network = build(OURS.model_copy(update={"res_units": res_units}), 3, 2, 0)
        return sum(parameter.numel() for parameter in network.parameters())

    assert n_weights(0) < n_weights(1) < n_weights(2)
