"""Images of any size to one size, volumes of any spacing to one spacing, and predicted masks back."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

How = Literal["stretch", "pad", "crop"]
Shape = tuple[int, int]
"""Height and width."""


def to_size(image: NDArray[np.uint8], size: Shape, how: How, is_mask: bool = False) -> NDArray[np.uint8]:
    """An image (channels, height, width) at this size: stretched, between black bars, or cropped to its middle."""
    shape = (image.shape[1], image.shape[2])
    if shape == size:
        return image
    if how == "crop":
        image = _middle(image, _cropped(shape, size))
    return _padded(_resized(image, _inside(shape, size) if how == "pad" else size, is_mask), size)


def from_size(mask: NDArray[np.uint8], shape: Shape, how: How) -> NDArray[np.uint8]:
    """A mask (classes, height, width), brought back to the shape that the image had before `to_size`."""
    size = (mask.shape[1], mask.shape[2])
    if how == "pad":
        mask = _middle(mask, _inside(shape, size))
    return _padded(_resized(mask, _cropped(shape, size) if how == "crop" else shape, is_mask=True), shape)


def resized_spacing(spacing: tuple[float, float], shape: Shape, size: Shape, how: How) -> tuple[float, float]:
    """The distance of pixels, by rows and columns, after `to_size` of an image with this shape and spacing."""
    taken = _cropped(shape, size) if how == "crop" else shape
    become = _inside(shape, size) if how == "pad" else size
    return spacing[0] * taken[0] / become[0], spacing[1] * taken[1] / become[1]


def _middle(image: NDArray[np.uint8], size: Shape) -> NDArray[np.uint8]:
    top, left = ((whole - part) // 2 for whole, part in zip(image.shape[1:], size, strict=True))
    return image[:, top : top + size[0], left : left + size[1]]


def _padded(image: NDArray[np.uint8], size: Shape) -> NDArray[np.uint8]:
    """The inverse of `_middle`: MONAI's own pair of crop and pad is a pixel off for odd differences."""
    padded = np.zeros((len(image), *size), np.uint8)
    _middle(padded, (image.shape[1], image.shape[2]))[:] = image
    return padded


def _inside(shape: Shape, size: Shape) -> Shape:
    """The size of an image of this shape when all of it is made to fit."""
    scale = min(size[0] / shape[0], size[1] / shape[1])
    return max(1, round(shape[0] * scale)), max(1, round(shape[1] * scale))


def _cropped(shape: Shape, size: Shape) -> Shape:
    """The largest part of this shape that has the proportions of the size."""
    scale = min(shape[0] / size[0], shape[1] / size[1])
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def resampled(volume: NDArray[np.uint8], shape: Sequence[int], is_mask: bool = False) -> NDArray[np.uint8]:
    """A volume (slices, rows, columns) with this number of voxels: linear for grey values, nearest for masks."""
    return volume if volume.shape == tuple(shape) else _resized(volume[None], tuple(shape), is_mask)[0]


def _resized(image: NDArray[np.uint8], size: tuple[int, ...], is_mask: bool) -> NDArray[np.uint8]:
    from monai.transforms import Resize

    smaller = any(new < old for new, old in zip(size, image.shape[1:], strict=True))
    linear = "bilinear" if len(size) == 2 else "trilinear"
    mode: dict[str, Any] = {"mode": "nearest-exact"} if is_mask else {"mode": linear, "anti_aliasing": smaller}
    result: NDArray[np.uint8] = (
        np.asarray(Resize(size, **mode)(image.astype(np.float32))).clip(0, 255).round().astype(np.uint8)
    )
    return result
