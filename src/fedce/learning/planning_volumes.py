"""What a plan says of volumes: whether the network sees them as volumes, at which spacing, and in which patches."""

from collections.abc import Mapping, Sequence
from math import prod
from statistics import median
from typing import Any

from fedce.base.recipes import value_at
from fedce.base.tables import DataConfig
from fedce.data.fingerprint import Fingerprint
from fedce.data.shape import Patch, Spacing, in_words, resampled_shape, spacing_of, strides_of
from fedce.learning.chosen import Chosen

ENOUGH_SLICES = 16
"""Volumes with fewer slices are trained slice by slice: a network could hardly halve them."""
MOST_VOXELS = 32 * 96 * 96
"""Voxels of a patch; larger ones take hours on a computer without a GPU."""
MOST_PATCHES = 4
"""A patch shows at least 1 / MOST_PATCHES of the median volume: less shows too little around (nnU-Net)."""
FINER, NEARLY_FINEST = 1.03, 1.5
"""Axes whose voxels are less than NEARLY_FINEST times as long as the shortest are made coarser by FINER at a time."""
STEP, LONG, LONG_STEP = 8, 64, 16
"""Sides of a patch are multiples of STEP, from LONG voxels on of LONG_STEP, so that the network can halve them."""
DEEPEST = 6
"""The longest side of the deepest level has at least this many voxels."""
NETWORKS_3D = (None, "unet", "dynunet", "segresnet")
BATCH = 2
FEWEST_ROUNDS = 40


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
    z, y, x = (float(median(axis)) for axis in zip(*known, strict=True))
    used = _coarse_enough(sites, (z, y, x))
    reason = f"the sites' median: {_in_words((z, y, x))}"
    if used != (z, y, x):
        reason += f"; coarser, so that a patch shows at least 1 / {MOST_PATCHES} of the median volume"
    return Chosen("data.spacing", [round(mm, 2) for mm in used], reason)


def _in_words(spacing: Spacing) -> str:
    return f"{' x '.join(f'{mm:g}' for mm in spacing)} mm between slices, rows and columns"


def _coarse_enough(sites: Sequence[Fingerprint], spacing: Spacing) -> Spacing:
    """The spacing, or a coarser one of its finest axes with which the median volume has few enough voxels."""
    while prod(_median_shape(sites, spacing)) > MOST_PATCHES * MOST_VOXELS:
        finest = min(spacing)
        z, y, x = (mm * FINER if mm < NEARLY_FINEST * finest else mm for mm in spacing)
        spacing = (z, y, x)
    return spacing


def _median_shape(sites: Sequence[Fingerprint], spacing: Spacing) -> list[int]:
    return [int(median(axis)) for axis in zip(*(_shape_at(site, spacing) for site in sites), strict=True)]


def _patch(sites: Sequence[Fingerprint], spacing: Spacing) -> Chosen:
    whole = _median_shape(sites, spacing)
    patch = fitting(whole)
    why = f"the median volume has {in_words(whole)} at this spacing"
    if prod(whole) > MOST_VOXELS:
        why += f"; patches of more than {MOST_VOXELS:,} voxels take hours without a GPU"
    return Chosen(
        "data.patch", list(patch), f"{why}; multiples of {STEP} or {LONG_STEP}, so that the network can halve them"
    )


def _shape_at(site: Fingerprint, spacing: Spacing) -> Patch:
    assert site.volumes is not None
    own = (site.volumes.depths[1], site.heights[1], site.widths[1])
    return resampled_shape(own, site.spacing or spacing, spacing)


def fitting(whole: Sequence[int]) -> Patch:
    """The largest patch within a volume and MOST_VOXELS: the longest side is shortened first.

    >>> fitting([24, 48, 48]), fitting([40, 320, 320])
    ((24, 48, 48), (40, 80, 80))
    """
    sides = [_whole_steps(side) for side in whole]
    while prod(sides) > MOST_VOXELS:
        longest = max(range(3), key=lambda axis: sides[axis])
        sides[longest] = _whole_steps(sides[longest] - STEP)
    slices, rows, columns = sides
    return slices, rows, columns


def _whole_steps(side: int) -> int:
    """The side, down to a multiple of STEP, or of LONG_STEP where it is long: it is then halved more often."""
    step = LONG_STEP if side >= LONG else STEP
    return max(STEP, side // step * step)


def halvings(patch: Sequence[int]) -> tuple[int, tuple[int, ...]]:
    """How often the network halves a patch, until its longest side has DEEPEST to twice DEEPEST voxels; what is left.

    >>> halvings((24, 48, 48)), halvings((16, 128, 128))
    ((3, (3, 6, 6)), (4, (4, 8, 8)))
    """
    n, left = 0, tuple(patch)
    while max(left) >= 2 * DEEPEST and max(step := strides_of(left, 1)[0]) == 2:
        n, left = n + 1, tuple(side // by for side, by in zip(left, step, strict=True))
    return max(n, 1), left


def n_windows(site: Fingerprint, data: DataConfig, patch: Patch) -> float:
    """Windows that the median volume of a site takes, by its size alone."""
    shape, to = _shape_at(site, spacing_of(data) or site.spacing or (1.0, 1.0, 1.0)), 1 - data.overlap
    return prod(max(1.0, 1 + (n - p) / (p * to)) for n, p in zip(shape, patch, strict=True))
