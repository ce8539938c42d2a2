"""Disc and cup from what graders left behind: contours drawn into copies of a photograph, or votes."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from fedce.data.folder import Pixels

Mask = NDArray[np.bool_]

DRAWN = 16
"""A pen changes a pixel by more than this; what JPEG does to a copy is mostly less."""
RIM_SHARE = 0.03
"""The disc's own line is no wider than this share of its diameter, so the cup is looked for further inside."""


def disc_and_cup(photo: Pixels, drawn: Pixels) -> tuple[Mask, Mask] | None:
    """The two contours that an expert drew into a copy of the photo, filled; None if they are not there.

    Each is the convex hull of its line, because some lines are open or touch the other one.
    """
    changed = np.abs(photo.astype(np.int16) - drawn.astype(np.int16)).max(axis=-1) > DRAWN
    if (disc := _hull_of_largest(changed)) is None:
        return None
    if (cup := _hull_of_largest(changed & _shrunk(disc))) is None:
        return None
    return disc, cup


def _hull_of_largest(lines: Mask) -> Mask | None:
    """The filled hull of the connected line that spans the largest box; None if it encloses nothing."""
    from scipy import ndimage
    from scipy.spatial import ConvexHull, QhullError

    labels, n = ndimage.label(lines, structure=np.ones((3, 3)))
    if not n:
        return None
    boxes = ndimage.find_objects(labels)
    largest = max(range(n), key=lambda i: (_area(boxes[i]), -i))
    points = np.argwhere(labels == largest + 1)
    try:
        corners = points[ConvexHull(points).vertices]
    except QhullError:  # A dot or a straight stroke.
        return None
    image = Image.new("1", (lines.shape[1], lines.shape[0]))
    ImageDraw.Draw(image).polygon([(int(column), int(row)) for row, column in corners], fill=1, outline=1)
    return np.asarray(image, np.bool_)


def _area(box: tuple[slice, ...]) -> int:
    return int(np.prod([part.stop - part.start for part in box]))


def _shrunk(disc: Mask) -> Mask:
    from scipy import ndimage

    top, bottom, left, right = bounds(disc)
    width = max(2, round(RIM_SHARE * max(bottom - top, right - left)))
    inside: Mask = ndimage.distance_transform_edt(disc) > width
    return inside


def majority(votes: Sequence[Mask]) -> Mask:
    """Where more than half of the graders agree."""
    agreed: Mask = np.sum(votes, axis=0) * 2 > len(votes)
    return agreed


def levels(disc: Mask, cup: Mask) -> Pixels:
    """0 background, 128 rim, 255 cup; a cup ends where its disc ends."""
    return np.where(disc & cup, 255, np.where(disc, 128, 0)).astype(np.uint8)


def bounds(mask: Mask) -> tuple[int, int, int, int]:
    """First row, end of rows, first column, end of columns."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return int(rows[0]), int(rows[-1]) + 1, int(columns[0]), int(columns[-1]) + 1


def square_around(disc: Mask, diameters: float) -> tuple[slice, slice]:
    """Rows and columns of a square centred on the disc, moved (and, if need be, made smaller) to stay in the image."""
    top, bottom, left, right = bounds(disc)
    side = min(round(diameters * max(bottom - top, right - left)), *disc.shape)

    def along(start: int, stop: int, length: int) -> slice:
        first = min(max(0, (start + stop - side) // 2), length - side)
        return slice(first, first + side)

    return along(top, bottom, disc.shape[0]), along(left, right, disc.shape[1])
