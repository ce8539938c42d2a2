"""One image file as an array, by Pillow (grey or colour, 8 or 16 bit), and grey values as bytes."""

import json
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from fedce.base.errors import DataError
from fedce.base.tables import Colour

Bytes = NDArray[np.uint8]
Classes = Mapping[str, Sequence[int]]
Intensity = Literal["auto", "percentile", "minmax"] | tuple[float, float]
FOREGROUND: Classes = {"foreground": range(1, 256)}
ORIENTATION = 274
"""The tag that asks viewers to turn an image; it is applied on reading TIFF files, and never for other formats."""
NEARLY_WHOLE = 1e-3
"""A value of a mask this close to a whole number counts as that number: resampled masks hold 0.9999999."""
MAX_PIXELS = 64_000_000
"""A file that claims more pixels is refused before it is decoded."""
UNREADABLE, COLOURED = "images can't be read", "masks are coloured"
UNKNOWN_VALUES = "masks hold values that data.classes gives to no class"
MOST_SHOWN_COLOURS = 8
"""A mask with more colours is blurred, or a photograph."""
PERCENTILES = (0.5, 99.5)
"""Grey values between these percentiles become 0 to 255: a few bright pixels must not darken the rest."""


def _opened(path: Path, kinds: Sequence[str]) -> Image.Image:
    """The file with its header read and its pixels not yet decoded; its size is bounded, and it has one page.

    Its content must be of one of these `kinds`, whatever its ending: a JPEG mask called .png would bring its blur as
    labels. Without `kinds`, every kind is accepted.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            file = Image.open(path)
    except Exception as error:  # noqa: BLE001 (a damaged file may make a decoder raise anything)
        raise DataError(f"can't read the image {path}: {_reason(error)}", UNREADABLE) from None
    if kinds and file.format not in kinds:
        file.close()
        raise DataError(f"{path} is a {file.format} file by its content; give it the ending of that format")
    if kinds == ("TIFF",) and file.getexif().get(ORIENTATION, 1) != 1:
        file.close()
        raise DataError(
            f"{path} has a tag that turns it for viewing, but its mask would not be turned; save it already turned"
        )
    if file.format == "PNG" and _is_wide_colour(path):
        file.close()
        raise DataError(f"{path} has 16 bits a colour, which would be cut to 8; save it as 8-bit colour or 16-bit grey")
    n_pages = getattr(file, "n_frames", 1)
    if file.width * file.height <= MAX_PIXELS and n_pages == 1:
        return file
    file.close()
    if n_pages > 1:
        raise DataError(f"{path} holds {n_pages} pages; save each as a file of its own")
    raise DataError(f"{path} claims {file.width}x{file.height} pixels; at most {MAX_PIXELS} are read")


def _is_wide_colour(path: Path) -> bool:
    """Whether a PNG has 16 bits a colour, by the bytes in its header: Pillow cuts them to 8 without a warning."""
    with path.open("rb") as file:
        header = file.read(26)
    return header[24] == 16 and header[25] != 0


def _reason(error: Exception) -> str:
    return "it is not an image of a known kind" if isinstance(error, UnidentifiedImageError) else str(error)


def _is_grey(file: Image.Image) -> bool:
    if file.mode == "P":
        try:
            palette = np.asarray(file.getpalette("RGB")).reshape(-1, 3)
        except Exception as error:  # noqa: BLE001 (a damaged file may make a decoder raise anything)
            raise DataError(f"can't read the image {getattr(file, 'filename', '')}: {error}") from None
        return bool((palette == palette[:, :1]).all())
    return file.mode in ("1", "L", "LA", "La", "F") or file.mode.startswith("I")


def is_colour(path: Path, kinds: Sequence[str] = ()) -> bool:
    with _opened(path, kinds) as file:
        return not _is_grey(file)


def read_image(path: Path, kinds: Sequence[str] = ()) -> NDArray[Any]:
    """The image, (height, width) or, in colour, (height, width, 3); bytes unless the file has more than 8 bits."""
    with _opened(path, kinds) as file:
        return _values(file, path, is_wide=file.mode.startswith(("I", "F")))


def read_mask(path: Path, kinds: Sequence[str] = ()) -> NDArray[Any]:
    """The mask, read like an image, except that a palette only colours the classes: their numbers are its indices."""
    with _opened(path, kinds) as file:
        return _values(file, path, is_wide=file.mode == "P" or file.mode.startswith(("I", "F")))


def _values(file: Image.Image, path: Path, *, is_wide: bool) -> NDArray[Any]:
    return _decoded(file, path) if is_wide else _converted(file, "L" if _is_grey(file) else "RGB", path)


def image_bytes(values: NDArray[Any], intensity: Intensity, path: Path) -> Bytes:
    """An image's values as (1 or 3, height, width), 0 to 255."""
    planes = values[None] if values.ndim == 2 else values.transpose(2, 0, 1)
    if values.dtype != np.uint8:
        return to_bytes(planes, wide(intensity), path)
    return planes if intensity == "auto" else to_bytes(planes, intensity, path)


def label_values(values: NDArray[Any], classes: Classes, path: Path, *, is_lossy: bool = False) -> Bytes:
    """A mask's values, (height, width): grey values or palette indices; each of them is known to `classes`."""
    if values.ndim == 3:
        if (values != values[..., :1]).any():
            raise DataError(f"mask {path} is coloured; {_colours_in(values)}", COLOURED)
        values = values[..., 0]
    if is_lossy and values.dtype == np.uint8:
        values = _nearest(values, [0, 255] if classes is FOREGROUND else sorted({0}.union(*classes.values())))
    return checked_labels(values, classes, path)


def _colours_in(values: NDArray[Any]) -> str:
    """What to do about a coloured mask: its colours as data.colors, or another kind of mask if there are too many."""
    found = [colour for colour in np.unique(values.reshape(-1, 3), axis=0).tolist() if any(colour)]
    if len(found) > MOST_SHOWN_COLOURS:
        return "save one grey value (or palette index) for each class"
    named = ", ".join(f"class_{i} = {colour}" for i, colour in enumerate(found, start=1))
    return f"name the class of each colour, --set data.colors='{{{named}}}', or save one grey value for each class"


def colour_labels(values: NDArray[Any], colours: Sequence[Colour], path: Path, *, is_lossy: bool = False) -> Bytes:
    """The number of each pixel's colour, from 1, and 0 for black; a lossy file's colours become the nearest known."""
    pixels = values if values.ndim == 3 else np.repeat(values[..., None], 3, axis=2)
    if is_lossy:
        known = np.array([(0, 0, 0), *colours], np.int64)
        distance = np.stack([((pixels.astype(np.int64) - colour) ** 2).sum(axis=2) for colour in known])
        nearest: Bytes = distance.argmin(axis=0).astype(np.uint8)
        return nearest
    labels = np.zeros(pixels.shape[:2], np.uint8)
    is_known = (pixels == 0).all(axis=2)
    for i, colour in enumerate(colours, start=1):
        here = (pixels == np.array(colour)).all(axis=2)
        labels[here] = i
        is_known |= here
    if not is_known.all():
        other = pixels[~is_known][0].tolist()
        raise DataError(
            f"mask {path} has the colour {other}, which data.colors gives to no class; add it to a class, or, if it is "
            "the background, paint it black",
            "masks have colours that data.colors gives to no class",
        )
    return labels


def _nearest(values: NDArray[Any], known: Sequence[int]) -> Bytes:
    """Each value replaced by the nearest known one, because JPEG blurs the values of a mask."""
    table = np.array(known, np.uint8)[np.abs(np.subtract.outer(np.arange(256), known)).argmin(axis=1)]
    result: Bytes = table[values]
    return result


def checked_labels(values: NDArray[Any], classes: Classes, path: Path) -> Bytes:
    if values.dtype.kind == "f" and np.abs(values - values.round()).max(initial=0) < NEARLY_WHOLE:
        values = values.round()
    if classes is FOREGROUND and values.dtype.kind in "iu" and values.min(initial=0) >= 0:
        values = np.minimum(values, 255)  # Every value above 0 is foreground, however wide.
    found = np.unique(values)
    if unexpected := sorted(set(found.tolist()) - {0}.union(*classes.values())):
        known = sorted({0}.union(*classes.values()))
        said = "0 to 255" if classes is FOREGROUND else str(known)
        line = f"mask {path} holds the value {unexpected[0]:g}, which data.classes gives to no class ({said})"
        if all(value in range(1, 256) for value in unexpected):
            line += f"; to make it a class of its own, add --set 'data.classes={_with_class(classes, unexpected)}'"
        raise DataError(line, UNKNOWN_VALUES)
    return values.astype(np.uint8)


def _with_class(classes: Classes, values: Sequence[float]) -> str:
    """The classes, and one more class for these values, as TOML in one line."""
    more = {**classes, "other": [int(value) for value in values]}
    return "{" + ", ".join(f"{json.dumps(name)} = {list(members)}" for name, members in more.items()) + "}"


def class_masks(labels: Bytes, classes: Classes) -> Bytes:
    """One mask of 0 and 1 for each class, (classes, height, width)."""
    return np.stack([np.isin(labels, list(members)) for members in classes.values()]).astype(np.uint8)


def written_values(classes: Classes, held: Sequence[Sequence[int]]) -> dict[str, list[int]]:
    """The values of each class that a predicted mask holds; `held` are the values of each site's training masks.

    Where several values stand for the same classes, the one that most sites hold is taken; among equals, the largest.

    >>> written_values({"foreground": range(1, 256)}, [[1], [1], [255]])
    {'foreground': [1]}
    """
    n_sites = Counter(value for values in held for value in set(values))
    by_classes: dict[tuple[bool, ...], list[int]] = {}
    for value in sorted(set().union(*classes.values())):
        by_classes.setdefault(tuple(value in own for own in classes.values()), []).append(value)
    chosen = {max(values, key=lambda value: (n_sites[value], value)) for values in by_classes.values()}
    return {name: [value for value in values if value in chosen] for name, values in classes.items()}


def mask_values(masks: Bytes, classes: Classes) -> Bytes:
    """One mask value for each pixel: the value of exactly the classes found there, else of the last class found."""
    members = [set(values) for values in classes.values()]
    result = np.zeros(masks.shape[1:], np.uint8)
    for i, mask in enumerate(masks):
        result[mask > 0] = max(members[i])
    # If several values stand for the same classes, the largest is written.
    by_classes = {tuple(value in own for own in members): value for value in sorted(set.union(*members))}
    for found, value in by_classes.items():
        result[np.all([(mask > 0) == here for mask, here in zip(masks, found, strict=True)], axis=0)] = value
    return result


def with_channels(image: Bytes, n_channels: int) -> Bytes:
    """The image with this number of channels: grey made colour, or colour made grey."""
    if image.shape[0] == n_channels:
        return image
    if n_channels == 1 and image.shape[0] == 3:
        return np.asarray(Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0))).convert("L"))[None]
    return np.broadcast_to(image, (n_channels, *image.shape[1:]))


def wide(intensity: Intensity) -> Intensity:
    """The policy for values of more than 8 bits."""
    return "percentile" if intensity == "auto" else intensity


def to_bytes(values: NDArray[Any], intensity: Intensity, path: Path) -> Bytes:
    """Grey values of any range as 0 to 255, by the policy `intensity`, applied to the whole array."""
    from monai.transforms import ScaleIntensityRange

    if not np.isfinite(values).all():
        raise DataError(
            f"{path} holds {int((~np.isfinite(values)).sum())} values that are not numbers (NaN or infinite)"
        )
    low, high = _window(values, intensity)
    if not low < high and intensity == "percentile":  # Almost all pixels have one value; the others must not vanish.
        low, high = _window(values, "minmax")
    if not low < high:
        return np.zeros(values.shape, np.uint8)
    scale = ScaleIntensityRange(a_min=low, a_max=high, b_min=0, b_max=255, clip=True)
    result: Bytes = np.asarray(scale(values.astype(np.float32))).round().astype(np.uint8)
    return result


def _window(values: NDArray[Any], intensity: Intensity) -> tuple[float, float]:
    if isinstance(intensity, tuple):
        return intensity
    low, high = np.percentile(values, PERCENTILES if intensity == "percentile" else (0, 100))
    return float(low), float(high)


def _decoded(file: Image.Image, path: Path) -> NDArray[Any]:
    try:
        return np.asarray(file)
    except Exception as error:  # noqa: BLE001 (a damaged file may make a decoder raise anything)
        raise DataError(f"can't read the image {path}: {error}", UNREADABLE) from None


def _converted(file: Image.Image, mode: str, path: Path) -> Bytes:
    try:
        return np.asarray(file.convert(mode), np.uint8)
    except Exception as error:  # noqa: BLE001 (a damaged file may make a decoder raise anything)
        raise DataError(f"can't read the image {path}: {error}", UNREADABLE) from None
