"""Near-duplicates: images of different cases that show one scene, and should not be in two splits."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedce.data.sites import Pixels, SiteData, Sites, chunks
from fedce.data.splits import joined

SIDE = 16
"""Pixels a side at which images are compared: coarse enough to forgive compression, resizing and a little motion."""
ALIKE = 0.94
"""Similarity from which two are near-duplicates; docs/data.md says what was seen above and below it."""
BLOCK = 1024
"""Images whose similarities to all others are held at a time."""


@dataclass(frozen=True)
class Picture:
    """One image of one site."""

    site: str
    row: int
    file: str
    group_name: str
    """As data.groups names it: with its site, and a slice by its volume."""
    part: str
    """train, validation or test."""


@dataclass(frozen=True)
class Duplicate:
    """The two images of two cases that are most alike, where those are nearly one."""

    similarity: float
    """At most 1."""
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
        """What data.groups would say; a group can't span sites, because each site has a split of its own."""
        return None if self.across_sites else (self.one.group_name, self.other.group_name)

    def as_dict(self) -> dict[str, Any]:
        pair = (self.one, self.other)
        return {
            "similarity": round(self.similarity, 4),
            "sites": [picture.site for picture in pair],
            "files": [picture.file for picture in pair],
            "splits": [picture.part for picture in pair],
            "group": self.group,
        }


def find_duplicates(sites: Sites) -> list[Duplicate]:
    """Pairs of near-duplicates in one site and across sites, most alike first.

    Images of one case are not compared. Of a volume, slices with something marked are: at the ends of the body two
    patients look alike.
    """
    pictures = [picture for site in sites for picture in _pictures(site)]
    case_number: dict[tuple[str, str], int] = {}
    cases = [
        case_number.setdefault((site.name, site.cases[row]), len(case_number)) for site in sites for row in site.shown
    ]
    edges = np.concatenate([edge_vectors(site.images)[site.shown] for site in sites])
    best: dict[tuple[int, int], Duplicate] = {}
    for i, j, similarity in _alike(edges, np.array(cases)):
        key = (cases[i], cases[j])
        if key not in best or similarity > best[key].similarity:
            best[key] = Duplicate(similarity, pictures[i], pictures[j])
    return sorted(best.values(), key=lambda found: -found.similarity)


def groups_with(groups: Sequence[Sequence[str]], duplicates: Sequence[Duplicate]) -> list[list[str]]:
    """data.groups with those that would keep near-duplicates in one split."""
    pairs = [duplicate.group for duplicate in duplicates if duplicate.group]
    names = list(dict.fromkeys(name for pair in pairs for name in pair))
    members: dict[str, list[str]] = {}
    for name, root in zip(names, joined(names, pairs), strict=True):
        members.setdefault(root, []).append(name)
    return [*(list(group) for group in groups), *members.values()]


def edge_vectors(images: Pixels) -> NDArray[np.float32]:
    """(n, edges) of length 1, whose products are similarities: correlations of the edges of small grey copies.

    Edges, because brightness that changes slowly over an image is alike in all images of a camera.
    """
    small = np.concatenate([_small(chunk) for chunk in chunks(images)])
    down, across = np.diff(small, axis=1)[:, :, :-1], np.diff(small, axis=2)[:, :-1]
    edges = np.concatenate([down, across], axis=1).reshape(len(small), -1)
    edges -= edges.mean(axis=1, keepdims=True)
    # A blank image has hardly an edge; what rounding leaves of it is like nothing.
    unit: NDArray[np.float32] = edges / np.maximum(np.linalg.norm(edges, axis=1, keepdims=True), 1)
    return unit


def _small(images: Pixels) -> NDArray[np.float32]:
    """Grey copies of SIDE x SIDE pixels, each the mean of those that it stands for."""
    grey: NDArray[Any] = images.mean(axis=1, dtype=np.float32)
    for axis in (1, 2):
        length = grey.shape[axis]
        edges = np.linspace(0, length, min(SIDE, length) + 1).astype(int)
        shape = (-1, 1) if axis == 1 else (1, -1)
        grey = np.add.reduceat(grey, edges[:-1], axis=axis) / np.diff(edges).reshape(shape)
    return grey.astype(np.float32)


def _alike(edges: NDArray[np.float32], cases: NDArray[np.int64]) -> Iterator[tuple[int, int, float]]:
    """Rows i < j of different cases, with a similarity of at least ALIKE."""
    for start in range(0, len(edges), BLOCK):
        similarity = edges[start : start + BLOCK] @ edges[start:].T
        for i, j in np.argwhere(np.triu(similarity, 1) >= ALIKE):
            if cases[start + i] != cases[start + j]:
                yield int(start + i), int(start + j), float(similarity[i, j])


def _pictures(site: SiteData) -> Iterator[Picture]:
    part_of_row = {int(row): part for part, rows in site.split.parts.items() for row in rows}
    for row in site.shown.tolist():
        group_name = f"{site.name}/{site.file_of(row)}"
        yield Picture(site.name, row, site.files[row], group_name, part_of_row[row])
