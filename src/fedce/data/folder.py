"""Sites in a folder: DIR/<site>/{images,masks}/NAME.png, a mask for every image under the same name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedce.errors import DataError

Pixels = NDArray[np.uint8]
Classes = Mapping[str, Sequence[int]]
Size = tuple[int, int]
"""Width and height."""
FOREGROUND: Classes = {"foreground": range(1, 256)}
OTHER_IMAGES = {".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".gif", ".webp", ".nii", ".gz", ".dcm"}
MAX_PIXELS = 64_000_000
"""A file that claims more is taken for a mistake, before it is decoded."""


@dataclass(frozen=True)
class Pair:
    image: Path
    mask: Path


def find_pairs(root: Path) -> dict[str, list[Pair]]:
    """Each site's images with their masks, sorted by name."""
    if not root.is_dir():
        raise DataError(f"no such data folder: {root}; give a folder of sites, or fundus6 or prostate6")
    folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not folders:
        raise DataError(f"{root} holds no site folders; expected {root}/<site>/images/*.png and .../masks/*.png")
    for folder in folders:
        if not folder.name.isprintable():
            raise DataError(f"the site folder {str(folder)!r} has a name that can't be printed; rename it")
    return {folder.name: _pairs_of(folder) for folder in folders}


def _pairs_of(folder: Path) -> list[Pair]:
    images, masks = (_pngs(folder, part) for part in ("images", "masks"))
    for names, others, have, lack in ((images, masks, "image", "mask"), (masks, images, "mask", "image")):
        if alone := sorted(names.keys() - others.keys()):
            raise DataError(
                f"site {folder.name!r}: {have} {alone[0]!r} has no {lack} of the same name"
                + (f" (and {len(alone) - 1} more like it)" if len(alone) > 1 else "")
            )
    if not images:
        raise DataError(f"site {folder.name!r} is empty: no PNG files in {folder / 'images'}")
    return [Pair(images[name], masks[name]) for name in sorted(images)]


def _pngs(folder: Path, part: str) -> dict[str, Path]:
    inner = folder / part
    if not inner.is_dir():
        raise DataError(f"site {folder.name!r} has no folder {part!r}; expected {inner}/*.png")
    files = {path.name: path for path in inner.iterdir() if path.is_file() and not path.name.startswith(".")}
    if other := sorted(name for name, path in files.items() if path.suffix.lower() in OTHER_IMAGES):
        more = f" (and {len(other) - 1} more like it)" if len(other) > 1 else ""
        raise DataError(f"site {folder.name!r}: {part}/{other[0]}{more} is not a PNG file; only those are read")
    return {name: path for name, path in files.items() if path.suffix.lower() == ".png"}


def read_site(site: str, pairs: Sequence[Pair], classes: Classes, size: Size | None) -> tuple[Pixels, Pixels]:
    """A site's images (n, channels, h, w) and masks (n, classes, h, w) of 0 and 1."""
    images, masks = [], []
    for pair in pairs:
        image, mask = open_image(pair.image), open_image(pair.mask, as_mask=True)
        if image.size != mask.size:
            raise DataError(
                f"site {site!r}: mask {pair.mask.name!r} is {mask.width}x{mask.height}, "
                f"its image {image.width}x{image.height}; they must be the same"
            )
        images.append(image_array(image, size))
        masks.append(mask_array(mask, classes, size, pair.mask))
        if images[-1].shape[1:] != images[0].shape[1:]:
            raise DataError(
                f"site {site!r}: {pair.image.name!r} is {image.width}x{image.height}, others are not; "
                "set data.size to bring all images to one size"
            )
    if len({image.shape[0] for image in images}) > 1:  # Grey among colour: colour for all.
        images = [np.broadcast_to(image, (3, *image.shape[1:])) for image in images]
    return np.stack(images), np.stack(masks)


def open_image(path: Path, as_mask: bool = False) -> Image.Image:
    """The decoded image, grey ("L") or colour ("RGB")."""
    try:
        with Image.open(path) as file:
            if file.width * file.height > MAX_PIXELS:
                raise DataError(f"{path} claims {file.width}x{file.height} pixels; at most {MAX_PIXELS} are read")
            if file.mode.startswith(("I", "F")):
                raise DataError(f"{path} has {file.mode} pixels (16 bit or more); save it with 8 bits a channel")
            if as_mask and file.mode == "P":
                # A palette only colours the classes: their numbers are the indices.
                return Image.fromarray(np.asarray(file, np.uint8))
            grey = file.mode in ("1", "L", "LA") or (file.mode == "P" and _is_grey(file))
            return file.convert("L" if grey else "RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"can't read the image {path}: {error}") from None


def _is_grey(file: Image.Image) -> bool:
    palette = np.asarray(file.getpalette("RGB")).reshape(-1, 3)
    return bool((palette == palette[:, :1]).all())


def image_array(image: Image.Image, size: Size | None) -> Pixels:
    if size is not None and image.size != size:
        image = image.resize(size, Image.Resampling.BILINEAR)
    array = np.asarray(image, np.uint8)
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)


def mask_array(mask: Image.Image, classes: Classes, size: Size | None, path: Path) -> Pixels:
    """Mask values to one 0/1 channel for each class."""
    if size is not None and mask.size != size:
        mask = mask.resize(size, Image.Resampling.NEAREST)
    values = np.asarray(mask, np.uint8)
    if values.ndim == 3:
        if (values != values[..., :1]).any():
            raise DataError(f"mask {path} is coloured; save one grey value (or palette index) for each class")
        values = values[..., 0]
    expected = {0}.union(*classes.values())
    if unexpected := sorted(set(np.unique(values).tolist()) - expected):
        raise DataError(
            f"mask {path} holds the value {unexpected[0]}, which data.classes gives to no class "
            f"(it knows {sorted(expected)})"
        )
    return np.stack([np.isin(values, list(members)) for members in classes.values()]).astype(np.uint8)
