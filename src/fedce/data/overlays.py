"""An image with its masks drawn on it."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedce.data.pixels import with_channels

COLOURS = ((0, 200, 83), (255, 143, 0), (41, 121, 255), (216, 27, 96))
"""Outlines of the first, second, ... class: green, amber, blue, pink."""


def overlay(pixels: NDArray[np.uint8], masks: NDArray[np.uint8]) -> Image.Image:
    """An image (channels, height, width) with each class outlined in its colour."""
    picture = np.array(with_channels(pixels, 3).transpose(1, 2, 0), order="C")  # A copy: decoded pixels are read-only.
    for i, mask in enumerate(masks):
        picture[outline(mask > 0)] = COLOURS[i % len(COLOURS)]
    return Image.fromarray(picture)


def outline(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The mask's pixels that touch its outside."""
    padded = np.pad(mask, 1)
    inside = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    edge: NDArray[np.bool_] = mask & ~inside
    return edge
