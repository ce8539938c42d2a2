"""An image with its masks drawn on it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedce.data.pixels import with_channels

COLOURS = ((0, 200, 83), (255, 143, 0), (41, 121, 255), (216, 27, 96))
"""Outlines of the first, second, ... class: green, amber, blue, pink."""
TRUTH, FOUND = COLOURS[:2]
ENLARGED = 3
"""Each pixel becomes a block of this many by this many pixels, so that outlines stay thin."""


def overlay(pixels: NDArray[np.uint8], masks: NDArray[np.uint8]) -> Image.Image:
    """An image (channels, height, width) with each class outlined in its colour."""
    picture = np.array(_shown(pixels).transpose(1, 2, 0), order="C")  # A copy: decoded pixels are read-only.
    for i, mask in enumerate(masks):
        picture[outline(mask > 0)] = COLOURS[i % len(COLOURS)]
    return Image.fromarray(picture)


def compared(pixels: NDArray[np.uint8], truth: NDArray[np.bool_], found: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """An enlarged image (height, width, 3) with each class outlined twice: the truth green, the prediction amber."""
    picture = np.ascontiguousarray(_enlarged(_shown(pixels).transpose(1, 2, 0)))
    for masks, colour in ((truth, TRUTH), (found, FOUND)):
        for mask in masks:
            picture[outline(_enlarged(mask))] = colour
    return picture


def _shown(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A picture's three channels: those of a colour image, or the only one, or the first of other modalities."""
    return with_channels(pixels if len(pixels) in (1, 3) else pixels[:1], 3)


def _enlarged(array: NDArray[Any]) -> NDArray[Any]:
    return array.repeat(ENLARGED, 0).repeat(ENLARGED, 1)


def outline(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The mask's pixels that touch its outside."""
    padded = np.pad(mask, 1)
    inside = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    edge: NDArray[np.bool_] = mask & ~inside
    return edge
