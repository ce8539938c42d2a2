"""A trained network as a torch module that takes images as they are: it normalises, pads and crops by itself."""

import torch
from torch import Tensor, nn

from fedce.learning.batches import Normalize, Windows, to_input
from fedce.learning.losses import heads_of
from fedce.learning.networks import Fitted, fitted


class Segmenter(nn.Module):
    """A network that takes grey values from 0 to 255, and gives logits: a class is where its logit is above 0.

    Images are (n, channels, height, width), at the size of the training; volumes are (n, channels, slices, rows,
    columns), at the spacing of the training and of any size. `network` is the network alone, for normalised values.

    >>> model = Segmenter(nn.Conv2d(3, 2, 1), "zscore").eval()
    >>> with torch.inference_mode():
    ...     masks = model(torch.zeros(4, 3, 48, 48, dtype=torch.uint8)) > 0
    >>> masks.shape
    torch.Size([4, 2, 48, 48])
    """

    def __init__(self, network: nn.Module, normalize: Normalize, windows: Windows | None = None) -> None:
        super().__init__()
        self.network = network
        self.normalize: Normalize = normalize
        self.windows = windows
        self._fits: dict[tuple[int, ...], Fitted] = {}

    def forward(self, images: Tensor) -> Tensor:
        unit = images.float() / 255.0
        if self.windows is None:
            return self._logits(to_input(unit, self.normalize))
        mean = unit.mean((2, 3, 4), keepdim=True)
        deviation = (unit - mean).square().mean((2, 3, 4), keepdim=True).sqrt()
        # A volume that is smaller than a window lies in its middle, with black around.
        size = tuple(unit.shape[2:])
        around = Fitted(size, tuple(max(n, p) for n, p in zip(size, self.windows.patch, strict=True)))
        normalised = to_input(around.padded(unit), self.normalize, torch.stack([mean, deviation]))
        logits: Tensor = self.windows.inferer(normalised, self._logits)
        return around.cropped(logits)

    def _logits(self, normalised: Tensor) -> Tensor:
        size = tuple(normalised.shape[2:])
        if size not in self._fits:
            self._fits[size] = fitted(self.network, normalised.shape[1], size, normalised.device)
        fit = self._fits[size]
        return fit.cropped(heads_of(self.network(fit.padded(normalised)), len(size))[0])
