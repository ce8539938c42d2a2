"""What a federation's data look like, in numbers: counts, sizes, grey values, mask areas, and how sites differ."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedce.data.advice import Advice, advice_for
from fedce.data.duplicates import Duplicate, Usual, find_duplicates, groups_with
from fedce.data.site import Pixels, SiteData, Sites, chunks

Counts = NDArray[np.int64]
Numbers = NDArray[np.float64]
Size = tuple[int, int]
"""Height and width in pixels."""
N_BINS = 64
N_GREYS = 256
PERCENTILES = (1, 25, 50, 75, 99)
EXAMPLES_AT = (1 / 6, 1 / 2, 5 / 6)
"""Positions of the examples among a site's images, ordered by marked area: a small, a medium and a large area."""


@dataclass(frozen=True, eq=False)
class GreyValues:
    """How often each grey value occurs in each channel, over all pixels."""

    counts: Counts
    """(channels, 256)."""

    @property
    def shares(self) -> Numbers:
        shares: Numbers = self.counts / self.counts.sum(axis=1, keepdims=True)
        return shares

    @property
    def histogram(self) -> Numbers:
        """Share of the pixels in each of 64 bins, (channels, 64)."""
        histogram: Numbers = self.shares.reshape(len(self.counts), N_BINS, -1).sum(axis=2)
        return histogram

    @property
    def mean(self) -> Numbers:
        return self.shares @ np.arange(N_GREYS)

    @property
    def std(self) -> Numbers:
        squares = (np.arange(N_GREYS) - self.mean[:, None]) ** 2
        std: Numbers = np.sqrt((self.shares * squares).sum(axis=1))
        return std

    @property
    def percentiles(self) -> Counts:
        """(channels, PERCENTILES): the smallest grey value that at least this percentage of the pixels don't exceed."""
        # Whole numbers, because a rounded sum of shares may miss a limit that is met exactly.
        reached = 100 * np.cumsum(self.counts, axis=1)
        limits = self.counts.sum(axis=1)[:, None] * np.array(PERCENTILES)
        return np.stack([np.searchsorted(*pair) for pair in zip(reached, limits, strict=True)])


@dataclass(frozen=True, eq=False)
class SiteFacts:
    """One site's data in numbers."""

    name: str
    n_images: int
    n_cases: int
    n_by_part: Mapping[str, int]
    """Images for training, validation and test."""
    n_test_cases: int
    n_marked_nothing: int
    """Volumes without any marked slice."""
    sizes: tuple[Size, Size, Size]
    """The smallest, the middle and the largest original image, by its number of pixels."""
    spacing: tuple[float, float] | None
    """The finest and the coarsest distance of two pixels in millimetres; None if the files don't state it."""
    grey: GreyValues
    areas: Mapping[str, Numbers]
    """Class to the marked fraction of each 2-D image, and of each slice with something marked; a class that the site
    does not label is left out."""
    examples: tuple[int, ...]
    """Rows of the images that are shown as examples."""

    @property
    def n_empty(self) -> dict[str, int]:
        """Class to the number of images in which nothing is marked."""
        return {name: int((areas == 0).sum()) for name, areas in self.areas.items()}

    @property
    def n_shown(self) -> int:
        """Number of 2-D images, plus slices with something marked."""
        return len(next(iter(self.areas.values())))

    def as_dict(self) -> dict[str, Any]:
        return {
            "site": self.name,
            "images": self.n_images,
            "cases": self.n_cases,
            **self.n_by_part,
            "sizes": dict(zip(("smallest", "median", "largest"), self.sizes, strict=True)),
            "spacing_mm": self.spacing,
            "grey_mean": self.grey.mean.tolist(),
            "grey_std": self.grey.std.tolist(),
            "grey_percentiles": {str(p): self.grey.percentiles[:, i].tolist() for i, p in enumerate(PERCENTILES)},
            "histogram": self.grey.histogram.tolist(),
            "area": {
                name: {"min": float(areas.min()), "median": float(np.median(areas)), "max": float(areas.max())}
                for name, areas in self.areas.items()
            },
            "empty_masks": self.n_empty,
            "marked_slices": self.n_shown if self.spacing else None,
            "volumes_without_marks": self.n_marked_nothing if self.spacing else None,
        }


@dataclass(frozen=True, eq=False)
class Inspection:
    """A federation's data in numbers."""

    sites: tuple[SiteFacts, ...]
    distances: Numbers
    """(sites, sites): how far apart the grey values are, in grey levels."""
    duplicates: tuple[Duplicate, ...]
    usual: tuple[Usual, ...]
    """How alike images usually are at each site: near-duplicates are judged by this."""
    groups: Sequence[Sequence[str]]
    """data.groups of the experiment, and one more group for the near-duplicates at a site."""
    advice: tuple[Advice, ...] = ()
    recognised: str = ""
    """How the files were recognised."""

    @property
    def classes(self) -> tuple[str, ...]:
        """All classes that some site labels."""
        return tuple(dict.fromkeys(name for site in self.sites for name in site.areas))

    @property
    def counted(self) -> str:
        """What `n_images` of all sites are: slices, if every site has volumes."""
        return "slices" if all(site.spacing for site in self.sites) else "images"

    @property
    def mean_distances(self) -> Numbers:
        """Mean distance of each site to the other sites, in grey levels."""
        mean: Numbers = self.distances.sum(axis=1) / (len(self.sites) - 1)
        return mean

    def as_dict(self) -> dict[str, Any]:
        return {
            "recognised": self.recognised,
            "sites": [site.as_dict() for site in self.sites],
            "distances": self.distances.tolist(),
            "near_duplicates": [duplicate.as_dict() for duplicate in self.duplicates],
            "likeness": [usual.as_dict() for usual in self.usual],
            "groups": self.groups,
            "advice": [asdict(advice) for advice in self.advice],
        }


def inspect_sites(sites: Sites) -> Inspection:
    facts = tuple(site_facts(site, tuple(sites.classes)) for site in sites)
    near = find_duplicates(sites)
    distances = np.array([[distance(one.grey, other.grey) for other in facts] for one in facts])
    groups = groups_with(sites.config.groups, near.pairs)
    return Inspection(facts, distances, near.pairs, near.usual, groups, tuple(advice_for(sites)), sites.recognised)


def site_facts(site: SiteData, classes: tuple[str, ...]) -> SiteFacts:
    areas = site.areas()[site.shown]
    return SiteFacts(
        name=site.name,
        n_images=len(site.images),
        n_cases=len(set(site.cases)),
        n_by_part={part: len(rows) for part, rows in site.split.parts.items()},
        n_test_cases=site.n_cases_by_part["test"],
        n_marked_nothing=len(set(site.items) - {site.items[row] for row in site.shown}),
        sizes=_sizes(site),
        spacing=_spacing(site),
        grey=grey_values_of(site),
        areas={name: areas[:, i] for i, name in enumerate(classes) if site.labels(i)},
        examples=tuple(int(site.shown[i]) for i in _examples(areas.sum(axis=1))),
    )


def grey_values(images: Pixels) -> GreyValues:
    counts = np.zeros((images.shape[1], N_GREYS), np.int64)
    for chunk in chunks(images):
        for channel, total in enumerate(counts):
            total += np.bincount(chunk[:, channel].ravel(), minlength=N_GREYS)
    return GreyValues(counts)


def grey_values_of(site: SiteData) -> GreyValues:
    """The grey values of a site, without the black that slices are padded with."""
    found = grey_values(site.images)
    n_padded = round((1 - site.filled).sum() * prod(site.images.shape[2:]))
    found.counts[:, 0] -= n_padded
    return found


def distance(one: GreyValues, other: GreyValues) -> float:
    """Wasserstein-1: by how many grey levels a pixel must change, on average, to turn one histogram into the other."""
    # On evenly spaced values, Wasserstein-1 is the area between the cumulative distributions.
    between = np.abs(np.cumsum(one.shares - other.shares, axis=1)).sum(axis=1)
    return float(between.mean())


def _sizes(site: SiteData) -> tuple[Size, Size, Size]:
    height, width = site.images.shape[2:]
    known = [(origin.height, origin.width) for origin in site.origins] or [(height, width)]
    known.sort(key=lambda size: (size[0] * size[1], size))
    return known[0], known[len(known) // 2], known[-1]


def _spacing(site: SiteData) -> tuple[float, float] | None:
    known = [distance for origin in site.origins for distance in origin.spacing or ()]
    return (min(known), max(known)) if known else None


def _examples(areas: Numbers) -> tuple[int, ...]:
    order = np.argsort(areas, kind="stable")
    return tuple(dict.fromkeys(int(order[int(at * len(order))]) for at in EXAMPLES_AT))
