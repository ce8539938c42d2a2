"""Images that are arrays in memory, read by the same code as files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedce.base.errors import DataError
from fedce.data.formats import File, Format

GREY, COLOUR = 1, 3


def listed(images: Any) -> list[Any]:
    """Single images: of a path or an image itself, of an array (n, channels, height, width), or of a sequence.

    >>> len(listed(np.zeros((5, 3, 48, 48), np.uint8))), len(listed(np.zeros((48, 48)))), listed("new")
    (5, 1, ['new'])
    """
    if isinstance(images, str | Path | Image.Image):
        return [images]
    if hasattr(images, "ndim"):  # An array of numpy, or a tensor of torch.
        return list(images) if images.ndim == 4 else [images]
    if not isinstance(images, Sequence) or not images:
        raise DataError(f"expected an image, a path, or a list of them, got {type(images).__name__}")
    return list(images)


def array_file(name: str, image: Any, n_channels: int) -> File:
    """An image in memory as a file with this name; `n_channels` is what the network takes.

    An image is (height, width), (height, width, channels) or (channels, height, width).

    >>> array_file("eye", np.full((4, 4, 3), 7), 3).image("minmax").shape
    (3, 4, 4)
    """
    planes = _planes(name, np.asarray(image), n_channels)
    if len(planes) == COLOUR and n_channels in (GREY, COLOUR):
        return _file(name, planes.transpose(1, 2, 0))
    first, *others = (_file(name, plane) for plane in planes)
    return File(first.path, first.format, tuple(others))


def _file(name: str, values: NDArray[Any]) -> File:
    return File(Path(name), Format("array", (), "image", read=lambda path: values))


def _planes(name: str, values: NDArray[Any], n_channels: int) -> NDArray[Any]:
    """The image as (channels, height, width)."""
    if values.ndim == 2:
        return values[None]
    if values.ndim == 3 and 0 not in values.shape:
        if values.shape[0] in (GREY, COLOUR, n_channels):
            return values
        if values.shape[2] in (GREY, COLOUR, n_channels):
            return values.transpose(2, 0, 1)
    raise DataError(
        f"{name}: expected an image (height, width), (height, width, channels) or (channels, height, width), and the "
        f"network takes {n_channels} channels; got shape {values.shape}. Give several images as a list"
    )
