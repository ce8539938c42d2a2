"""Fused layers and kept memory give what the usual ones give."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from fedce.base.tables import ModelConfig
from fedce.learning.fused import FusedConvolution, fuse
from fedce.learning.networks import build

SIZES = {2: (32, 32), 3: (16, 16, 16)}


def trained(dims: int, norm: str = "batch", res_units: int = 0) -> nn.Module:
    """A network whose norms, biases and slopes are not those that it was built with."""
    network = build(
        ModelConfig(channels=(4, 8, 16), norm=norm, res_units=res_units), 3, 2, 0, SIZES[3] if dims == 3 else None
    )
    torch.manual_seed(0)
    with torch.no_grad():
        for tensor in (*network.parameters(), *network.buffers()):
            if tensor.is_floating_point():
                tensor.add_(0.2 * torch.rand_like(tensor))
    return network.eval()


@pytest.mark.parametrize("res_units", [0, 2])
@pytest.mark.parametrize("dims", [2, 3])
def test_a_fused_network_answers_as_the_usual_one(dims, res_units):
    usual, fused = trained(dims, res_units=res_units), trained(dims, res_units=res_units)
    fuse(fused)
    blocks = [module for module in fused.modules() if isinstance(module, FusedConvolution)]
    assert len(blocks) == sum(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in usual.modules()) > 0
    images = torch.rand(3, 3, *SIZES[dims])
    with torch.inference_mode():
        expected = usual(images)
        torch.testing.assert_close(fused(images), expected, rtol=1e-4, atol=1e-4)
        assert fused(images).std() > 0.01
    assert torch.equal(fused(images), usual(images))  # Outside of scoring, nothing is fused.
    assert fused.state_dict().keys() == usual.state_dict().keys()


def test_a_fused_network_follows_the_model_that_is_loaded():
    fused, other = trained(2), trained(2)
    fuse(fused)
    with torch.no_grad():
        for tensor in (*other.parameters(), *other.buffers()):
            if tensor.is_floating_point():
                tensor.mul_(1.5)
    images = torch.rand(3, 3, *SIZES[2])
    with torch.inference_mode():
        before = fused(images)
        fused.load_state_dict(other.state_dict())
        torch.testing.assert_close(fused(images), other(images), rtol=1e-4, atol=1e-4)
        assert not torch.allclose(fused(images), before)


def test_in_training_nothing_is_fused():
    usual, fused = trained(2).train(), trained(2).train()
    fuse(fused)
    images = torch.rand(3, 3, *SIZES[2])
    assert torch.equal(fused(images), usual(images))


def test_an_instance_norm_is_not_fused():
    network = trained(2, norm="instance")
    fuse(network)
    assert not any(isinstance(module, FusedConvolution) for module in network.modules())


KEPT = """
import resource, sys, torch
from fedce.learning.memory import keep_memory
if {keeps}:
    assert keep_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        torch.ones(12 * 2**20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(min(faults() for _ in range(5)))  # The system may take pages back at any time.
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the GNU C library's malloc")
def test_memory_that_was_freed_is_used_again():
    usual, kept = (
        int(subprocess.run([sys.executable, "-c", KEPT.format(keeps=keeps)], check=True, capture_output=True).stdout)
        for keeps in (False, True)
    )
    assert kept < 10 <= usual
