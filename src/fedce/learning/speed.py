"""Ways around slow paths of torch that do not change what is computed."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

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


class _Prelu(torch.autograd.Function):
    """PReLU with one slope for all channels, by torch's vectorised kernels of the leaky ReLU."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        ctx.slope, ctx.shape = float(slope), slope.shape
        return functional.leaky_relu(x, ctx.slope)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        (x,), (gradient,) = ctx.saved_tensors, gradients
        into_x = torch.ops.aten.leaky_relu_backward(gradient, x, ctx.slope, False)
        return into_x, x.clamp_max(0).mul_(gradient).sum().reshape(ctx.shape)


class QuickPrelu(nn.PReLU):
    """PReLU whose backward pass takes a third of the time of torch's, which is not vectorised; the same bits."""

    def forward(self, input: Tensor) -> Tensor:
        if input.device.type != "cpu" or input.dtype != torch.float32:
            return super().forward(input)
        made: Tensor = _Prelu.apply(input, self.weight)  # type: ignore[no-untyped-call]
        return made


def speed_up(network: nn.Module) -> torch.memory_format:
    """Speed up slow layers in place; returns the memory format that the network's images should have.

    Channels last is a tenth faster for a 2-D U-Net. A user's own network keeps the usual format, because it may reshape
    its input in a way that only this format allows.
    """
    from monai.networks.nets import UNet

    from fedce.learning.fused import fuse

    fuse(network)
    for module in network.modules():
        if type(module) is nn.ConvTranspose2d and module.out_channels <= NARROW:
            module.__class__ = NarrowUpsampling
        if type(module) is nn.ConvTranspose3d and module.out_channels <= NARROW:
            module.__class__ = NarrowUpsampling3d
        if type(module) is nn.PReLU and module.num_parameters == 1:
            module.__class__ = QuickPrelu
    is_2d_unet = isinstance(network, ClassicUNet) or (isinstance(network, UNet) and network.dimensions == 2)
    return torch.channels_last if is_2d_unet else torch.contiguous_format


def without_compiler(kind: type[torch.optim.Optimizer]) -> type[torch.optim.Optimizer]:
    """The same optimizer, without the call that tells torch's compiler to skip it.

    That call imports the compiler: some 800 modules and a second in every process.
    """
    step, add = inspect.unwrap(kind.step), inspect.unwrap(kind.add_param_group)
    return type(kind.__name__, (kind,), {"step": torch.no_grad()(step), "add_param_group": add})
