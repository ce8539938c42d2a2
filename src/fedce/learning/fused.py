"""Convolution, norm and activation in one pass over the images, for scoring.

In scoring, a batch norm is a fixed scale and shift of each channel, so it can be a part of the convolution's weights.
oneDNN then applies the activation while the convolution's result is still in the cache. This rounds differently from
three separate layers; the result depends neither on the engine nor on the number of workers.
"""

import torch
from monai.networks.blocks import Convolution
from torch import Tensor, nn

TRANSPOSED = (nn.ConvTranspose2d, nn.ConvTranspose3d)
CONVOLUTIONS = (nn.Conv2d, nn.Conv3d, *TRANSPOSED)


class FusedConvolution(Convolution):  # type: ignore[misc]
    """MONAI's block of convolution, batch norm and PReLU: one operation in scoring, and as usual in training."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training or not torch.is_inference_mode_enabled() or x.device.type != "cpu" or x.dtype != torch.float32:
            made: Tensor = super().forward(x)
            return made
        conv, norm, slope = self.conv, self.adn.N, float(self.adn.A.weight)
        scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
        shift = norm.bias - norm.running_mean * scale
        shift = shift if conv.bias is None else shift + conv.bias * scale
        around, rest = conv.padding, (conv.stride, conv.dilation, conv.groups, "leaky_relu", [slope], None)
        if isinstance(conv, TRANSPOSED):
            weight = conv.weight * _along(scale, 1, conv.weight.ndim)
            fused: Tensor = torch.ops.mkldnn._convolution_transpose_pointwise(
                x, weight, shift, around, conv.output_padding, *rest
            )
        else:
            weight = conv.weight * _along(scale, 0, conv.weight.ndim)
            fused = torch.ops.mkldnn._convolution_pointwise(x, weight, shift, around, *rest)
        return fused


def _along(values: Tensor, axis: int, ndim: int) -> Tensor:
    return values.view([-1 if i == axis else 1 for i in range(ndim)])


def fuse(network: nn.Module) -> None:
    """Let those blocks of the network that can be fused be one operation in scoring."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return
    for module in network.modules():
        if type(module) is Convolution and _can_be_fused(module):
            module.__class__ = FusedConvolution


def _can_be_fused(block: Convolution) -> bool:
    if type(block.conv) not in CONVOLUTIONS or block.conv.padding_mode != "zeros" or not hasattr(block, "adn"):
        return False
    layers = dict(block.adn.named_children())
    norm, act = layers.get("N"), layers.get("A")
    return (
        "".join(layers) in ("NA", "NDA")
        and isinstance(norm, nn.modules.batchnorm._BatchNorm)
        and norm.affine
        and norm.track_running_stats
        and isinstance(act, nn.PReLU)
        and act.num_parameters == 1
        and block.conv.groups == 1
    )
