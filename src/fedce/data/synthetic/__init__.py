"""Synthetic federations: two stand in for the paper's retinal fundus and prostate MRI tasks, one has volumes.

The first two have the paper's sites and training counts. None needs a download: see docs/synthetic-data.md.
Image i of a site depends only on (federation, site, seed, i, size), so a small set is a prefix of a larger one.
"""

from __future__ import annotations

import difflib
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from fedce.data.synthetic import fundus, prostate, volume
from fedce.data.synthetic.volume import SHAPE, SPACING, Drawn

__all__ = [
    "FEDERATIONS",
    "SCALES",
    "SHAPE",
    "SPACING",
    "Drawn",
    "Federation",
    "Scale",
    "counts",
    "draw_volume",
    "generate",
]

MIN_SIZE = 32
MIN_TRAIN = 4

Draw = Callable[[str, np.random.Generator, int], tuple[NDArray[np.uint8], NDArray[np.uint8]]]
DrawVolume = Callable[[str, np.random.Generator], Drawn]


@dataclass(frozen=True)
class Federation:
    """A named set of sites, how many images (or volumes) are trained on at each, and how to draw one."""

    name: str
    classes: Mapping[str, tuple[int, ...]]  # mask channel -> grey values it has in an exported mask
    n_channels: int
    n_train_by_site: Mapping[str, int]
    draw: Draw | None  # (site, rng, size) -> image (c, h, w), mask (k, h, w) of 0 and 1
    draw_volume: DrawVolume | None = None


@dataclass(frozen=True)
class Scale:
    """Pixels along one side, and the share of the paper's images, by federation."""

    size: int
    share: Mapping[str, float]


FEDERATIONS: Mapping[str, Federation] = MappingProxyType(
    {
        federation.name: federation
        for federation in (
            Federation(
                name="fundus6",
                classes={"disc": (128, 255), "cup": (255,)},
                n_channels=3,
                n_train_by_site={"site1": 50, "site2": 98, "site3": 47, "site4": 230, "site5": 80, "site6": 400},
                draw=fundus.draw,
            ),
            Federation(
                name="prostate6",
                classes={"prostate": (255,)},
                n_channels=1,
                n_train_by_site={"site1": 381, "site2": 238, "site3": 278, "site4": 242, "site5": 389, "site6": 814},
                draw=prostate.draw,
            ),
            Federation(
                name="volume6",
                classes={"organ": (1, 2), "lesion": (2,)},
                n_channels=1,
                n_train_by_site={"site1": 40, "site2": 32, "site3": 48, "site4": 28, "site5": 36, "site6": 16},
                draw=None,
                draw_volume=volume.draw,
            ),
        )
    }
)

# The federations differ in size, so each has its own share: of about 65 and 270 training images, or 24 and 50 volumes.
SCALES: Mapping[str, Scale] = MappingProxyType(
    {
        "tiny": Scale(48, {"fundus6": 0.07, "prostate6": 0.028, "volume6": 0.1}),
        "demo": Scale(64, {"fundus6": 0.3, "prostate6": 0.115, "volume6": 0.25}),
        "paper": Scale(256, {"fundus6": 1.0, "prostate6": 1.0, "volume6": 1.0}),
    }
)


def counts(federation: Federation, share: float | Mapping[str, float]) -> Mapping[str, int]:
    """Images to generate at each site: twice the training images, as half of them are trained on."""
    portion = share if isinstance(share, float | int) else share[federation.name]
    return {site: 2 * max(MIN_TRAIN, round(n * portion)) for site, n in federation.n_train_by_site.items()}


def generate(name: str, site: str, n: int, size: int, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """n images (n, c, size, size) and masks (n, k, size, size) of one site; masks are 0 or 1."""
    if size < MIN_SIZE:
        raise ValueError(
            f"size is {size}, but the anatomy needs at least {MIN_SIZE} pixels a side; ask for size >= {MIN_SIZE}"
        )
    if n < 0 or seed < 0:
        raise ValueError(f"n is {n} and seed is {seed}; both must be 0 or more")
    federation = FEDERATIONS[_known(name, FEDERATIONS, "federation")]
    _known(site, federation.n_train_by_site, f"{name} site")
    if federation.draw is None:
        raise ValueError(f"{name} has volumes; draw them by draw_volume")
    images = np.empty((n, federation.n_channels, size, size), dtype=np.uint8)
    masks = np.empty((n, len(federation.classes), size, size), dtype=np.uint8)
    for i in range(n):
        images[i], masks[i] = federation.draw(site, _generator(name, site, seed, i), size)
    return images, masks


def draw_volume(name: str, site: str, i: int, seed: int) -> Drawn:
    """Volume i of a site, as the site's scanner makes it."""
    federation = FEDERATIONS[_known(name, FEDERATIONS, "federation")]
    _known(site, federation.n_train_by_site, f"{name} site")
    if federation.draw_volume is None:
        raise ValueError(f"{name} has 2-D images; draw them by generate")
    return federation.draw_volume(site, _generator(name, site, seed, i))


def _generator(name: str, site: str, seed: int, i: int) -> np.random.Generator:
    # Names become numbers by CRC, because Python's own hash changes from run to run.
    return np.random.default_rng([zlib.crc32(name.encode()), zlib.crc32(site.encode()), seed, i])


def _known(word: str, words: Iterable[str], what: str) -> str:
    """The word itself, or an error that names its nearest neighbour."""
    choices = list(words)
    if word not in choices:
        near = difflib.get_close_matches(word, choices, n=1, cutoff=0.0)[0]
        raise ValueError(f"unknown {what} {word!r}; did you mean {near!r}? there are {', '.join(choices)}")
    return word
