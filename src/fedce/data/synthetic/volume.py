"""volume6: small grey volumes of an organ with a lesion from six scanners, whose slices are thicker than their pixels.

An `Anatomy` is described in millimetres around the middle of the volume; a `Scanner` is a site. Each scanner has its
own voxels and field of view. A thick slice shows the mean of what lies in it. Axes are slices, rows and columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedce.data.synthetic.drawing import to_uint8

Labels = NDArray[np.uint8]
Field = NDArray[Any]
"""Real numbers, single or double precision."""
Range = tuple[float, float]
Millimetres = tuple[float, float, float]

ORGAN, LESION = 1, 2
SPACING: Millimetres = (3.0, 1.5, 1.5)
"""Millimetres between slices, rows and columns to which all sites' volumes are resampled."""
SHAPE = (24, 48, 48)
"""Voxels of the middle site's volume at this spacing: what the network sees at a time."""
BETWEEN_SAMPLES = 1.5
"""Millimetres between the samples whose mean is a slice."""
FAT, MUSCLE, BONE, VESSEL, CAPSULE, TISSUE = 0.62, 0.30, 0.12, 0.85, 0.24, 0.46


@dataclass(frozen=True)
class Scanner:
    """What a site's scanner and protocol have in common. Lengths are in millimetres."""

    spacing: Millimetres
    view: Millimetres  # the size of the whole volume
    gain: float
    gamma: float
    noise: float
    bias: float  # strength of the slow shading
    contrast: float  # how far organ and lesion stand out
    blur: float  # in the plane of a slice


SCANNERS: Mapping[str, Scanner] = {
    #                 spacing          view          gain  gamma noise  bias  contrast blur
    "site1": Scanner((3.0, 1.5, 1.5), (72, 72, 72), 1.00, 1.00, 0.030, 0.10, 1.0, 0.8),
    "site2": Scanner((2.5, 1.2, 1.2), (70, 66, 66), 0.90, 1.10, 0.045, 0.10, 1.1, 0.6),
    "site3": Scanner((3.0, 1.5, 1.5), (72, 72, 72), 0.85, 0.90, 0.025, 0.22, 0.9, 0.9),
    "site4": Scanner((3.5, 1.8, 1.8), (77, 79, 79), 0.95, 1.00, 0.080, 0.12, 0.9, 1.2),
    "site5": Scanner((3.0, 1.6, 1.6), (66, 74, 74), 0.70, 1.20, 0.030, 0.15, 0.6, 0.8),
    "site6": Scanner((8.0, 1.4, 1.4), (72, 67, 67), 0.95, 1.00, 0.030, 0.12, 1.0, 0.7),
}  # fmt: skip


@dataclass(frozen=True)
class Drawn:
    """A volume as its scanner makes it."""

    values: Labels
    """(slices, rows, columns), 0 to 255."""
    labels: Labels
    spacing: Millimetres


@dataclass(frozen=True)
class Body:
    """An ellipsoid with a gently wavy surface."""

    centre: Millimetres
    radii: Millimetres
    waves: Field  # (n, 5): direction, phase and height of each

    @classmethod
    def random(cls, rng: np.random.Generator, centre: Millimetres, radii: Millimetres, height: float) -> Body:
        return cls(centre, radii, np.column_stack([rng.normal(0, 2.0, (4, 4)), rng.normal(0, height, 4)]))

    def radius(self, places: tuple[Field, Field, Field]) -> Field:
        """Distance from the centre in units of the surface: at most 1 inside."""
        unit = [(axis - c) / r for axis, c, r in zip(places, self.centre, self.radii, strict=True)]
        length = np.sqrt(sum(part**2 for part in unit))
        surface = np.ones_like(length)
        for z, y, x, phase, height in self.waves:
            along = (z * unit[0] + y * unit[1] + x * unit[2]) / np.maximum(length, 1e-6)
            surface += height * np.cos(along + phase)
        radius: Field = length / np.maximum(surface, 0.3)
        return radius


@dataclass(frozen=True)
class Anatomy:
    """The annotated organ with its lesion, and what lies around it."""

    organ: Body
    lesion: Body
    bone: Body
    vessels: tuple[tuple[float, float, float, float, float], ...]  # row, column, their slopes, and the radius
    grey: tuple[float, float]  # of organ and lesion
    relief: tuple[Field, Field]  # lattices of a coarse and of a fine texture


def draw(site: str, rng: np.random.Generator) -> Drawn:
    """One volume of a site with its labels."""
    from scipy import ndimage

    scanner = SCANNERS[site]
    anatomy = _anatomy(rng, scanner)
    slices, rows, columns = (round(view / step) for view, step in zip(scanner.view, scanner.spacing, strict=True))
    n_samples = ceil(scanner.spacing[0] / BETWEEN_SAMPLES)
    places = _places((slices * n_samples, rows, columns), (scanner.spacing[0] / n_samples, *scanner.spacing[1:]))
    organ, lesion = anatomy.organ.radius(places), anatomy.lesion.radius(places)
    tissue = _of_slices(_painted(places, anatomy, organ, lesion), n_samples)
    tissue = ndimage.gaussian_filter(tissue, (0, *(scanner.blur / step for step in scanner.spacing[1:])))
    bias = np.exp(np.float32(scanner.bias) * _relief(rng.normal(size=(5, 5, 5)), tissue.shape))
    tissue = tissue * bias * np.float32(scanner.gain * rng.normal(1.0, 0.05))
    # Receiver noise comes last: it is the only part whose number of draws depends on the scanner.
    real, imaginary = scanner.noise * rng.standard_normal((2, *tissue.shape), dtype=np.float32)
    magnitude = np.hypot(tissue + real, imaginary)
    values = to_uint8(np.clip(magnitude, 0, 1) ** np.float32(scanner.gamma))
    inside, spot = (_of_slices((radius <= 1).astype(np.float32), n_samples) > 0.5 for radius in (organ, lesion))
    labels = np.where(inside & spot, LESION, np.where(inside, ORGAN, 0)).astype(np.uint8)
    return Drawn(values, labels, scanner.spacing)


def _anatomy(rng: np.random.Generator, scanner: Scanner) -> Anatomy:
    z, y, x = rng.normal(0, (4, 3, 3))
    radii = (rng.uniform(17, 26), rng.uniform(11, 17), rng.uniform(13, 20))
    organ = Body.random(rng, (z, y, x), radii, 0.06)
    # The lesion's centre lies within the organ, anywhere up to 0.6 of the way to its surface.
    way = rng.normal(size=3)
    way *= 0.6 * rng.random() ** (1 / 3) / np.linalg.norm(way)
    at = (z + way[0] * radii[0], y + way[1] * radii[1], x + way[2] * radii[2])
    size = rng.uniform(5, 9)
    lesion = Body.random(rng, at, (size, size * rng.uniform(0.8, 1.2), size * rng.uniform(0.8, 1.2)), 0.08)
    bone = Body.random(rng, (z + rng.normal(0, 5), 27 + y, x), (60, 9, 12), 0.05)
    vessels = tuple(
        (rng.uniform(-30, 30), rng.uniform(-30, 30), *rng.normal(0, 0.25, 2), rng.uniform(1.5, 3.0)) for _ in range(5)
    )
    brighter = -1 if rng.random() < 0.4 else 1
    grey = (
        TISSUE + 0.05 * scanner.contrast * rng.normal(1.0, 0.3),
        TISSUE + 0.05 + brighter * scanner.contrast * rng.uniform(0.14, 0.24),
    )
    return Anatomy(organ, lesion, bone, vessels, grey, (rng.normal(size=(7, 9, 9)), rng.normal(size=(20, 36, 36))))


def _places(shape: tuple[int, int, int], spacing: Millimetres) -> tuple[Field, Field, Field]:
    """Millimetres from the middle of the volume along each axis; they broadcast to the volume's shape."""
    axes = [
        (np.arange(n, dtype=np.float32) + 0.5 - n / 2) * np.float32(step)
        for n, step in zip(shape, spacing, strict=True)
    ]
    return axes[0][:, None, None], axes[1][None, :, None], axes[2][None, None, :]


def _painted(places: tuple[Field, Field, Field], anatomy: Anatomy, organ: Field, lesion: Field) -> Field:
    """Tissue from the outside inwards, before the scanner sees it."""
    from scipy import ndimage

    z, y, x = places
    coarse, fine = (_relief(lattice, organ.shape) for lattice in anatomy.relief)
    canvas: Field = np.where(coarse > 0.25, np.float32(MUSCLE), np.float32(FAT)) + 0.05 * fine
    canvas = ndimage.gaussian_filter(canvas, 0.7)
    for row, column, down, right, radius in anatomy.vessels:
        away = np.hypot(y - (row + down * z), x - (column + right * z))
        canvas += _soft(away / radius, 0.3) * (VESSEL - canvas)
    canvas += _soft(anatomy.bone.radius(places), 0.1) * (BONE + 0.1 * fine - canvas)
    canvas += _soft(organ / 1.08, 0.06) * (CAPSULE - canvas)
    canvas += _soft(organ, 0.06) * (anatomy.grey[0] + 0.04 * fine - canvas)
    canvas += _soft(lesion, 0.15) * (anatomy.grey[1] + 0.05 * fine - canvas) * (organ <= 1)
    return canvas.astype(np.float32)


def _soft(radius: Field, edge: float) -> Field:
    """1 inside a surface, 0 outside, falling over `edge` of the radius."""
    cover: Field = np.clip((1 - radius) / edge + 0.5, 0, 1)
    return cover


def _relief(lattice: Field, shape: tuple[int, ...]) -> Field:
    """A smooth texture of about 0 +- 1 that fills the volume."""
    from scipy import ndimage

    factors = [n / m for n, m in zip(shape, lattice.shape, strict=True)]
    relief: Field = ndimage.zoom(lattice, factors, order=2, mode="nearest", grid_mode=True).astype(np.float32)
    return relief


def _of_slices(samples: Field, n: int) -> Field:
    """The mean of each slice's samples."""
    mean: Field = samples.reshape(-1, n, *samples.shape[1:]).mean(axis=1)
    return mean
