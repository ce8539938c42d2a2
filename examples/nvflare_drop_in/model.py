"""A network and three sites' points, to have something to train."""

import torch
from torch import nn


class Points(nn.Module):
    """A small network without arguments, because NVFlare builds a model from its class."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def data_of(part: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points and their class; the last of three sites has another rule in another corner."""
    rng = torch.Generator().manual_seed(part)
    x = torch.randn(60 + 40 * part, 2, generator=rng) + (2.0 if part == 2 else 0.0)
    y = (x[:, 0] * x[:, 1] > 3).float() if part == 2 else (x[:, 0] > 0).float()
    return x, y[:, None]


@torch.inference_mode()
def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    model.eval()
    return float(((model(x) > 0) == (y > 0)).float().mean())
