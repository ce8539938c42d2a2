"""A site's images and masks, decoded and resized once, as files that are mapped into memory.

The key is a digest of the source files' content and of every setting that decides how they are decoded. A folder of the
cache is either complete or absent: it is filled under another name and then renamed.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import file_digest, sha256
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedce.base.errors import DataError, Problems
from fedce.base.files import digest_of, private_folder, read_sealed, write_sealed

Bytes = NDArray[np.uint8]
Notify = Callable[[str], None]
PARTS = ("images", "masks")


@dataclass(frozen=True)
class Origin:
    """What is known about an image besides its pixels."""

    name: str
    item: int
    """Number of the item (file or volume) that the image comes from."""
    height: int
    width: int
    """Size in pixels before resizing."""
    spacing: tuple[float, float] | None
    """Millimetres between rows and between columns, before resizing."""
    values: tuple[int, ...]
    """The values of the image's mask other than 0, before they become classes."""
    voxel: tuple[float, float, float] | None = None
    """Millimetres between slices, rows and columns, after resizing."""


@dataclass(frozen=True)
class Frame:
    """One image with its mask, and where it came from."""

    image: Bytes
    """(channels, height, width)."""
    mask: Bytes
    """(classes, height, width), 0 or 1."""
    origin: Origin


@dataclass(frozen=True, eq=False)
class Cached:
    images: Bytes
    masks: Bytes
    origins: tuple[Origin, ...]


def cache_folder() -> Path:
    """$FEDCE_CACHE, or fedce in the user's cache folder."""
    if folder := os.environ.get("FEDCE_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fedce"


def content_of(path: Path, beside: Sequence[Path] = ()) -> str:
    """Digest of a file together with the files `beside` that hold a part of it, or of all files of a folder."""
    if path.is_dir():
        inside = [f"{child.name} {content_of(child)}" for child in sorted(path.iterdir()) if child.is_file()]
        return sha256("\n".join(inside).encode()).hexdigest()
    try:
        with path.open("rb") as file:
            digest = file_digest(file, "sha256").hexdigest()
        return " ".join([digest, *map(content_of, beside)])
    except OSError as error:
        raise DataError(f"can't read {path}: {error.strerror}", "files can't be read") from None


@cache
def _reader_version() -> str:
    """Digest of the decoding code, because a changed reader may produce other pixels."""
    here = Path(__file__).parent
    return sha256(b"".join((here / f"{name}.py").read_bytes() for name in _DECIDING)).hexdigest()


_DECIDING = ("cache", "dicom", "dicom_seg", "formats", "pixels", "reader", "resizing", "shape", "volumes")


def key_of(contents: Sequence[str], options: Any) -> str:
    return sha256(json.dumps([_reader_version(), list(contents), options], sort_keys=True).encode()).hexdigest()[:32]


def load(key: str) -> Cached | None:
    """The images cached under this key; None if there are none, or if their files have changed since."""
    folder = folder_of(key)
    try:
        about = read_sealed(folder / "about.json")
        # Only the loading process maps the files: workers inherit the mapping.
        if any(digest_of(folder / f"{part}.bin") != about["sha256"][part] for part in PARTS):
            return None
        arrays = [np.memmap(folder / f"{part}.bin", np.uint8, mode="r", shape=tuple(about[part])) for part in PARTS]
        origins = tuple(_origin(one) for one in about["origins"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Cached(arrays[0], arrays[1], origins)


def _origin(one: dict[str, Any]) -> Origin:
    """An origin from JSON, which turns tuples into lists."""
    told: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in one.items()}
    return Origin(**told)


def build(
    site: str, key: str, frames: Iterator[Frame], problems: Problems, *, of_volumes: bool = False
) -> Cached | None:
    """Fill the cache with these frames; None, and nothing kept, if reading them added a problem.

    Frames must have one size. Only slices `of_volumes` may differ; they are padded at the bottom and at the right.
    """
    target = folder_of(key)
    aside = target.with_name(f".{key}.{os.getpid()}")
    n_before = len(problems)
    try:
        private_folder(aside)  # It holds images of patients.
        alike = _of_equal_channels(site, frames, problems)
        shapes, origins = _write_padded(aside, alike) if of_volumes else _write_frames(site, aside, alike, problems)
        if len(problems) > n_before or not origins:
            return None
        digests = {part: digest_of(aside / f"{part}.bin") for part in PARTS}
        origins_as_json = [asdict(origin) for origin in origins]
        write_sealed(aside / "about.json", {**shapes, "sha256": digests, "origins": origins_as_json})
        if target.exists():  # Either broken, since `load` did not find it, or another process was quicker.
            if (whole := load(key)) is not None:
                return whole
            shutil.rmtree(target)
        try:
            aside.rename(target)
        except OSError:  # Another process was quicker by a moment.
            if (whole := load(key)) is None:
                raise
            return whole
    except OSError as error:
        raise DataError(
            f"can't write the cache {target}: {error.strerror or error}; set FEDCE_CACHE to a folder with room"
        ) from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        _sweep(target.parent)
    return load(key)


def one_size(height: int, width: int) -> str:
    """Advice for images of several sizes: set data.size to the largest side that fits them and a U-Net."""
    return f"bring all images to one size by --set data.size={max(32, min(height, width, 4096) // 16 * 16)}"


def _of_equal_channels(site: str, frames: Iterator[Frame], problems: Problems) -> Iterator[Frame]:
    """The frames with as many channels as the first one; the others are noted."""
    first: Frame | None = None
    for frame in frames:
        first = first or frame
        if len(frame.image) == len(first.image):
            yield frame
            continue
        problems.add(
            f"{frame.origin.name!r} has {len(frame.image)} modalities, {first.origin.name!r} of the same site "
            f"has {len(first.image)}; all cases need the same modalities",
            f"site {site!r}",
            "images differ in their modalities from the site's first image",
        )


def _write_frames(
    site: str, folder: Path, frames: Iterator[Frame], problems: Problems
) -> tuple[dict[str, tuple[int, ...]], list[Origin]]:
    origins: list[Origin] = []
    first: Frame | None = None
    with (folder / "images.bin").open("wb") as images, (folder / "masks.bin").open("wb") as masks:
        for frame in frames:
            first = first or frame
            if frame.image.shape != first.image.shape:
                one, other = frame.origin, first.origin
                problems.add(
                    f"{one.name!r} is {one.width}x{one.height}, {other.name!r} of the same site is "
                    f"{other.width}x{other.height}; {one_size(other.height, other.width)}",
                    f"site {site!r}",
                    "images differ in size from the site's first image",
                )
                continue
            images.write(np.ascontiguousarray(frame.image).data)
            masks.write(np.ascontiguousarray(frame.mask).data)
            origins.append(frame.origin)
        for file in (images, masks):
            file.flush()
            os.fsync(file.fileno())
    if first is None:
        return {}, []
    n = len(origins)
    return {"images": (n, *first.image.shape), "masks": (n, *first.mask.shape)}, origins


def _write_padded(folder: Path, frames: Iterator[Frame]) -> tuple[dict[str, tuple[int, ...]], list[Origin]]:
    """Write frames of any size, first as they come and then, when the largest is known, padded to it."""
    origins: list[Origin] = []
    sizes: list[tuple[int, int]] = []
    depths: dict[str, int] = {}
    with (folder / "images.raw").open("wb") as images, (folder / "masks.raw").open("wb") as masks:
        for frame in frames:
            depths = {"images": len(frame.image), "masks": len(frame.mask)}
            sizes.append((frame.mask.shape[1], frame.mask.shape[2]))
            images.write(np.ascontiguousarray(frame.image).data)
            masks.write(np.ascontiguousarray(frame.mask).data)
            origins.append(frame.origin)
    if not origins:
        return {}, []
    size = (max(height for height, _ in sizes), max(width for _, width in sizes))
    for part in PARTS:
        with (folder / f"{part}.raw").open("rb") as raw, (folder / f"{part}.bin").open("wb") as file:
            for height, width in sizes:
                shape = (depths[part], height, width)
                picture = np.frombuffer(raw.read(prod(shape)), np.uint8).reshape(shape)
                padding = ((0, 0), (0, size[0] - height), (0, size[1] - width))
                file.write(np.pad(picture, padding).data)
            file.flush()
            os.fsync(file.fileno())
        (folder / f"{part}.raw").unlink()
    return {part: (len(origins), depth, *size) for part, depth in depths.items()}, origins


def _sweep(folder: Path) -> None:
    """Remove unfinished folders of processes that no longer run."""
    for left in folder.glob(".*.*"):
        with suppress(ValueError, PermissionError):
            try:
                os.kill(int(left.suffix[1:]), 0)
            except ProcessLookupError:
                shutil.rmtree(left, ignore_errors=True)


def known(key: str, site: str, notify: Notify) -> Cached | None:
    """The site's images from the cache; if they are there but can't be used, `notify` gets a line."""
    cached = load(key)
    if cached is None and (folder := folder_of(key)).exists():
        notify(f"the cache of site {site} in {folder} was changed since it was written; it is made again")
    return cached


def folder_of(key: str) -> Path:
    return cache_folder() / "sites" / key
