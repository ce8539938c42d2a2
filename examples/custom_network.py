"""A network and a loss of your own. From the repository's root, call either of

    python examples/custom_network.py
    fedce run examples/custom_network.toml

Both commands run the same experiment, to the same bits: 20 rounds, some seconds. Network and loss are named by their
import paths.
"""

from torch import Tensor, nn

import fedce


class DilatedNet(nn.Module):
    """Convolutions at half the size that see further with each layer; gives logits for each class at full size."""

    def __init__(self, n_channels: int = 3, n_classes: int = 2, width: int = 16) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.AvgPool2d(2)]
        for dilation in (1, 2, 4, 8):
            layers += [nn.Conv2d(n_channels, width, 3, padding=dilation, dilation=dilation), nn.BatchNorm2d(width)]
            layers += [nn.ReLU()]
            n_channels = width
        self.layers = nn.Sequential(
            *layers, nn.Conv2d(width, n_classes, 1), nn.Upsample(scale_factor=2, mode="bilinear")
        )

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.layers(images)
        return logits


class TverskyLoss(nn.Module):
    """Dice loss in which a missed pixel costs more than an invented one (Salehi et al., 2017)."""

    def forward(self, logits: Tensor, masks: Tensor) -> Tensor:
        foreground = logits.sigmoid()
        hit = (foreground * masks).sum((2, 3))
        missed, invented = masks.sum((2, 3)) - hit, foreground.sum((2, 3)) - hit
        return 1 - ((hit + 1) / (hit + 0.7 * missed + 0.3 * invented + 1)).mean()


if __name__ == "__main__":
    settings = {
        "recipe": "small",
        "model": {"name": "examples.custom_network:DilatedNet", "options": {"width": 12}},
        "train": {"loss": "examples.custom_network:TverskyLoss", "lr": 1e-2},
    }
    sites = fedce.load_sites("fundus6", scale="tiny")
    result = fedce.run(sites, rounds=20, out="runs/custom-network", replace=True, settings=settings)
    for site, dice in result.dice.items():
        print(f"{site}: Dice {dice:.2f}, contributed {100 * result.contributions[site]:.1f} %")
