"""A site's work, the same for every contestant but fedce: read images, train for an epoch, score a model.

Written as in a user's own script: PIL, MONAI's loss, torch's Adam, state dicts; the network is that of fedce.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from benchmarks.contestants.given import Job
from monai.losses import DiceLoss
from PIL import Image
from torch import Tensor, nn

from fedce.learning.residual_unet import ResidualUNet

State = Mapping[str, Tensor]
BATCH, SCORING_BATCH = 8, 32
loss_of = DiceLoss(sigmoid=True)


@dataclass(frozen=True)
class Part:
    """Images and masks of one split, as bytes."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True)
class Site:
    train: Part
    validation: Part
    test: Part


@cache
def read(folder: Path, n_train: int) -> Site:
    """A site's images by name: the first train, the others validate and test in halves."""
    images, masks = (
        [torch.from_numpy(np.array(Image.open(path))) for path in sorted((folder / part).iterdir())]
        for part in ("images", "masks")
    )
    x, y = torch.stack(images).permute(0, 3, 1, 2).contiguous(), torch.stack(masks).unsqueeze(1) > 0
    n_other = (len(x) - n_train) // 2
    sizes = [n_train, n_other, n_other]
    return Site(*map(Part, x.split(sizes), y.split(sizes)))


def options(job: Job) -> dict[str, object]:
    """Arguments of the U-Net that fedce trains."""
    return {
        "spatial_dims": 2,
        "in_channels": 3,
        "out_channels": 1,
        "channels": list(job.channels),
        "strides": [2] * (len(job.channels) - 1),
        "num_res_units": job.res_units,
        "norm": "batch",
    }


def network(job: Job) -> nn.Module:
    torch.manual_seed(0)
    return ResidualUNet(**options(job))


@cache
def network_of_process(job: Job) -> nn.Module:
    """The sites of this process, for engines that use a process for one site after another."""
    return network(job)


def adam(model: nn.Module) -> torch.optim.Adam:
    return torch.optim.Adam(model.parameters(), 1e-3, (0.9, 0.99))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, part: Part) -> dict[str, float]:
    """One epoch; returns its steps and mean loss."""
    model.train()
    batches, total = torch.randperm(len(part)).split(BATCH), torch.zeros(())
    for rows in batches:
        optimizer.zero_grad()
        loss = loss_of(model(part.x[rows].float() / 255), part.y[rows].float())
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return {"steps": len(batches), "loss": total.item() / len(batches)}


@torch.inference_mode()
def score(model: nn.Module, part: Part) -> float:
    """Mean Dice."""
    model.eval()
    scores = []
    for x, y in zip(part.x.split(SCORING_BATCH), part.y.split(SCORING_BATCH), strict=True):
        found = model(x.float() / 255) > 0
        overlap, total = (found & y).flatten(1).sum(1), found.flatten(1).sum(1) + y.flatten(1).sum(1)
        scores.append(torch.where(total == 0, 1.0, 2.0 * overlap / total.clamp(min=1)))
    return torch.cat(scores).mean().item()


def without(w: State, own: State, rho: float) -> dict[str, Tensor]:
    """The model without the site's own part."""
    return {
        key: (value - rho * own[key]) / (1 - rho) if value.is_floating_point() else value for key, value in w.items()
    }
