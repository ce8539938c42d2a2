"""Brushes shared by the synthetic federations: grids, blobs, smooth noise and strokes.

Everything is described in continuous coordinates and only sampled at the end, so the image size
changes the resolution and never the anatomy. y points down, x points right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Field = NDArray[np.float32]


@dataclass(frozen=True)
class Grid:
    """The pixel centres of one picture: a column of y and a row of x, in any continuous unit."""

    y: Field  # (h, 1)
    x: Field  # (1, w)

    @classmethod
    def square(cls, size: int, half_width: float = 1.0, y: float = 0.0, x: float = 0.0) -> Grid:
        """A size x size picture that reaches half_width to every side of (y, x)."""
        axis = ((np.arange(size) + 0.5) / size * 2.0 - 1.0) * half_width
        return cls((axis + y).astype(np.float32)[:, None], (axis + x).astype(np.float32)[None, :])

    @property
    def pixel(self) -> float:
        """The height of a pixel."""
        return float(self.y[1, 0] - self.y[0, 0])

    @property
    def shape(self) -> tuple[int, int]:
        return self.y.shape[0], self.x.shape[1]


@dataclass(frozen=True)
class Blob:
    """An ellipse with a gently wavy outline; star-shaped about its centre, hence in one piece."""

    y: float
    x: float
    ry: float
    rx: float
    turn: float = 0.0  # radians
    waves: tuple[tuple[int, float, float], ...] = ()  # (periods, amplitude, phase)

    def grown(self, by: float) -> Blob:
        """The same shape with both radii longer (or shorter, if negative)."""
        return replace(self, ry=self.ry + by, rx=self.rx + by)

    def radius(self, y: Field, x: Field) -> Field:
        """Distance from the centre in units of the outline: at most 1 inside."""
        dy, dx = y - np.float32(self.y), x - np.float32(self.x)
        cos, sin = np.float32(math.cos(self.turn)), np.float32(math.sin(self.turn))
        u = np.asarray((cos * dx + sin * dy) / np.float32(self.rx), dtype=np.float32)
        v = np.asarray((cos * dy - sin * dx) / np.float32(self.ry), dtype=np.float32)
        rho: Field = np.sqrt(u * u + v * v)
        if self.waves:
            rho /= self._outline(u, v, rho)
        return rho

    def _outline(self, u: Field, v: Field, rho: Field) -> Field:
        """1 + the waves; cos(k * angle) by recurrence, because arctan2 is the slow way there."""
        scale = 1 / np.maximum(rho, np.float32(1e-6))
        cos_1, sin_1 = u * scale, v * scale
        cos_k, sin_k = cos_1, sin_1
        outline = np.ones_like(rho)
        by_period = {
            k: (amplitude * math.cos(phase), amplitude * math.sin(phase)) for k, amplitude, phase in self.waves
        }
        for k in range(1, max(by_period) + 1):
            if k in by_period:
                a, b = by_period[k]
                outline += np.float32(a) * cos_k - np.float32(b) * sin_k
            cos_k, sin_k = cos_k * cos_1 - sin_k * sin_1, sin_k * cos_1 + cos_k * sin_1
        return outline

    def window(self, grid: Grid, margin: float) -> tuple[slice, slice]:
        """The part of the grid that the blob can touch; nothing outside of it need be computed."""
        reach = max(self.ry, self.rx) * (1.0 + sum(abs(a) for _, a, _ in self.waves)) + margin
        return _between(grid.y[:, 0], self.y, reach), _between(grid.x[0], self.x, reach)

    def mask(self, grid: Grid) -> NDArray[np.bool_]:
        """Where a pixel's centre is inside."""
        inside = np.zeros(grid.shape, dtype=np.bool_)
        rows, columns = self.window(grid, grid.pixel)
        inside[rows, columns] = self.radius(grid.y[rows], grid.x[:, columns]) <= 1
        return inside

    def cover(self, grid: Grid, softness: float) -> Field:
        """1 inside, 0 outside, with an edge that takes `softness` units to fall."""
        canvas = np.zeros(grid.shape, dtype=np.float32)
        paint(canvas, grid, self, 1.0, softness)
        return canvas


def _between(axis: Field, centre: float, reach: float) -> slice:
    """The samples of an evenly spaced axis that lie within reach of the centre."""
    first, step = float(axis[0]), float(axis[1]) - float(axis[0])
    start, stop = math.ceil((centre - reach - first) / step), math.floor((centre + reach - first) / step) + 1
    return slice(max(start, 0), max(stop, 0))


def paint(canvas: Field, grid: Grid, blob: Blob, value: float | Field, softness: float, opacity: float = 1.0) -> None:
    """Lay a soft blob of one grey value (or of a whole picture) over the canvas, in place."""
    rows, columns = blob.window(grid, softness)
    patch = canvas[rows, columns]
    if patch.size == 0:  # out of the picture
        return
    steepness = (blob.ry + blob.rx) / 2.0 / softness
    t = np.clip((1 - blob.radius(grid.y[rows], grid.x[:, columns])) * np.float32(steepness) + np.float32(0.5), 0, 1)
    alpha = np.float32(opacity) * t * t * (3 - 2 * t)
    colour = value[rows, columns] if isinstance(value, np.ndarray) else np.float32(value)
    patch += alpha * (colour - patch)


def waves(
    rng: np.random.Generator, amplitude: float, periods: Sequence[int] = (2, 3, 4)
) -> tuple[tuple[int, float, float], ...]:
    """A random outline for a Blob; higher periods get smaller amplitudes, as in soft tissue."""
    heights, phases = rng.normal(0, amplitude, len(periods)), rng.uniform(0, 2 * np.pi, len(periods))
    return tuple((k, float(a) / k, float(phase)) for k, a, phase in zip(periods, heights, phases, strict=True))


@dataclass(frozen=True)
class Texture:
    """Smooth random relief: cubic B-splines over a random lattice, about 0 +- 1, on any grid."""

    lattice: Field
    span: float  # the lattice covers -span .. span

    @classmethod
    def random(cls, rng: np.random.Generator, n_cells: int, span: float) -> Texture:
        # 2 restores the variance that the spline's averaging takes away.
        return cls(2.0 * rng.standard_normal((n_cells + 3, n_cells + 3), dtype=np.float32), span)

    def on(self, grid: Grid) -> Field:
        tall, wide = self._weights(grid.y[:, 0]), self._weights(grid.x[0])
        return np.asarray(tall @ self.lattice @ wide.T, dtype=np.float32)

    def _weights(self, axis: Field) -> Field:
        n_cells = self.lattice.shape[0] - 3
        at = np.clip((axis + self.span) / (2 * self.span), 0.0, 1.0 - 1e-6) * n_cells
        cell = np.floor(at).astype(np.intp)
        t = at - cell
        basis = ((1 - t) ** 3, 3 * t**3 - 6 * t**2 + 4, -3 * t**3 + 3 * t**2 + 3 * t + 1, t**3)
        weights = np.zeros((axis.size, n_cells + 3), dtype=np.float32)
        for k, weight in enumerate(basis):
            weights[np.arange(axis.size), cell + k] = weight / 6
        return weights


@dataclass(frozen=True)
class Strokes:
    """m tapering lines of n points each."""

    points: NDArray[np.float64]  # (m, n, 2) as (y, x)
    half_width: NDArray[np.float64]  # (m, n)
    strength: NDArray[np.float64]  # (m,) opacity


def ink(grid: Grid, *batches: Strokes) -> Field:
    """How much of each pixel the strokes cover, 0..1."""
    dy, dx = grid.pixel, float(grid.x[0, 1] - grid.x[0, 0])
    y, x, width, strength = np.concatenate([_stamps(batch, grid) for batch in batches], axis=1)
    # A line thinner than a pixel becomes paler instead of vanishing, as it would in a camera.
    spread = np.hypot(width, 0.45 * dy)
    level = strength * width / spread
    n_rows, n_columns = grid.shape
    canvas = np.zeros(n_rows * n_columns, dtype=np.float32)
    reach = np.ceil(2.2 * spread / min(dy, dx)).astype(np.intp)
    for r in np.unique(reach):  # stamps of one size are laid together
        at = np.flatnonzero(reach == r)
        offset = np.arange(-r, r + 1)
        row = np.rint((y[at] - grid.y[0, 0]) / dy).astype(np.intp)[:, None] + offset
        column = np.rint((x[at] - grid.x[0, 0]) / dx).astype(np.intp)[:, None] + offset
        # A Gaussian is a product of two, so only two short vectors a stamp need an exp.
        tall = np.exp(-(((grid.y[0, 0] + row * dy - y[at, None]) / spread[at, None]) ** 2) / 2) * level[at, None]
        wide = np.exp(-(((grid.x[0, 0] + column * dx - x[at, None]) / spread[at, None]) ** 2) / 2)
        tall[(row < 0) | (row >= n_rows)] = 0.0
        wide[(column < 0) | (column >= n_columns)] = 0.0
        cell = row.clip(0, n_rows - 1)[:, :, None] * n_columns + column.clip(0, n_columns - 1)[:, None, :]
        shade = tall.astype(np.float32)[:, :, None] * wide.astype(np.float32)[:, None, :]
        np.maximum.at(canvas, cell.ravel(), shade.ravel())
    return canvas.reshape(n_rows, n_columns)


def _stamps(batch: Strokes, grid: Grid) -> NDArray[np.float64]:
    """(4, k): y, x, half-width and strength of every stamp that the grid can see."""
    # Stamps less than a width apart melt into a line.
    step = 0.8 * np.hypot(batch.half_width.min(), 0.45 * grid.pixel)
    gap = np.hypot(*np.moveaxis(np.diff(batch.points, axis=1), -1, 0)).max()
    n_points = batch.points.shape[1]
    at = np.linspace(0, n_points - 1, (n_points - 1) * int(np.ceil(gap / step)) + 1)
    k = np.minimum(at.astype(np.intp), n_points - 2)
    t = at - k
    y, x, width = (
        (line[:, k] * (1 - t) + line[:, k + 1] * t).ravel()
        for line in (batch.points[..., 0], batch.points[..., 1], batch.half_width)
    )
    margin = 2.0 * batch.half_width.max()
    seen = (y > grid.y[0, 0] - margin) & (y < grid.y[-1, 0] + margin)
    seen &= (x > grid.x[0, 0] - margin) & (x < grid.x[0, -1] + margin)
    return np.stack([y, x, width, np.repeat(batch.strength, at.size)])[:, seen]


def warp(image: Field, grid: Grid, dy: Field, dx: Field) -> Field:
    """The image as seen from every pixel displaced by (dy, dx), which are in the grid's unit."""
    from scipy import ndimage

    n_rows, n_columns = grid.shape
    step = np.float32(grid.pixel)
    rows = np.arange(n_rows, dtype=np.float32)[:, None] + dy / step
    columns = np.arange(n_columns, dtype=np.float32) + dx / step
    warped: Field = ndimage.map_coordinates(image, [rows, columns], order=1, mode="nearest")
    return warped


def blur(image: Field, grid: Grid, sigma: float) -> Field:
    """Gaussian blur with sigma in the grid's unit; skipped when far below a pixel."""
    from scipy import ndimage

    in_pixels = sigma / grid.pixel
    if in_pixels < 0.2:
        return image
    blurred: Field = ndimage.gaussian_filter(image, in_pixels, mode="nearest", truncate=2.5)
    return blurred


def to_uint8(image: Field) -> NDArray[np.uint8]:
    """0..1 to 0..255, clipped like a camera's converter."""
    grey: NDArray[np.uint8] = np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8)
    return grey
