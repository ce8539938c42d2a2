"""The sites of an experiment with their images, masks and splits."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedce.base.config import parse
from fedce.base.errors import DataError, Problems, nearest
from fedce.base.tables import BUILT_IN, OF_VOLUMES, DataConfig
from fedce.data import cache as site_cache
from fedce.data import synthetic
from fedce.data.cache import Cached, Notify, Origin
from fedce.data.drawn import drawn_images, drawn_volumes, volume_name
from fedce.data.finding import find_items, find_labelled
from fedce.data.formats import Formats
from fedce.data.items import Item, SiteFiles, case_of, check_groups
from fedce.data.labels import check_labelled_sites, classes_of, colours_of, labelled_at, recognised
from fedce.data.pixels import Classes
from fedce.data.reader import Reading, read_frames
from fedce.data.shape import Patch, Stack, patch_of, spacing_of, stacks
from fedce.data.splits import Split, joined, leaks, split, spread_out, stated

Pixels = NDArray[np.uint8]
T = TypeVar("T")
CHUNK_BYTES = 2**22
COLOURS = 3
"""Channels of an image in colour."""


@dataclass(frozen=True, eq=False)
class SiteData:
    """One hospital's images, masks and split.

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

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of what the network sees."""
        channels, height, width = self.images.shape[1:]
        return (channels, *self.patch[1:]) if self.patch else (channels, height, width)

    def stacks(self, rows: NDArray[np.int64]) -> list[Stack]:
        """The volumes of these rows."""
        return stacks(rows, self.items, [(origin.height, origin.width) for origin in self.origins])

    @cached_property
    def n_by_part(self) -> dict[str, int]:
        """Images of each part of the split, or volumes if the network sees volumes."""
        rows = self.split.parts
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
        return {name: len({self.cases[row] for row in rows}) for name, rows in self.split.parts.items()}

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

    >>> sites = load_sites("fundus6", scale="tiny")
    >>> len(sites), sites[0].name, sites.n_channels, list(sites.classes)
    (6, 'site1', 3, ['disc', 'cup'])
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


def load_sites(source: str | DataConfig = "fundus6", *, notify: Notify | None = None, **options: Any) -> Sites:
    """Load a built-in federation (fundus6, prostate6, volume6), a folder of sites, or a folder of datalists.

    Options are those of the [data] table: scale, size, seed, split, classes, normalize and so on.

    >>> sites = load_sites("fundus6", scale="tiny", sites=["site1", "site3"])
    >>> [(site.name, len(site.split.train)) for site in sites]
    [('site1', 4), ('site3', 4)]
    """
    config = source if isinstance(source, DataConfig) else parse({"data": {"source": str(source), **options}}).data
    found = _load(config, notify)
    if len(found) < 2:
        raise DataError(f"a federation needs at least two sites, {config.source!r} has only {found[0].name!r}")
    return found


def site_names(config: DataConfig) -> list[str]:
    """The names of the sites, from folders and file names alone: no image is decoded."""
    if config.source in BUILT_IN:
        federation, scale = synthetic.FEDERATIONS[config.source], synthetic.SCALES[config.scale]
        whole = list(_chosen(synthetic.counts(federation, scale.share), config))
    else:
        problems = Problems()
        whole = list(_chosen(find_items(config, problems), config))
        problems.raise_any(config.source)
    if config.shards == 1:
        return whole
    return [_shard_name(name, i) for name in whole for i in range(config.shards)]


def _shard_name(site: str, i: int) -> str:
    return f"{site}.{i + 1}"


def load_site(config: DataConfig, site: str, *, notify: Notify | None = None) -> Sites:
    """One site alone, as its hospital sees it: a federation of one."""
    uncut = site.rpartition(".")[0] if config.shards > 1 else site
    found = _load(config.model_copy(update={"sites": (uncut,)}), notify)
    chosen = tuple(member for member in found if member.name == site)
    if not chosen:
        there = ", ".join(member.name for member in found)
        raise DataError(f"{config.source!r} has no site {site!r}; with data.shards = {config.shards} it has {there}")
    return replace(found, members=chosen)


def load_labelled(config: DataConfig, folder: Path, *, notify: Notify | None = None) -> Sites:
    """A folder of one site, or of several, read as `config` says; every image is in the test split."""
    problems, say = Problems(), notify or (lambda message: None)
    found = find_labelled(folder, config, problems)
    classes = classes_of(config, found, problems)
    members = [_member(name, files, classes, config, say, problems, all_test=True) for name, files in found.items()]
    problems.raise_any(str(folder))
    return Sites(config, classes, tuple(_alike([member for member in members if member], found)))


def _load(config: DataConfig, notify: Notify | None) -> Sites:
    say = notify or (lambda message: None)
    whole = _built_in(config, say) if config.source in BUILT_IN else _from_files(config, say)
    return replace(whole, members=tuple(shard for member in whole.members for shard in cut(member, config.shards)))


def _chosen(by_site: Mapping[str, T], config: DataConfig) -> dict[str, T]:
    """The sites that data.sites names, or all sites; files of other sites are not opened."""
    for name in config.sites:
        if name not in by_site:
            raise DataError(f"data.sites names {name!r}{nearest(name, by_site)}; there are: {', '.join(by_site)}")
    return {name: value for name, value in by_site.items() if not config.sites or name in config.sites}


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
        name=_shard_name(site.name, i),
        images=site.images[rows],
        masks=site.masks[rows],
        files=tuple(site.files[row] for row in rows),
        cases=tuple(site.cases[row] for row in rows),
        split=Split(*parts),
        origins=tuple(site.origins[row] for row in rows) if site.origins else (),
        labelled=site.labelled,
        patch=site.patch,
    )


def _from_files(config: DataConfig, notify: Notify) -> Sites:
    problems = Problems()
    every = find_items(config, problems)
    classes = classes_of(config, every, problems)
    found = _chosen(every, config)
    # All files are checked before any is refused, so that a user sees all problems at once.
    members = [_member(name, files, classes, config, notify, problems) for name, files in found.items()]
    if not config.sites:  # With data.sites, keys may name files and sites that are left out.
        check_groups(found, config, problems)
        check_labelled_sites(config, found, problems)
    problems.raise_any(config.source)
    alike = tuple(_alike([member for member in members if member], found))
    return Sites(config, classes, alike, recognised(found, alike[0].images.shape[1], classes))


def _member(
    name: str,
    files: SiteFiles,
    classes: Classes,
    config: DataConfig,
    notify: Notify,
    problems: Problems,
    *,
    all_test: bool = False,
) -> SiteData | None:
    items = files.items
    if not items:
        return None
    cached = _read(name, items, classes, config, notify, problems)
    if cached is None:
        return None
    groups = [[case_of(items, name, file) for file in group] for group in config.groups]
    case_by_item = dict(
        zip(
            range(len(items)),
            joined([item.case for item in items], [[case for case in group if case] for group in groups]),
            strict=True,
        )
    )
    cases = tuple(case_by_item[origin.item] for origin in cached.origins)
    names = tuple(origin.name for origin in cached.origins)
    labelled = labelled_at(name, files, classes, config, problems)
    if all_test:
        whole = stated(["test"] * len(names))
        return SiteData(
            name, cached.images, cached.masks, names, cases, whole, cached.origins, labelled, patch_of(config)
        )
    parts = [items[origin.item].part for origin in cached.origins]
    try:
        shares = (
            stated([part for part in parts if part]) if all(parts) else split(name, cases, config.split, config.seed)
        )
    except DataError as error:
        problems.add(str(error))
        return None
    for case, first, second in leaks(cases, shares.parts):
        problems.add(f"site {name!r}: case {case!r} is in {first} and in {second}; a case must be in one split only")
    if any(item.is_volume for item in items):
        shares = _trained_slices(name, items, cached, shares, config, problems)
    return SiteData(name, cached.images, cached.masks, names, cases, shares, cached.origins, labelled, patch_of(config))


def _trained_slices(
    name: str, items: Sequence[Item], cached: site_cache.Cached, shares: Split, config: DataConfig, problems: Problems
) -> Split:
    """The split with only those training slices that data.slices and data.empty_slices choose."""
    train = shares.train
    is_marked = np.array([bool(cached.origins[row].values) for row in train])
    if not is_marked.any():
        problems.add(
            f"site {name!r}: nothing is marked in any of its training masks, so there is nothing to learn; "
            "check the masks, or set data.seed or data.split so that a marked case is trained on"
        )
    if config.slices == "all" or config.dims == 3:
        return shares
    is_of_volume = np.array([items[cached.origins[row].item].is_volume for row in train])
    kept = np.flatnonzero(is_marked | ~is_of_volume)
    spread = spread_out(np.flatnonzero(~is_marked & is_of_volume), config.empty_slices)
    return replace(shares, train=train[np.union1d(kept, spread)])


def _read(
    name: str, items: Sequence[Item], classes: Classes, config: DataConfig, notify: Notify, problems: Problems
) -> Cached | None:
    """A site's images from the cache; images that are not there are decoded into it first."""
    is_3d = config.dims == 3
    how = Reading(
        classes,
        config.size,
        config.resize,
        config.intensity,
        config.plane,
        colours_of(config),
        is_3d=is_3d,
        spacing=spacing_of(config),
    )
    contents: list[str] = []
    for item in items:
        with problems.collected(f"site {name!r}"):
            of_files = [site_cache.content_of(one.path, one.beside) for one in (*item.image.files, item.mask)]
            contents += [item.name, *of_files]
    if len(contents) < sum(2 + len(item.image.files) for item in items):
        return None
    options = {**asdict(how), "classes": {key: list(values) for key, values in classes.items()}}
    version = Formats.named_by(config.format).version
    key = site_cache.key_of(contents, {**options, "own_format": version} if version else options)
    if (cached := site_cache.known(key, name, notify)) is not None:
        return cached
    notify(f"reading site {name}: {len(items)} {'volumes' if items[0].is_volume else 'images'}")
    return site_cache.build(name, key, read_frames(name, items, how, problems), problems, of_volumes=is_3d)


def _alike(members: Sequence[SiteData], found: Mapping[str, SiteFiles]) -> Iterator[SiteData]:
    """The sites with equal channels (grey images become colour where a site has colour); sizes must be equal."""
    most = max(members, key=lambda member: member.images.shape[1])
    n_channels = most.images.shape[1]
    first = members[0]
    has_modalities = n_channels != COLOURS or any(item.image.has_modalities for item in found[most.name].items)
    for member in members:
        if member.patch is None and member.images.shape[2:] != first.images.shape[2:]:
            (h, w), (h0, w0) = member.images.shape[2:], first.images.shape[2:]
            raise DataError(
                f"site {member.name!r} has images of {w}x{h} pixels, site {first.name!r} of {w0}x{h0}; "
                f"{site_cache.one_size(min(h, h0), min(w, w0))}"
            )
        if has_modalities and member.images.shape[1] != n_channels:
            raise DataError(
                f"site {member.name!r} has {member.images.shape[1]} modalities or channels, site {most.name!r} "
                f"{n_channels}; all sites need the same, which data.images can state"
            )
        yield with_n_channels(member, n_channels)


def with_n_channels(site: SiteData, n_channels: int) -> SiteData:
    """The site with its single grey channel repeated."""
    own = site.images.shape[1]
    if own != n_channels and (own, n_channels) != (1, COLOURS):
        raise DataError(f"site {site.name!r} has {own} modalities or channels, and the network takes {n_channels}")
    shape = (len(site.images), n_channels, *site.images.shape[2:])
    return site if site.images.shape == shape else replace(site, images=np.broadcast_to(site.images, shape))


def _built_in(config: DataConfig, notify: Notify) -> Sites:
    federation, scale = synthetic.FEDERATIONS[config.source], synthetic.SCALES[config.scale]
    every, problems = synthetic.counts(federation, scale.share), Problems()
    check_labelled_sites(config, every, problems)
    make = _drawn_volumes if config.source in OF_VOLUMES else _drawn_images
    members = tuple(
        replace(
            make(config, name, n, notify),
            labelled=labelled_at(name, SiteFiles(), federation.classes, config, problems),
        )
        for name, n in _chosen(every, config).items()
    )
    problems.raise_any(config.source)
    return Sites(config, federation.classes, members)


def _drawn_images(config: DataConfig, name: str, n: int, notify: Notify) -> SiteData:
    files = tuple(f"{name}-{i:04d}.png" for i in range(n))
    drawn = drawn_images(config, name, files, notify)
    return SiteData(name, drawn.images, drawn.masks, files, files, split(name, files, config.split, config.seed))


def _drawn_volumes(config: DataConfig, name: str, n: int, notify: Notify) -> SiteData:
    drawn = drawn_volumes(config, name, n, notify)
    files = tuple(origin.name for origin in drawn.origins)
    cases = tuple(volume_name(name, origin.item) for origin in drawn.origins)
    own = split(name, cases, config.split, config.seed)
    return SiteData(name, drawn.images, drawn.masks, files, cases, own, drawn.origins, patch=patch_of(config))


def chunks(array: Pixels) -> Iterator[Pixels]:
    """A few images at a time: a site's images may be mapped from disk and exceed the memory."""
    n = max(1, CHUNK_BYTES // array[0].size)
    for start in range(0, len(array), n):
        yield array[start : start + n]
