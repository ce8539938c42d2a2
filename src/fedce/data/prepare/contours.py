"""Masks of disc and cup from graders' work: contours drawn into copies of a photograph, or votes."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from fedce.data.pixels import Bytes

Mask = NDArray[np.bool_]

DRAWN = 16
"""A pen changes a pixel by more than this; JPEG mostly changes a copy's pixels by less."""
RIM_SHARE = 0.03
"""If the cup's line touches the disc's, the cup is searched for this share of the diameter inside the disc."""
CUP_SHARES = (0.1, 0.95)
"""Smallest and largest width of a cup, as a share of its disc; anything else is a speck, or the disc's own line."""
LARGEST_DISC = 0.5
"""Largest disc as a share of the photograph's shorter side; a larger shape is the edge of the field of view."""


def disc_and_cup(photo: Bytes, drawn: Bytes) -> tuple[Mask, Mask] | None:
    """The two contours that an expert drew into a copy of the photo, filled; None if they can't be recognised.

    Each is the convex hull of its line, because some lines are open or touch the other one.
    """
    changed = np.abs(photo.astype(np.int16) - drawn.astype(np.int16)).max(axis=-1) > DRAWN
    line = _largest(changed)
    if (disc := _hull(line)) is None:
        return None
    cup = _cup_within(disc, changed & disc & ~line)
    if cup is None:  # Perhaps the cup's line touches the disc's.
        cup = _cup_within(disc, changed & _shrunk(disc))
    return None if cup is None else (disc, cup)


def _cup_within(disc: Mask, lines: Mask) -> Mask | None:
    cup = _hull(_largest(lines))
    if cup is None or not CUP_SHARES[0] < diameter(cup) / diameter(disc) < CUP_SHARES[1]:
        return None
    return cup


def _largest(lines: Mask) -> Mask:
    """The connected line that spans the largest box; an empty mask if there is no line."""
    from scipy import ndimage

    labels, _ = ndimage.label(lines, structure=np.ones((3, 3)))
    area, best = 0, -1
    for label, box in enumerate(ndimage.find_objects(labels), start=1):
        height, width = (part.stop - part.start for part in box)
        if max(height, width) <= LARGEST_DISC * min(lines.shape) and height * width > area:
            area, best = height * width, label
    largest: Mask = labels == best
    return largest


def _hull(line: Mask) -> Mask | None:
    """The filled convex hull of a line; None if the line encloses nothing."""
    from scipy.spatial import ConvexHull, QhullError

    points = np.argwhere(line)
    try:
        corners = points[ConvexHull(points).vertices] if len(points) > 2 else []
    except QhullError:  # A straight stroke.
        return None
    if not len(corners):
        return None
    image = Image.new("1", (line.shape[1], line.shape[0]))
    ImageDraw.Draw(image).polygon([(int(column), int(row)) for row, column in corners], fill=1, outline=1)
    return np.asarray(image, np.bool_)


def _shrunk(disc: Mask) -> Mask:
    from scipy import ndimage

    inside: Mask = ndimage.distance_transform_edt(disc) > max(2, round(RIM_SHARE * diameter(disc)))
    return inside


def majority(votes: Sequence[Mask]) -> Mask:
    """Where more than half of the graders agree."""
    agreed: Mask = np.sum(votes, axis=0) * 2 > len(votes)
    return agreed


def levels(disc: Mask, cup: Mask) -> Bytes:
    """0 background, 128 rim, 255 cup; a cup ends where its disc ends."""
    return np.where(disc & cup, 255, np.where(disc, 128, 0)).astype(np.uint8)


def bounds(mask: Mask) -> tuple[int, int, int, int]:
    """First row, end of rows, first column, end of columns."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return int(rows[0]), int(rows[-1]) + 1, int(columns[0]), int(columns[-1]) + 1


def diameter(mask: Mask) -> int:
    """The longer side of the box around the mask."""
    top, bottom, left, right = bounds(mask)
    return max(bottom - top, right - left)


def square_around(disc: Mask, diameters: float) -> tuple[slice, slice]:
    """Rows and columns of a square centred on the disc, moved (and, if need be, made smaller) to stay in the image."""
    top, bottom, left, right = bounds(disc)
    side = min(round(diameters * diameter(disc)), *disc.shape)

    def along(start: int, stop: int, length: int) -> slice:
        first = min(max(0, (start + stop - side) // 2), length - side)
        return slice(first, first + side)

    return along(top, bottom, disc.shape[0]), along(left, right, disc.shape[1])
