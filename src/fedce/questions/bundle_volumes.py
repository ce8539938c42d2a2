"""The part of a MONAI bundle's configuration for a network that sees volumes: resampling, windows, and back."""

from typing import Any

from fedce.base.tables import DataConfig
from fedce.learning.batches import WINDOWS_AT_A_TIME

UNIT = "@padded(x) / 255"
ZSCORE = (
    "(@padded(x) / 255 - (x / 255).mean(dim=(1, 2, 3), keepdim=True)) "
    "/ (x / 255).std(dim=(1, 2, 3), correction=0, keepdim=True).clamp(min=1e-6)"
)
"""Mean and deviation are those of the volume without what is padded around it."""


def axes(of_slices: str) -> str:
    """Directions of slices, rows and columns, from those of rows, columns and slices.

    >>> axes("PLS")
    'SPL'
    """
    return of_slices[2] + of_slices[:2]


def steps(data: DataConfig, patch: tuple[int, ...]) -> dict[str, Any]:
    """From a volume (channels, slices, rows, columns) to masks of its size, as 'fedce predict' does it."""
    window = {"_target_": "SlidingWindowInferer", "roi_size": "@patch", "sw_batch_size": WINDOWS_AT_A_TIME}
    return {
        "patch": list(patch),
        "spacing": list(data.spacing) if data.spacing else None,
        # How many voxels a volume has at the network's spacing.
        "target": "$lambda image: [max(1, round(n * mm / to)) for n, mm, to in "
        "zip(image.shape[1:], image.pixdim.tolist(), @spacing or image.pixdim.tolist())]",
        "resampled": "$lambda x, size: x if list(x.shape[1:]) == size else "
        "monai.transforms.Resize(size, mode='trilinear', anti_aliasing=True)(x).clamp(0, 255).round()",
        # A volume that is smaller than a window lies in its middle.
        "bars": "$lambda size: [max(p - n, 0) // 2 for n, p in zip(size, @patch)]",
        "around": "$lambda size: [width for n, p, bar in reversed(list(zip(size, @patch, @bars(size)))) "
        "for width in (bar, max(p - n, 0) - bar)]",
        "padded": "$lambda x: torch.nn.functional.pad(x, @around(x.shape[1:]))",
        "inside": "$lambda y, size: y[(slice(None), *(slice(bar, bar + n) for bar, n in zip(@bars(size), size)))]",
        "normalise": f"$lambda x: {UNIT if data.normalize == 'unit' else ZSCORE}",
        "inferer": {**window, "overlap": data.overlap, "mode": "gaussian"},
        "logits": "$lambda x: @inferer(@normalise(x)[None].to(@device), @network)[0].cpu()",
        "found": "$lambda x: (@inside(@logits(x), x.shape[1:]) > 0).float()",
        "masks": "$lambda image: torch.nn.functional.interpolate("
        "@found(@resampled(@plain(image), @target(image)))[None], size=list(image.shape[1:]), mode='nearest-exact')[0]",
    }
