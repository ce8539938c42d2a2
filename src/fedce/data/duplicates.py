"""Near-duplicates: images of different cases that show one scene, and should not be in two splits."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedce.data.likeness import BLOCK, Details, Rows, close_likeness, coarse, coarse_likeness, details, layouts
from fedce.data.site import SiteData, Sites
from fedce.data.splits import joined

N_NEAREST = 6
"""The close comparison takes this many images for each image: those most alike at the quick comparison."""
N_MIRRORED = 2
"""The close comparison takes this many mirrored images for each image, chosen like the `N_NEAREST`."""
N_USUAL = 400
"""About this many pairs are compared to know how alike two images of a site usually are."""
FEWEST_IMAGES = 20
"""A site with fewer images does not show how alike its images usually are."""
ENOUGH = 0.8
"""Two images with at least this likeness of details are near-duplicates; docs/data.md says how limits were chosen."""
UNUSUAL, LEAST = 6.0, 0.6
"""Within a site less is enough: UNUSUAL spreads above the site's usual likeness, and at least LEAST."""
UNUSUAL_TOGETHER, UNUSUAL_WHOLE, WHOLE = 4.0, 2.0, 0.94
"""UNUSUAL_TOGETHER spreads are enough for images that are also alike as a whole: by UNUSUAL_WHOLE spreads and WHOLE."""
QUARTILE = 0.6745
"""Standard deviations from a normal distribution's median to its upper quartile."""


@dataclass(frozen=True)
class Picture:
    """One image of one site."""

    site: str
    row: int
    file: str
    group_name: str
    """The image's name in data.groups: site/file; for a slice, the file of its volume."""
    part: str
    """train, validation or test."""


@dataclass(frozen=True)
class Level:
    """How alike two images of different cases of one site usually are."""

    median: float
    spread: float
    """Spread of the upper half, as a standard deviation."""

    @classmethod
    def of(cls, likeness: NDArray[np.float32]) -> "Level":
        median, upper = np.percentile(likeness, (50, 75))
        return cls(float(median), float(upper - median) / QUARTILE)

    def above(self, n_spreads: float) -> float:
        return self.median + n_spreads * self.spread


@dataclass(frozen=True)
class Usual:
    """How alike a site's images usually are, and from what likeness on two of them are near-duplicates."""

    site: str
    n_images: int
    """Images with details that can be compared."""
    n_without_details: int
    """Images that are blank, black or tiny, and are not compared."""
    details: Level | None
    """Likeness of details; None if the site has too few images to know. `whole` likewise."""
    whole: Level | None

    @property
    def limit(self) -> float:
        """The likeness of details from which two images of this site are near-duplicates."""
        return float(np.clip(self.details.above(UNUSUAL), LEAST, ENOUGH)) if self.details else ENOUGH

    def is_unusual(self, alike: float, whole: float) -> bool:
        if not (self.details and self.whole):
            return False
        together = alike >= self.details.above(UNUSUAL_TOGETHER)
        return alike >= self.limit or (together and whole >= max(WHOLE, self.whole.above(UNUSUAL_WHOLE)))

    def as_dict(self) -> dict[str, Any]:
        counts = {"images": self.n_images, "without_details": self.n_without_details}
        usual, spread = (self.details.median, self.details.spread) if self.details else (None, None)
        return {"site": self.site, **counts, "usual": usual, "spread": spread, "limit": self.limit}


@dataclass(frozen=True)
class Duplicate:
    """Two cases that show nearly the same, by those two of their images that are most alike."""

    similarity: float
    """Likeness of the two images' details, at most 1."""
    whole: float
    """Likeness of the two images as a whole, at most 1."""
    mirrored: bool
    """Whether one is like the other's mirror image."""
    one: Picture
    other: Picture

    @property
    def across_sites(self) -> bool:
        return self.one.site != self.other.site

    @property
    def across_splits(self) -> bool:
        return self.one.part != self.other.part

    @property
    def group(self) -> tuple[str, str] | None:
        """The pair as an entry of data.groups; None across sites, because each site has a split of its own."""
        return None if self.across_sites else (self.one.group_name, self.other.group_name)

    def as_dict(self) -> dict[str, Any]:
        pair = (self.one, self.other)
        return {
            "similarity": round(self.similarity, 4),
            "whole": round(self.whole, 4),
            "mirrored": self.mirrored,
            "sites": [picture.site for picture in pair],
            "files": [picture.file for picture in pair],
            "splits": [picture.part for picture in pair],
            "group": self.group,
        }


@dataclass(frozen=True)
class Duplicates:
    """The near-duplicates of a federation, and the usual likeness that they were judged by."""

    pairs: tuple[Duplicate, ...]
    """Most alike first."""
    usual: tuple[Usual, ...]
    """One entry for each site."""


def find_duplicates(sites: Sites) -> Duplicates:
    """Pairs of near-duplicates in one site and across sites.

    Images of one case are not compared. Slices of a volume are compared only if something is marked in them: slices
    at the ends of the body look alike in all patients.
    """
    compared = _Compared.of(sites)
    usual = tuple(_usual(compared, number, site.name) for number, site in enumerate(sites))
    likely = _likely_pairs(compared)
    pictures = [picture for site in sites for picture in _pictures(site)]
    best: dict[frozenset[int], Duplicate] = {}
    for k in np.lexsort((likely.other, likely.one, -likely.likeness)):
        i, j, mirrored = int(likely.one[k]), int(likely.other[k]), bool(likely.mirrored[k])
        alike, whole = float(likely.likeness[k]), float(likely.whole[k])
        number, other_number = compared.sites[[i, j]]
        # Two hospitals do not film one scene, nor does a camera see it mirrored: across sites, and among mirrored
        # images, only copies count.
        may_be_frames = number == other_number and not mirrored
        if alike >= ENOUGH or (may_be_frames and usual[number].is_unusual(alike, whole)):
            found = Duplicate(alike, whole, mirrored, pictures[i], pictures[j])
            best.setdefault(frozenset(compared.cases[[i, j]].tolist()), found)
    return Duplicates(tuple(best.values()), usual)


def groups_with(groups: Sequence[Sequence[str]], duplicates: Sequence[Duplicate]) -> list[list[str]]:
    """`groups` (data.groups) and further groups, which keep near-duplicates in one split."""
    pairs = [duplicate.group for duplicate in duplicates if duplicate.group]
    names = list(dict.fromkeys(name for pair in pairs for name in pair))
    members: dict[str, list[str]] = {}
    for name, root in zip(names, joined(names, pairs), strict=True):
        members.setdefault(root, []).append(name)
    return [*(list(group) for group in groups), *members.values()]


@dataclass(frozen=True, eq=False)
class _Compared:
    """The images of all sites that are compared, one after the other."""

    fine: Details
    small: Details
    layouts: NDArray[np.float32]
    cases: NDArray[np.int64]
    sites: NDArray[np.int64]
    digests: tuple[bytes, ...]
    """Digest of each image's pixels: equal for copies, and an order that does not depend on names or scenes."""

    @classmethod
    def of(cls, sites: Sites) -> "_Compared":
        # Sites that train on volumes may differ in the size of their slices.
        side = min(min(site.images.shape[2:]) for site in sites)
        fine = np.concatenate([details(site.images, side)[site.shown] for site in sites])
        whole = np.concatenate([layouts(site.images)[site.shown] for site in sites])
        number: dict[tuple[str, str], int] = {}
        named = [(site.name, site.cases[row]) for site in sites for row in site.shown]
        cases = np.array([number.setdefault(name, len(number)) for name in named])
        of_site = np.repeat(np.arange(len(sites)), [len(site.shown) for site in sites])
        pixels = (site.images[row] for site in sites for row in site.shown)
        return cls(
            fine, coarse(fine), whole, cases, of_site, tuple(sha256(image.tobytes()).digest() for image in pixels)
        )

    def copies(self) -> Iterator[tuple[int, int]]:
        """Pairs of rows whose images are equal, byte for byte: each image with its next copy."""
        same: dict[bytes, list[int]] = {}
        for row, digest in enumerate(self.digests):
            same.setdefault(digest, []).append(row)
        return (pair for rows in same.values() for pair in pairwise(rows))

    @property
    def has_details(self) -> NDArray[np.bool_]:
        return np.array([image.any() for image in self.fine], bool)


@dataclass(frozen=True, eq=False)
class _Likely:
    """Pairs of rows with their measured likeness."""

    one: Rows
    other: Rows
    mirrored: NDArray[np.bool_]
    likeness: NDArray[np.float32]
    whole: NDArray[np.float32]


def _likely_pairs(compared: _Compared) -> _Likely:
    """Rows i < j of different cases where one is among the other's most alike images at the quick comparison."""
    likely = {(i, j, False) for i, j in compared.copies()}
    for mirrored, n_nearest in ((False, N_NEAREST), (True, N_MIRRORED)):
        for start in range(0, len(compared.small), BLOCK):
            nearest = _nearest(compared, start, mirrored, n_nearest)
            for i, others in enumerate(nearest.tolist(), start):
                likely |= {(min(i, j), max(i, j), mirrored) for j in others}
    rows = np.array(sorted(likely), np.int64).reshape(-1, 3)
    has_details = compared.has_details
    one, other = rows[:, 0], rows[:, 1]
    can_be = has_details[one] & has_details[other] & (compared.cases[one] != compared.cases[other])
    one, other, mirrored = rows[can_be, 0], rows[can_be, 1], rows[can_be, 2].astype(bool)
    likeness = close_likeness(compared.fine, one, other, mirrored)
    return _Likely(one, other, mirrored, likeness, _whole(compared, one, other) * ~mirrored)


def _whole(compared: _Compared, one: Rows, other: Rows) -> NDArray[np.float32]:
    products: NDArray[np.float32] = np.einsum("ne,ne->n", compared.layouts[one], compared.layouts[other])
    return products


def _nearest(compared: _Compared, start: int, mirrored: bool, n: int) -> Rows:
    """For each image from `start` on, the rows of the n images that are most alike at the quick comparison."""
    likeness = coarse_likeness(compared.small, start, mirrored)
    likeness[compared.cases[start : start + BLOCK, None] == compared.cases] = -np.inf
    n = min(n, len(compared.small))
    nearest: Rows = np.argpartition(likeness, -n, axis=1)[:, -n:]
    return nearest


def _usual(compared: _Compared, number: int, name: str) -> Usual:
    is_of_site = compared.sites == number
    rows = np.flatnonzero(is_of_site & compared.has_details)
    n_without = int(is_of_site.sum()) - len(rows)
    one, other = _any_pairs(compared, rows.tolist())
    if len(rows) < FEWEST_IMAGES or not len(one):
        return Usual(name, len(rows), n_without, None, None)
    likeness = close_likeness(compared.fine, one, other, np.zeros(len(one), bool))
    return Usual(name, len(rows), n_without, Level.of(likeness), Level.of(_whole(compared, one, other)))


def _any_pairs(compared: _Compared, rows: Sequence[int]) -> tuple[Rows, Rows]:
    """About N_USUAL pairs of different cases, chosen by the pixels alone, so that file names do not matter."""
    drawn = sorted(rows, key=lambda row: compared.digests[row])
    steps = range(1, min(1 + N_USUAL // max(1, len(drawn)), len(drawn) // 2) + 1)
    pairs = [(row, drawn[(i + step) % len(drawn)]) for step in steps for i, row in enumerate(drawn)][:N_USUAL]
    one, other = np.array(pairs, np.int64).reshape(-1, 2).T
    differ = compared.cases[one] != compared.cases[other]
    return one[differ], other[differ]


def _pictures(site: SiteData) -> Iterator[Picture]:
    part_of_row = {int(row): part for part, rows in site.split.parts.items() for row in rows}
    for row in site.shown.tolist():
        group_name = f"{site.name}/{site.file_of(row)}"
        yield Picture(site.name, row, site.files[row], group_name, part_of_row[row])
