"""The classic U-Net, as the paper's authors train it (D17): 7.76 million parameters with 32 to 512 features."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

Norm = Callable[[int], nn.Module]
"""Makes the normalisation layer of a level with this number of features."""


def two_convolutions(n_in: int, n_out: int, norm: Norm) -> nn.Sequential:
    """Two convolutions, each with a norm; they have no bias, because a norm removes the mean."""
    return nn.Sequential(
        *(nn.Conv2d(n_in, n_out, 3, padding=1, bias=False), norm(n_out), nn.ReLU(inplace=True)),
        *(nn.Conv2d(n_out, n_out, 3, padding=1, bias=False), norm(n_out), nn.ReLU(inplace=True)),
    )


class ClassicUNet(nn.Module):
    """Two convolutions a level, max pooling on the way down, transposed convolutions on the way up; gives logits."""

    def __init__(self, n_channels: int, n_classes: int, features: Sequence[int], norm: Norm) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            two_convolutions(n_in, n_out, norm) for n_in, n_out in pairwise((n_channels, *features))
        )
        upwards = list(pairwise(reversed(features)))
        self.up = nn.ModuleList(nn.ConvTranspose2d(low, high, 2, stride=2) for low, high in upwards)
        self.merge = nn.ModuleList(two_convolutions(2 * high, high, norm) for _, high in upwards)
        self.pool = nn.MaxPool2d(2)
        self.last = nn.Conv2d(features[0], n_classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        x, passed = images, list[Tensor]()
        for level, convolve in enumerate(self.down):
            x = convolve(self.pool(x) if level else x)
            passed.append(x)
        passed.pop()
        for widen, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([widen(x), passed.pop()], dim=1))
        logits: Tensor = self.last(x)
        return logits
