"""Ways around slow paths of torch that change neither what is computed nor, in 2-D, its bits."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fedce.learning.classic_unet import ClassicUNet

NARROW = 4
"""A transposed convolution to at most this many channels, such as a U-Net's last one, is slow in oneDNN."""


@contextmanager
def _without_onednn() -> Iterator[None]:
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = before


class NarrowUpsampling(nn.ConvTranspose2d):
    """A transposed convolution by torch's own kernel: to two channels it takes a fifth of oneDNN's time."""

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        with _without_onednn():
            return super().forward(input, output_size)


class NarrowUpsampling3d(nn.ConvTranspose3d):
    """The same for volumes, where it takes half of oneDNN's time."""

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        with _without_onednn():
            return super().forward(input, output_size)


def speed_up(network: nn.Module) -> torch.memory_format:
    """Speed up narrow upsampling in place; returns the memory format that the network's images should have.

    Channels last is a tenth faster for a 2-D U-Net. A user's own network keeps the usual format, because it may reshape
    its input in a way that only this format allows.
    """
    from monai.networks.nets import UNet

    for module in network.modules():
        if type(module) is nn.ConvTranspose2d and module.out_channels <= NARROW:
            module.__class__ = NarrowUpsampling
        if type(module) is nn.ConvTranspose3d and module.out_channels <= NARROW:
            module.__class__ = NarrowUpsampling3d
    is_2d_unet = isinstance(network, ClassicUNet) or (isinstance(network, UNet) and network.dimensions == 2)
    return torch.channels_last if is_2d_unet else torch.contiguous_format


def without_compiler(kind: type[torch.optim.Optimizer]) -> type[torch.optim.Optimizer]:
    """The same optimizer, without the call that tells torch's compiler to skip it.

    That call imports the compiler: some 800 modules and a second in every process.
    """
    step, add = inspect.unwrap(kind.step), inspect.unwrap(kind.add_param_group)
    return type(kind.__name__, (kind,), {"step": torch.no_grad()(step), "add_param_group": add})
