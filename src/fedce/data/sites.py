"""The sites of an experiment with their images, masks and splits, in memory."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedce.config import BUILT_IN, DataConfig, parse
from fedce.data import synthetic
from fedce.data.folder import FOREGROUND, find_pairs, read_site
from fedce.data.splits import Split, split
from fedce.errors import DataError
from fedce.files import writing

Pixels = NDArray[np.uint8]
Notify = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class SiteData:
    """One hospital's images."""

    name: str
    images: Pixels
    """(n, channels, height, width), 0 to 255."""
    masks: Pixels
    """(n, classes, height, width), 0 or 1."""
    files: tuple[str, ...]
    split: Split

    @cached_property
    def fingerprint(self) -> str:
        """Changes with any pixel, label or split; tells nothing about them."""
        digest = sha256()
        for array in (self.images, self.masks, self.split.train, self.split.validation, self.split.test):
            digest.update(repr((array.shape, array.dtype.str)).encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class Sites(Sequence[SiteData]):
    """All hospitals of a federation."""

    config: DataConfig
    classes: Mapping[str, Sequence[int]]
    members: tuple[SiteData, ...]

    def __post_init__(self) -> None:
        if len(self.members) < 2:
            raise DataError(
                f"a federation needs at least two sites, {self.config.source!r} has only {self.members[0].name!r}"
            )

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
    """Load a built-in federation (fundus6, prostate6) or a folder DIR/<site>/{images,masks}/*.png.

    Options are those of the [data] table: scale, size, seed, split, classes, normalize.
    """
    config = source if isinstance(source, DataConfig) else parse({"data": {"source": str(source), **options}}).data
    say = notify or (lambda message: None)
    return _built_in(config, say) if config.source in BUILT_IN else _folder(config, say)


def _folder(config: DataConfig, notify: Notify) -> Sites:
    if not config.source.strip():
        raise DataError("data.source is empty; give a folder of sites, or fundus6 or prostate6")
    root = Path(config.source)
    pairs_by_site = find_pairs(root)
    classes = config.classes or FOREGROUND
    size = (config.size, config.size) if config.size else None
    members = []
    for name, pairs in pairs_by_site.items():
        notify(f"reading site {name}: {len(pairs)} images")
        shares = split(name, len(pairs), config.split, config.seed)
        images, masks = read_site(name, pairs, classes, size)
        members.append(SiteData(name, images, masks, tuple(pair.image.name for pair in pairs), shares))
    return Sites(config, classes, tuple(_same_channels(members)))


def _same_channels(members: Sequence[SiteData]) -> Sequence[SiteData]:
    """Grey sites among colour ones become colour; sites of another size can't train one model."""
    n_channels = max(member.images.shape[1] for member in members)
    first = members[0]
    same = []
    for member in members:
        if member.images.shape[2:] != first.images.shape[2:]:
            (h, w), (h0, w0) = member.images.shape[2:], first.images.shape[2:]
            raise DataError(
                f"site {member.name!r} has images of {w}x{h} pixels, site {first.name!r} of {w0}x{h0}; "
                "set data.size to bring all images to one size"
            )
        images = np.broadcast_to(member.images, (len(member.images), n_channels, *member.images.shape[2:]))
        same.append(SiteData(member.name, np.ascontiguousarray(images), member.masks, member.files, member.split))
    return same


def _built_in(config: DataConfig, notify: Notify) -> Sites:
    federation = synthetic.FEDERATIONS[config.source]
    scale = synthetic.SCALES[config.scale]
    size = config.size or scale.size
    members = []
    for name, n in synthetic.counts(federation, scale.share).items():
        images, masks = (_cached(config, name, n, size, part, notify) for part in ("images", "masks"))
        files = tuple(f"{name}-{i:04d}.png" for i in range(n))
        members.append(SiteData(name, images, masks, files, split(name, n, config.split, config.seed)))
    return Sites(config, federation.classes, tuple(members))


def _cached(config: DataConfig, site: str, n: int, size: int, part: str, notify: Notify) -> Pixels:
    """Generated once, then mapped from the cache; a changed generator has another key."""
    key = f"{config.source}-{size}px-seed{config.seed}-{_generator_version()}"
    path = cache_folder() / "synthetic" / key / f"{site}-{n}-{part}.npy"
    if not path.exists():
        notify(f"drawing {n} images of {config.source} {site} at {size}x{size}")
        arrays = dict(
            zip(("images", "masks"), synthetic.generate(config.source, site, n, size, config.seed), strict=True)
        )
        for name, array in arrays.items():
            with writing(path.with_name(f"{site}-{n}-{name}.npy")) as aside, aside.open("wb") as file:
                np.save(file, array, allow_pickle=False)
    try:
        pixels: Pixels = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError:  # Cut off by a full disk or a copy: drawn again.
        path.unlink()
        return _cached(config, site, n, size, part, notify)
    return pixels


@cache
def _generator_version() -> str:
    sources = sorted(Path(synthetic.__file__).parent.glob("*.py"))
    return sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]


def cache_folder() -> Path:
    """$FEDCE_CACHE, or fedce in the user's cache folder."""
    if folder := os.environ.get("FEDCE_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fedce"
