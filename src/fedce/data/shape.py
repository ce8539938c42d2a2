"""2-D or 3-D: the one place that knows what the network sees of a site's pictures.

Pictures are always stored as rows of 2-D images; the slices of a volume are rows with one item number. With
`data.dims = 2` the network sees rows. With `data.dims = 3` it sees patches of stacks, and a stack is all rows of a
volume. Splits, cases, pictures in reports and counted pixels therefore work the same for both.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedce.base.errors import DataError
from fedce.base.tables import OF_VOLUMES, DataConfig
from fedce.data import synthetic
from fedce.data.volumes import MAX_VOXELS

Rows = NDArray[np.int64]
Patch = tuple[int, int, int]
"""Slices, rows and columns."""
Spacing = tuple[float, float, float]
"""Millimetres between slices, rows and columns."""
PATCH: Patch = (32, 64, 64)
SMALLEST_MAP = 3
"""Voxels a side that a network's deepest level must still have."""


def patch_of(config: DataConfig) -> Patch | None:
    """What the network sees of a volume at a time; None if it sees 2-D images."""
    if config.dims == 2:
        return None
    if config.patch is None and config.source in OF_VOLUMES:
        return synthetic.SHAPE
    return config.patch or PATCH


def spacing_of(config: DataConfig) -> Spacing | None:
    """The distance of voxels to which volumes are resampled; None: they stay as they are."""
    if config.dims == 3 and config.spacing is None and config.source in OF_VOLUMES:
        return synthetic.SPACING
    return config.spacing


def counted_as(config: DataConfig) -> str:
    """What a site's data are counted in: volumes if the network sees volumes, otherwise images (slices among them)."""
    return "volumes" if config.dims == 3 else "images"


def settled(config: DataConfig) -> DataConfig:
    """The same for another source: what a built-in federation implies for volumes is stated."""
    return config.model_copy(update={"patch": patch_of(config), "spacing": spacing_of(config)})


def in_words(spatial: Sequence[int]) -> str:
    """The size of an image as width x height; of a volume or patch in the order of `data.patch`, slices first.

    >>> in_words((48, 64)), in_words((24, 48, 48))
    ('64x48 pixels', '24x48x48 voxels')
    """
    if len(spatial) == 2:
        height, width = spatial
        return f"{width}x{height} pixels"
    return f"{'x'.join(map(str, spatial))} voxels"


def resampled_shape(shape: tuple[int, int, int], spacing: Spacing, to: Spacing) -> tuple[int, int, int]:
    """The voxels along each axis after resampling.

    >>> resampled_shape((12, 48, 48), (6.0, 1.5, 1.5), (3.0, 1.5, 1.5))
    (24, 48, 48)
    """
    slices, rows, columns = (max(1, round(n * a / b)) for n, a, b in zip(shape, spacing, to, strict=True))
    return slices, rows, columns


def check_resampled(shape: tuple[int, int, int], spacing: Spacing, to: Spacing | None, path: Path) -> None:
    """Refuse a spacing at which a volume would have more voxels than are read."""
    found = resampled_shape(shape, spacing, to) if to else shape
    if prod(found) > MAX_VOXELS:
        mm = " x ".join(f"{one:g}" for one in to or spacing)
        raise DataError(
            f"{path} would have {in_words(found)} at data.spacing = {mm} mm, and at most {MAX_VOXELS} are possible; "
            "set it higher",
            "volumes have too many voxels at data.spacing",
        )


def strides_of(size: Sequence[int], n_levels: int) -> list[tuple[int, ...]]:
    """By how much each level of a network divides each axis: an axis that has become short or odd is left as it is.

    >>> strides_of((16, 96, 96), 4)
    [(2, 2, 2), (2, 2, 2), (1, 2, 2), (1, 2, 2)]
    """
    sides, found = list(size), []
    for _ in range(n_levels):
        step = tuple(2 if side % 2 == 0 and side // 2 >= SMALLEST_MAP else 1 for side in sides)
        sides = [side // by for side, by in zip(sides, step, strict=True)]
        found.append(step)
    return found


@dataclass(frozen=True)
class Stack:
    """A volume: its slices, from the first to the last, and what of their rows and columns is not padding."""

    rows: Rows
    height: int
    width: int

    def of(self, array: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The volume's part, (slices, channels, height, width), of all rows; not copied if the slices lie together."""
        together = len(self.rows) == self.rows[-1] - self.rows[0] + 1
        found = array[self.rows[0] : self.rows[-1] + 1] if together else array[self.rows]
        return found[:, :, : self.height, : self.width]


def stacks(rows: Rows, items: Sequence[int], filled: Sequence[tuple[int, int]]) -> list[Stack]:
    """The volumes of some rows in their order; `items` and `filled` are of all rows."""
    by_item: dict[int, list[int]] = {}
    for row in rows.tolist():
        by_item.setdefault(items[row], []).append(row)
    return [Stack(np.array(own, np.int64), *filled[own[0]]) for own in by_item.values()]
