"""A site's pictures in memory: images, masks and split, and all sites of a federation."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedce.base.errors import DataError
from fedce.base.html import table_html
from fedce.base.tables import DataConfig
from fedce.data.cache import Origin
from fedce.data.pixels import Classes
from fedce.data.shape import Patch, Stack, in_words, stacks
from fedce.data.splits import Split

Pixels = NDArray[np.uint8]
CHUNK_BYTES = 2**22
COLOURS = 3
"""Channels of an image in colour."""


@dataclass(frozen=True, eq=False)
class SiteData:
    """One hospital's images, masks and split.

    >>> from fedce.data import load_sites
    >>> site = load_sites("fundus6", scale="tiny")[0]
    >>> site.name, site.images.shape, site.masks.shape
    ('site1', (8, 3, 48, 48), (8, 2, 48, 48))
    >>> site.n_cases_by_part
    {'train': 4, 'validation': 2, 'test': 2}
    """

    name: str
    images: Pixels = field(repr=False)
    """(n, channels, height, width), 0 to 255."""
    masks: Pixels = field(repr=False)
    """(n, classes, height, width), 0 or 1."""
    files: tuple[str, ...] = field(repr=False)
    cases: tuple[str, ...] = field(repr=False)
    """The case (patient) that each image shows; a case is never in two splits."""
    split: Split = field(repr=False)
    origins: tuple[Origin, ...] = field(default=(), repr=False)
    """Sizes and spacings before resizing; empty for a built-in federation of 2-D images."""
    labelled: tuple[int, ...] | None = None
    """Numbers of the classes that the site labels; None: all classes."""
    patch: Patch | None = None
    """What the network sees of a volume at a time; None if it sees single images."""
    modalities: bool = False
    """Whether several channels are modalities, and not colours."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of what the network sees."""
        channels, height, width = self.images.shape[1:]
        return (channels, *self.patch[1:]) if self.patch else (channels, height, width)

    def stacks(self, rows: NDArray[np.int64]) -> list[Stack]:
        """The volumes of these rows."""
        return stacks(rows, self.items, [(origin.height, origin.width) for origin in self.origins])

    @cached_property
    def _own_parts(self) -> dict[str, NDArray[np.int64]]:
        """The split's rows; none for validation if the training cases validate too (data.split)."""
        parts = self.split.parts
        trained = {self.cases[row] for row in parts["train"]}
        if any(self.cases[row] in trained for row in parts["validation"]):
            parts["validation"] = np.empty(0, np.int64)
        return parts

    @cached_property
    def n_by_part(self) -> dict[str, int]:
        """Images of each part of the split, or volumes if the network sees volumes; each is counted once."""
        rows = self._own_parts
        if self.patch is None:
            return {name: len(part) for name, part in rows.items()}
        return {name: len({self.items[row] for row in part}) for name, part in rows.items()}

    @cached_property
    def filled(self) -> NDArray[np.float64]:
        """The part of each row that is not padding, which only slices of volumes have."""
        if self.patch is None:
            return np.ones(len(self.images))
        pixels = np.array([origin.height * origin.width for origin in self.origins], np.float64)
        return pixels / prod(self.images.shape[2:])

    def areas(self) -> NDArray[np.float64]:
        """The marked fraction of each row, (n, classes)."""
        found = np.concatenate([masks.mean(axis=(2, 3)) for masks in chunks(self.masks)])
        return found if self.patch is None else found / self.filled[:, None]

    @cached_property
    def items(self) -> tuple[int, ...]:
        """The number of the file that each image comes from; the slices of a volume share one number."""
        return tuple(origin.item for origin in self.origins) or tuple(range(len(self.images)))

    def file_of(self, row: int) -> str:
        """The name of an image's file; for a slice, the file of its volume."""
        is_slice = bool(self.origins) and self.origins[row].spacing is not None
        return re.sub(r"#\d+$", "", self.files[row]) if is_slice else self.files[row]

    def labels(self, class_no: int) -> bool:
        """Whether the site labels this class."""
        return self.labelled is None or class_no in self.labelled

    @cached_property
    def shown(self) -> NDArray[np.int64]:
        """Rows of 2-D images and of slices with something marked; other slices show little."""
        if not self.origins:
            return np.arange(len(self.images))
        return np.flatnonzero([origin.spacing is None or bool(origin.values) for origin in self.origins])

    @cached_property
    def n_cases_by_part(self) -> dict[str, int]:
        return {name: len({self.cases[row] for row in rows}) for name, rows in self._own_parts.items()}

    @cached_property
    def train_values(self) -> tuple[int, ...]:
        """Values other than 0 of the training masks, as the files have them; empty for a built-in federation."""
        if not self.origins:
            return ()
        return tuple(sorted({value for row in self.split.train for value in self.origins[row].values}))

    @property
    def has_volumes(self) -> bool:
        return any(origin.spacing is not None for origin in self.origins)

    @cached_property
    def fingerprint(self) -> str:
        """Digest that changes with any pixel, label or split, and reveals nothing about them."""
        digest = sha256()
        for array in (self.images, self.masks, self.split.train, self.split.validation, self.split.test):
            digest.update(repr((array.shape, array.dtype.str)).encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        if self.labelled is not None:
            digest.update(repr(self.labelled).encode())
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class Sites(Sequence[SiteData]):
    """All hospitals of a federation.

    >>> from fedce.data import load_sites
    >>> sites = load_sites("fundus6", scale="tiny")
    >>> len(sites), sites[0].name, sites.n_channels, list(sites.classes)
    (6, 'site1', 3, ['disc', 'cup'])
    >>> sites
    <Sites of fundus6: site1 8, site2 14, site3 8, site4 32, site5 12, site6 56 images; classes disc, cup>
    >>> [(row["site"], row["train"], row["size"]) for row in sites.records[:2]]
    [('site1', 4, '48x48 pixels'), ('site2', 6, '48x48 pixels')]
    """

    config: DataConfig
    classes: Classes
    members: tuple[SiteData, ...]
    recognised: str = ""
    """How the files were recognised, in words; empty for a built-in federation."""

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[SiteData]:
        return iter(self.members)

    def __getitem__(self, index: Any) -> Any:
        return self.members[index]

    @property
    def n_channels(self) -> int:
        return int(self.members[0].images.shape[1])

    @property
    def records(self) -> list[dict[str, Any]]:
        """A row for each site: images or slices, images or volumes of each part of the split, cases, size."""
        return [
            {
                "site": site.name,
                "images": len(site.images),
                **site.n_by_part,
                "cases": sum(site.n_cases_by_part.values()),
                "size": in_words(site.patch or site.shape[1:]),
                "channels": site.shape[0],
            }
            for site in self.members
        ]

    def __repr__(self) -> str:
        counts = ", ".join(f"{site.name} {len(site.images)}" for site in self.members)
        return f"<Sites of {self.config.source}: {counts} images; classes {', '.join(self.classes)}>"

    def _repr_html_(self) -> str:
        # No image is shown: a notebook that is passed on must not hold patients' images that nobody asked for.
        about = [
            f"Classes: {', '.join(self.classes)}.",
            *([f"Recognised: {self.recognised}."] if self.recognised else []),
        ]
        records = self.records
        rows = [list(record.values()) for record in records]
        return table_html(f"{len(self)} sites of {self.config.source}", list(records[0]), rows, about)


def shard_name(site: str, i: int) -> str:
    return f"{site}.{i + 1}"


def cut(site: SiteData, n_shards: int) -> list[SiteData]:
    """A site cut into smaller ones: the cases of each split are dealt out in turn, so every image keeps its split."""
    if n_shards == 1:
        return [site]
    shard_by_case: dict[str, int] = {}
    for name, rows in site.split.parts.items():
        cases = list(dict.fromkeys(site.cases[row] for row in rows))
        if len(cases) < n_shards:
            raise DataError(
                f"site {site.name!r} has {len(cases)} {name} cases, too few for data.shards = {n_shards}; lower it"
            )
        shard_by_case |= {case: i % n_shards for i, case in enumerate(cases)}
    return [
        _shard(site, i, np.flatnonzero([shard_by_case.get(case) == i for case in site.cases])) for i in range(n_shards)
    ]


def _shard(site: SiteData, i: int, rows: NDArray[np.int64]) -> SiteData:
    place = {int(row): new for new, row in enumerate(rows)}
    parts = [
        np.array([place[int(row)] for row in part if int(row) in place], np.int64) for part in site.split.parts.values()
    ]
    return SiteData(
        name=shard_name(site.name, i),
        images=site.images[rows],
        masks=site.masks[rows],
        files=tuple(site.files[row] for row in rows),
        cases=tuple(site.cases[row] for row in rows),
        split=Split(*parts),
        origins=tuple(site.origins[row] for row in rows) if site.origins else (),
        labelled=site.labelled,
        patch=site.patch,
        modalities=site.modalities,
    )


def with_n_channels(site: SiteData, n_channels: int) -> SiteData:
    """The site with its single grey channel repeated."""
    own = site.images.shape[1]
    if own != n_channels and (own, n_channels) != (1, COLOURS):
        raise DataError(f"site {site.name!r} has {own} modalities or channels, and the network takes {n_channels}")
    shape = (len(site.images), n_channels, *site.images.shape[2:])
    return site if site.images.shape == shape else replace(site, images=np.broadcast_to(site.images, shape))


def chunks(array: Pixels) -> Iterator[Pixels]:
    """A few images at a time: a site's images may be mapped from disk and exceed the memory."""
    n = max(1, CHUNK_BYTES // array[0].size)
    for start in range(0, len(array), n):
        yield array[start : start + n]
