"""The benchmark of a training step counts its work as torch does."""

import pytest
import torch
from benchmarks.roofline import layers_of, learner_at
from torch import nn
from torch.utils.flop_counter import FlopCounterMode


@pytest.mark.parametrize("size", [(32, 32), (16, 16, 8)])
def test_operations_of_the_convolutions_are_those_that_torch_counts(size):
    learner = learner_at(size)
    images = torch.rand(2, 3, *size)
    layers = layers_of(learner, images)
    with FlopCounterMode(display=False) as counted:
        learner.network(images)
    assert sum(layer.operations for layer in layers) == counted.get_total_flops() > 0
    assert {layer.kind for layer in layers} == {"convolution", "transposed convolution", "batch norm", "PReLU"}
    assert len([layer for layer in layers if isinstance(layer.module, nn.modules.conv._ConvNd)]) == 7
