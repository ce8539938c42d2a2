"""What a plan says of volumes: whether the network sees them as volumes, at which spacing, and in which patches."""

from collections.abc import Mapping, Sequence
from math import prod
from statistics import median
from typing import Any

from fedce.base.recipes import value_at
from fedce.base.tables import DataConfig
from fedce.data.fingerprint import Fingerprint
from fedce.data.shape import Patch, Spacing, in_words, resampled_shape, spacing_of
from fedce.learning.chosen import Chosen

ENOUGH_SLICES = 16
"""Volumes with fewer slices are trained slice by slice: a network could hardly halve them."""
MOST_VOXELS = 32 * 96 * 96
"""Voxels of a patch; larger ones take hours on a computer without a GPU."""
STEP = 8
"""Sides of a patch are multiples of this, so that three levels can halve them."""
SMALLEST_MAP = 3
"""Voxels a side that the network's deepest level must still have."""
NETWORKS_3D = (None, "unet", "dynunet", "segresnet")
BATCH = 2


def as_volumes(sites: Sequence[Fingerprint], stated: Mapping[str, Any]) -> bool:
    """Whether a plan trains on volumes: somebody asked for it, or every site has volumes with enough slices."""
    if (asked := value_at(stated, "data.dims")) is not None:
        return bool(asked == 3)
    if value_at(stated, "data.size") is not None or value_at(stated, "model.name") not in NETWORKS_3D:
        return False
    return all(site.volumes is not None and site.volumes.depths[1] >= ENOUGH_SLICES for site in sites)


def chosen_for(sites: Sequence[Fingerprint], stated: Mapping[str, Any]) -> list[Chosen]:
    """dims, spacing and patch, each with its reason; all sites have volumes."""
    fewest = min(sites, key=lambda site: site.volumes.depths[1] if site.volumes else 0)
    slices = fewest.volumes.depths[1] if fewest.volumes else 0
    dims = Chosen("data.dims", 3, f"every site has volumes; those of {fewest.site} have {slices} slices (median)")
    spacing = _spacing(sites)
    used = tuple(value_at(stated, "data.spacing") or spacing.value)
    return [dims, spacing, _patch(sites, used)]


def _spacing(sites: Sequence[Fingerprint]) -> Chosen:
    known = [site.spacing for site in sites if site.spacing is not None]
    middle = [round(float(median(axis)), 2) for axis in zip(*known, strict=True)]
    told = " x ".join(f"{mm:g}" for mm in reversed(middle))
    return Chosen("data.spacing", middle, f"the sites' median: {told} mm for columns, rows and slices")


def _patch(sites: Sequence[Fingerprint], spacing: Spacing) -> Chosen:
    shapes = [_shape_at(site, spacing) for site in sites]
    whole = [int(median(axis)) for axis in zip(*shapes, strict=True)]
    patch = fitting(whole)
    why = f"the median volume has {in_words(whole)} at this spacing"
    if prod(whole) > MOST_VOXELS:
        why += f"; patches of more than {MOST_VOXELS:,} voxels take hours without a GPU"
    return Chosen("data.patch", list(patch), f"{why}; multiples of {STEP}, so that the network can halve them")


def _shape_at(site: Fingerprint, spacing: Spacing) -> Patch:
    assert site.volumes is not None
    own = (site.volumes.depths[1], site.heights[1], site.widths[1])
    return resampled_shape(own, site.spacing or spacing, spacing)


def fitting(whole: Sequence[int]) -> Patch:
    """The largest patch within a volume and MOST_VOXELS: the longest side is shortened first.

    >>> fitting([24, 48, 48]), fitting([40, 320, 320])
    ((24, 48, 48), (40, 80, 88))
    """
    sides = [max(STEP, side // STEP * STEP) for side in whole]
    while prod(sides) > MOST_VOXELS:
        longest = max(range(3), key=lambda axis: sides[axis])
        sides[longest] -= STEP
    slices, rows, columns = sides
    return slices, rows, columns


def halvings(patch: Sequence[int]) -> int:
    """How often the network halves a patch: never into half a voxel, and not below SMALLEST_MAP."""
    able = (n for n in range(1, 6) if all(side % 2**n == 0 and side // 2**n >= SMALLEST_MAP for side in patch))
    return max(able, default=1)


def n_windows(site: Fingerprint, data: DataConfig, patch: Patch) -> float:
    """Windows that the median volume of a site takes, by its size alone."""
    shape, to = _shape_at(site, spacing_of(data) or site.spacing or (1.0, 1.0, 1.0)), 1 - data.overlap
    return prod(max(1.0, 1 + (n - p) / (p * to)) for n, p in zip(shape, patch, strict=True))
