"""How alike two images are in their details: a quick comparison of all pairs, and a close one of a few pairs.

Slow changes of brightness and the black border around a round field of view are removed first: they are alike in all
images of a camera, whichever patient is photographed.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy.ndimage import binary_erosion, binary_opening, gaussian_filter

from fedce.data.site import Pixels, chunks

Details = NDArray[np.float32]
"""(n, side, side): the fine structures of each image; 0 where there is nothing to compare."""
Rows = NDArray[np.int64]
Scores = NDArray[np.float32]

SIDE = 64
"""Pixels a side at the close comparison."""
SMALLEST_SIDE = 16
"""Images with fewer pixels a side have no details that could be compared."""
COARSE_SIDE = 16
"""Pixels a side at the quick comparison."""
TILES = 4
"""Tiles a side that may each move a little, because a scene that moved or was cut is not merely shifted."""
LOCAL = 2
"""Pixels that a tile may move by, in each direction."""
REACH = 1 / 8
"""Part of the side that a whole image may move by."""
COARSEST = 1 / 24
"""Structures wider than about this part of the side are removed."""
DARK = 0.06
"""Part of an image's range of grey values, from its darkest on, that counts as a black border or a shadow."""
FAINT = 0.02
"""Part of an image's range of grey values below which contrast counts as noise."""
SMOOTH = 0.6
"""Width in pixels of the blur that removes traces of compression at single pixels."""
INSIDE = 0.8
"""Part of a pixel's surroundings that must lie inside the field of view."""
PAIRS_AT_A_TIME = 128
BLOCK = 1024
"""Images whose similarities to all others are held at a time."""
_SHIFTS = [(down, right) for down in (0, 1, -1) for right in (0, 1, -1)]
_SQUARE = np.ones((1, 3, 3), bool)


def details(images: Pixels, most: int = SIDE) -> Details:
    """The fine structures of images (n, channels, height, width), each divided by its local contrast.

    They have at most `most` pixels a side.
    """
    side = min(SIDE, most, *images.shape[2:]) // TILES * TILES
    if side < SMALLEST_SIDE:
        return np.zeros((len(images), SMALLEST_SIDE, SMALLEST_SIDE), np.float32)
    return np.concatenate([_details(small_grey(chunk, side)) for chunk in chunks(images)])


def _details(grey: Details) -> Details:
    low, high = np.percentile(grey, (1, 99), axis=(1, 2), keepdims=True)
    is_seen = binary_erosion(binary_opening(grey > low + DARK * (high - low), _SQUARE), _SQUARE, border_value=1)
    seen = is_seen.astype(np.float32)
    width = COARSEST * grey.shape[1]
    share = _blurred(seen, width)

    def mean_of_seen(values: Details, sigma: float, among: Details) -> Details:
        mean: Details = np.divide(_blurred(values * seen, sigma), np.maximum(among, 1e-3), dtype=np.float32)
        return mean

    fine = seen * (mean_of_seen(grey, SMOOTH, _blurred(seen, SMOOTH)) - mean_of_seen(grey, width, share))
    contrast = np.sqrt(mean_of_seen(fine**2, width, share))
    # Beside the border a mean covers one side only, so that a slow change of brightness would look like a structure.
    kept = np.where(share > INSIDE, fine, 0) / (contrast + FAINT * (high - low) + 1e-3)
    result: Details = kept.astype(np.float32)
    return result


def _blurred(values: Details, sigma: float) -> Details:
    blurred: Details = gaussian_filter(values, (0, sigma, sigma), truncate=3)
    return blurred


def small_grey(images: Pixels, side: int) -> Details:
    """Grey copies of side x side pixels; each pixel is the mean of the pixels that it replaces."""
    return _shrunk(images.mean(axis=1, dtype=np.float32), side)


def _shrunk(grey: Details, side: int) -> Details:
    small: NDArray[Any] = grey
    for axis in (1, 2):
        edges = np.linspace(0, small.shape[axis], side + 1).astype(int)
        shape = (-1, 1) if axis == 1 else (1, -1)
        small = np.add.reduceat(small, edges[:-1], axis=axis) / np.diff(edges).reshape(shape)
    return small.astype(np.float32)


def layouts(images: Pixels) -> Scores:
    """(n, edges) of length 1, whose products say how alike images are as a whole: correlations of the edges of small
    grey copies."""
    side = min(COARSE_SIDE, *images.shape[2:])
    small = np.concatenate([small_grey(chunk, side) for chunk in chunks(images)])
    down, across = np.diff(small, axis=1)[:, :, :-1], np.diff(small, axis=2)[:, :-1]
    edges = np.concatenate([down, across], axis=1).reshape(len(small), -1)
    edges -= edges.mean(axis=1, keepdims=True)
    # A blank image has hardly any edges: its rounding errors must not count as likeness.
    unit: Scores = edges / np.maximum(np.linalg.norm(edges, axis=1, keepdims=True), 1)
    return unit


def coarse(fine: Details) -> Details:
    """Small copies of details, in which a small motion matters less."""
    return _shrunk(_blurred(fine, fine.shape[1] / COARSE_SIDE / 2), COARSE_SIDE)


def coarse_likeness(small: Details, start: int, mirrored: bool) -> Scores:
    """(BLOCK, n): correlations of the images from `start` on with all images, the best of a few shifts."""
    unit = _unit(small)
    others = small[:, :, ::-1] if mirrored else small
    block = unit[start : start + BLOCK]
    shifts = _SHIFTS[:1] if mirrored else _SHIFTS
    best = block @ _unit(others).T
    for shift in shifts[1:]:
        np.maximum(best, block @ _unit(_moved(others, *shift)).T, out=best)
    return best


def _unit(small: Details) -> Scores:
    flat = small.reshape(len(small), -1)
    unit: Scores = flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-6)
    return unit


def _moved(images: Details, down: int, right: int) -> Details:
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    side = images.shape[1]
    return padded[:, 1 - down : 1 - down + side, 1 - right : 1 - right + side]


def close_likeness(fine: Details, one: Rows, other: Rows, mirrored: NDArray[np.bool_]) -> Scores:
    """The likeness of each pair of rows, at most 1: each image is searched for in the other; the lower value counts."""
    found = [_close(fine, one[part], other[part], mirrored[part]) for part in _parts(len(one))]
    return np.concatenate(found) if found else np.zeros(0, np.float32)


def _parts(n: int) -> Iterator[slice]:
    return (slice(start, start + PAIRS_AT_A_TIME) for start in range(0, n, PAIRS_AT_A_TIME))


def _close(fine: Details, one: Rows, other: Rows, mirrored: NDArray[np.bool_]) -> Scores:
    first, second = fine[one], fine[other]
    second = np.where(mirrored[:, None, None], second[:, :, ::-1], second)
    shift = _best_shift(first, second)
    return np.minimum(_tiles_found(first, second, shift), _tiles_found(second, first, -shift))


def _best_shift(first: Details, second: Details) -> Rows:
    """(n, 2): how far down and right the second image is moved to lie on the first."""
    spectrum = np.fft.rfft2(first) * np.conj(np.fft.rfft2(second))
    product = np.fft.irfft2(spectrum, s=first.shape[1:])
    reach = int(REACH * first.shape[1])
    near = np.r_[0 : reach + 1, -reach:0]
    best = product[:, near][:, :, near].reshape(len(first), -1).argmax(axis=1)
    return np.stack([near[best // len(near)], near[best % len(near)]], axis=1)


def _tiles_found(first: Details, second: Details, shift: Rows) -> Scores:
    """The correlation of the first image's tiles with the second image, each where it fits best."""
    n, side = first.shape[:2]
    laid = _laid_on(second, shift)
    middle = laid[:, LOCAL : LOCAL + side, LOCAL : LOCAL + side]
    # Only the area that both images show is compared: a shifted copy lacks a strip.
    first = np.where(middle != 0, first, 0)
    middle[first == 0] = 0
    tile = side // TILES
    tiles = first.reshape(n, TILES, tile, TILES, tile).swapaxes(2, 3)
    # (n, tiles down, tiles across, places down, places across, rows, columns)
    windows = sliding_window_view(laid, (tile, tile), axis=(1, 2))
    places = 2 * LOCAL + 1
    starts = np.arange(TILES)[:, None] * tile + np.arange(places)
    energy = np.einsum("nijab,nijab->nij", tiles, tiles)
    there = _box_sums(laid**2, tile)[:, starts[:, None, :, None], starts[None, :, None, :]]
    product = np.stack(
        [
            np.einsum(
                "npqab,nab->npq", windows[:, i * tile : i * tile + places, j * tile : j * tile + places], tiles[:, i, j]
            )
            for i in range(TILES)
            for j in range(TILES)
        ],
        axis=1,
    ).reshape(there.shape)
    best = (product / np.sqrt(np.maximum(energy[..., None, None] * there, 1e-6))).max(axis=(3, 4)).clip(0, 1)
    weight = np.sqrt(energy * there[..., LOCAL, LOCAL]).reshape(n, -1)
    found = (weight * best.reshape(n, -1)).sum(axis=1) / np.maximum(weight.sum(axis=1), 1e-6)
    scores: Scores = found.astype(np.float32)
    return scores


def _box_sums(values: NDArray[Any], width: int) -> NDArray[Any]:
    """Sums over all squares with this width."""
    for axis in (1, 2):
        padding = [(0, 0)] * 3
        padding[axis] = (1, 0)
        totals = np.cumsum(np.pad(values, padding), axis=axis, dtype=np.float64)
        length = totals.shape[axis]
        values = np.take(totals, range(width, length), axis) - np.take(totals, range(length - width), axis)
    return values


def _laid_on(images: Details, shift: Rows) -> Details:
    """Images moved by their shifts, with a margin of LOCAL pixels."""
    n, side = images.shape[:2]
    margin = int(REACH * side) + LOCAL
    padded = np.pad(images, ((0, 0), (margin, margin), (margin, margin)))
    places = np.arange(side + 2 * LOCAL) + margin - LOCAL
    rows, columns = (places - shift[:, axis, None] for axis in (0, 1))
    laid: Details = padded[np.arange(n)[:, None, None], rows[:, :, None], columns[:, None, :]]
    return laid
