"""prostate6: grey axial T2-weighted slices through the pelvis from six scanners, gland annotated.

A `Pelvis` is anatomy in centimetres around the centre of the gland, at a level between apex and
base; a `Scanner` is a site. Grey values are fractions of full scale before the scanner's gain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedce.data.synthetic.drawing import Blob, Field, Grid, Strokes, Texture, blur, ink, paint, to_uint8, warp, waves

Range = tuple[float, float]

AIR, CORTEX, MUSCLE, WALL, MARROW, FAT, SKIN_FAT, URINE = 0.015, 0.05, 0.13, 0.17, 0.50, 0.60, 0.74, 0.86


@dataclass(frozen=True)
class Scanner:
    """What a site's scanner and protocol have in common. Lengths are in centimetres."""

    half_view: Range  # from the centre of the picture to its border
    gain: float
    gamma: float
    noise: float  # of each of the two receiver channels
    blur: Range  # the coarser the acquired matrix, the more
    bias: float  # strength of the slow shading
    zone_contrast: float  # how far the peripheral zone stands out from the central gland
    coil: bool = False  # an endorectal coil: a balloon in the rectum and a bright spot around it


SCANNERS: Mapping[str, Scanner] = {
    "site1": Scanner((8.4, 9.6), gain=1.00, gamma=0.88, noise=0.030, blur=(0.07, 0.10), bias=0.10, zone_contrast=0.8),
    "site2": Scanner((7.2, 8.4), gain=0.90, gamma=1.00, noise=0.020, blur=(0.04, 0.07), bias=0.10, zone_contrast=1.0),
    "site3": Scanner((7.4, 8.6), gain=0.96, gamma=1.05, noise=0.025, blur=(0.05, 0.08), bias=0.12, zone_contrast=1.0),
    "site4": Scanner((7.6, 8.8), gain=0.84, gamma=0.95, noise=0.030, blur=(0.05, 0.09), bias=0.12, zone_contrast=0.9),
    "site5": Scanner((5.6, 6.8), gain=0.84, gamma=1.05, noise=0.035, blur=(0.03, 0.05), bias=0.14, zone_contrast=1.1,
                     coil=True),
    "site6": Scanner((7.0, 8.4), gain=0.93, gamma=1.10, noise=0.020, blur=(0.04, 0.07), bias=0.10, zone_contrast=1.0),
}  # fmt: skip


@dataclass(frozen=True)
class Relief:
    """The textures that keep tissue from looking like plastic."""

    coarse: Texture
    fine: Texture
    septa: Texture


@dataclass(frozen=True)
class Gland:
    """The annotated organ: the whole outline, the darker central gland in it and its nodules."""

    level: float  # 0 at the apex, 1 at the base
    outline: Blob
    central: Blob
    nodules: tuple[tuple[Blob, float], ...]
    lesion: Blob | None
    zone_contrast: float


def draw(site: str, rng: np.random.Generator, size: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """One slice (1, size, size) and its mask (1, size, size)."""
    scanner = SCANNERS[site]
    gland = _gland(rng, scanner)
    grid = Grid.square(size, rng.uniform(*scanner.half_view), *rng.normal(0, 0.5, 2))
    relief = Relief(Texture.random(rng, 16, 12), Texture.random(rng, 110, 12), Texture.random(rng, 22, 12))
    bend_y, bend_x = (np.float32(0.16) * Texture.random(rng, 12, 12).on(grid) for _ in range(2))
    slice_ = warp(_pelvis(rng, grid, gland, relief, scanner.coil), grid, bend_y, bend_x)
    slice_ = blur(slice_, grid, rng.uniform(*scanner.blur))
    slice_ *= _shading(rng, grid, gland, scanner)
    # Receiver noise comes last: it is the only part whose number of draws depends on the size.
    real, imaginary = scanner.noise * rng.standard_normal((2, size, size), dtype=np.float32)
    magnitude = np.hypot(slice_ + real, imaginary)  # hence Rician, and air is not black
    image = to_uint8(np.minimum(magnitude, 1.0) ** np.float32(scanner.gamma))
    mask = gland.outline.radius(grid.y + bend_y, grid.x + bend_x) <= 1
    return image[None], mask[None].astype(np.uint8)


def _gland(rng: np.random.Generator, scanner: Scanner) -> Gland:
    level = rng.uniform(0, 1)
    bulge = np.sin(np.pi * (0.15 + 0.65 * level))  # widest between the middle and the base
    bulk = rng.normal(1.0, 0.09)
    rx = bulk * (1.35 + 1.15 * bulge) * rng.uniform(0.95, 1.05)
    ry = bulk * (1.15 + 0.65 * bulge) * rng.uniform(0.92, 1.08) * (0.9 if scanner.coil else 1.0)
    outline = Blob(0, 0, ry, rx, rng.normal(0, 0.05), waves(rng, 0.05))
    share = 0.45 + 0.3 * level + 0.06 * rng.normal()  # of the gland that is central, growing to the base
    central = Blob(
        -(1 - share) * 0.75 * ry, 0.03 * rng.normal(), share * ry, min(0.9, share * 1.05) * rx, 0, waves(rng, 0.05)
    )
    nodules = []
    for _ in range(rng.integers(2, 9)):
        angle, at, r = rng.uniform(0, 2 * np.pi), rng.uniform(0, 0.7), rng.uniform(0.15, 0.45)
        y, x = central.y + at * np.sin(angle) * central.ry, central.x + at * np.cos(angle) * central.rx
        nodules.append((Blob(y, x, r, r * rng.uniform(0.8, 1.3), 0, waves(rng, 0.1)), rng.uniform(0.15, 0.6)))
    side = rng.choice([-1, 1])
    spot = Blob(
        0.62 * ry, side * rng.uniform(0.2, 0.55) * rx, rng.uniform(0.2, 0.4), rng.uniform(0.25, 0.5), 0, waves(rng, 0.1)
    )
    lesion = spot if rng.random() < 0.3 else None
    return Gland(level, outline, central, tuple(nodules), lesion, scanner.zone_contrast * rng.uniform(0.7, 1.1))


# --- anatomy, from the skin inwards ----------------------------------------------------------


def _pelvis(rng: np.random.Generator, grid: Grid, gland: Gland, relief: Relief, coil: bool) -> Field:
    coarse, fine = relief.coarse.on(grid), relief.fine.on(grid)
    septa = np.exp(-((relief.septa.on(grid) / np.float32(0.12)) ** 2))  # a net of thin strands
    tissue = 1 + np.float32(0.06) * coarse + np.float32(0.05) * fine
    lobules = tissue - np.float32(0.22) * septa
    canvas = np.full(grid.shape, AIR, dtype=np.float32)
    front, back = rng.uniform(7.6, 9.2), rng.uniform(10.5, 12.5)
    body = Blob((back - front) / 2, 0, (front + back) / 2, rng.uniform(17, 20))
    paint(canvas, grid, body, 0.3, 0.15)
    paint(canvas, grid, body.grown(-0.18), SKIN_FAT * lobules, 0.15)
    paint(canvas, grid, Blob(0.5, 0, 6.6, 8.0), FAT * lobules, 0.6)
    muscle = np.float32(MUSCLE) * (2 * tissue - 1) + np.float32(0.09) * septa
    _bones_and_muscles(rng, grid, canvas, gland.level, muscle, np.float32(MARROW) * tissue)
    _rectum(rng, grid, canvas, gland.outline, tissue, coil)
    _in_front(rng, grid, canvas, gland, tissue)
    _paint_gland(canvas, grid, gland, tissue + np.float32(0.06) * fine)
    return canvas


def _bones_and_muscles(
    rng: np.random.Generator, grid: Grid, canvas: Field, level: float, muscle: Field, marrow: Field
) -> None:
    paint(canvas, grid, Blob(-6.3, 0, 0.55, rng.uniform(2.6, 3.4), 0, waves(rng, 0.05)), muscle, 0.3)  # rectus
    drop, spread = rng.normal(0, 0.3), rng.normal(0, 0.25)
    for side in (-1.0, 1.0):

        def at(y: float, x: float, ry: float, rx: float, turn: float = 0.0, side: float = side) -> Blob:
            jitter = rng.normal(0, 0.15, 2)
            return Blob(y + drop + jitter[0], side * (x + spread + jitter[1]), ry, rx, side * turn, waves(rng, 0.06))

        paint(canvas, grid, at(-4.4, 8.4, 1.9, 2.4), muscle, 0.3)  # iliopsoas
        for vessel in (at(-5.6, 5.9, 0.55, 0.5), at(-5.3, 7.2, 0.5, 0.5)):
            paint(canvas, grid, vessel, 0.05, 0.2)
        paint(canvas, grid, at(8.4, 6.2, 1.9, 5.2, 0.12), muscle, 0.5)  # gluteus
        if level < 0.55:  # towards the apex: the pubic bones meet in front, the ischium lies behind
            bone = at(-3.9, 2.3, 1.1, 2.6, 0.35)
            paint(canvas, grid, at(-4.5, 4.9, 0.9, 2.3, 0.35), muscle, 0.3)
            _bone(canvas, grid, bone, 0.85 * marrow)
            _bone(canvas, grid, at(4.6, 7.0, 1.9, 1.2, 0.3), marrow)
        else:
            paint(canvas, grid, at(-3.6, 5.4, 0.6, 1.9, 0.3), muscle, 0.3)
            _bone(canvas, grid, at(2.6, 7.1, 2.8, 1.1, -0.35), marrow)
        if level > 0.25:
            _bone(canvas, grid, at(-0.2, 6.3, 2.2, 0.9, -0.1), marrow)  # acetabulum
            _bone(canvas, grid, at(0.2, 9.4, 2.3, 2.3), 1.2 * marrow)  # femoral head
        paint(canvas, grid, at(1.4, 4.9, 3.5, 0.85, -0.28), muscle, 0.3)  # obturator internus
    if level < 0.55:
        paint(canvas, grid, Blob(-3.9 + drop, 0, 1.0, 0.14), 0.08, 0.15)  # symphysis


def _bone(canvas: Field, grid: Grid, shape: Blob, marrow: Field) -> None:
    paint(canvas, grid, shape, CORTEX, 0.2)
    paint(canvas, grid, shape.grown(-0.18), marrow, 0.2)


def _rectum(rng: np.random.Generator, grid: Grid, canvas: Field, outline: Blob, tissue: Field, coil: bool) -> None:
    r = rng.uniform(1.7, 2.1) if coil else rng.uniform(1.2, 1.8)
    rectum = Blob(outline.ry + 0.82 * r, 0.2 * rng.normal(), r, r * rng.uniform(0.95, 1.3), 0, waves(rng, 0.06))
    # The levator ani, a V from the sides of the gland to behind the rectum.
    y = np.array([-0.6 * outline.ry, 0.4 * outline.ry, rectum.y, rectum.y + 0.8 * r, rectum.y + 1.25 * r])
    x = np.array([outline.rx + 0.35, outline.rx + 0.5, rectum.rx + 0.45, 0.75 * rectum.rx + 0.2, 0.0])
    points = np.stack([np.stack([y, side * x], axis=1) for side in (-1, 1)])
    sling = Strokes(points, np.tile([0.14, 0.16, 0.15, 0.15, 0.12], (2, 1)), np.full(2, 0.85))
    canvas += ink(grid, sling) * (np.float32(MUSCLE) - canvas)
    paint(canvas, grid, rectum, WALL * tissue, 0.2)
    # Gas and a coil's balloon are black, stool is grey.
    content = 0.03 if coil else float(rng.choice([0.04, rng.uniform(0.2, 0.4)]))
    paint(canvas, grid, rectum.grown(-0.3), content * tissue, 0.2)


def _in_front(rng: np.random.Generator, grid: Grid, canvas: Field, gland: Gland, tissue: Field) -> None:
    """Veins, then bladder and seminal vesicles near the base, or stroma near the apex."""
    outline = gland.outline
    for _ in range(10):
        angle, at = rng.uniform(-1.25 * np.pi, 0.25 * np.pi), rng.uniform(1.1, 1.28)
        vein = Blob(at * outline.ry * np.sin(angle), at * outline.rx * np.cos(angle), *rng.uniform(0.08, 0.2, 2))
        paint(canvas, grid, vein, rng.uniform(0.1, 0.95), 0.15)
    if gland.level <= 0.6:
        stroma = Blob(-outline.ry - 0.45, 0, 0.55, 0.8 * outline.rx, 0, waves(rng, 0.08))
        paint(canvas, grid, stroma, 0.24 * tissue, 0.4, opacity=0.8)
        return
    ry, rx = rng.uniform(1.3, 2.3), rng.uniform(2.2, 3.2)
    bladder = Blob(-outline.ry - ry + 0.15, 0.2 * rng.normal(), ry, rx, 0, waves(rng, 0.05))
    paint(canvas, grid, bladder, WALL * tissue, 0.25)
    paint(canvas, grid, bladder.grown(-rng.uniform(0.3, 0.5)), URINE, 0.2)
    for side in (-1, 1) * 4:
        y, x = 0.75 * outline.ry + 0.15 * rng.normal(), side * rng.uniform(0.55, 1.15) * outline.rx
        vesicle = Blob(y, x, rng.uniform(0.15, 0.3), rng.uniform(0.2, 0.4))
        paint(canvas, grid, vesicle, rng.uniform(0.5, 0.85), 0.15)


def _paint_gland(canvas: Field, grid: Grid, gland: Gland, tissue: Field) -> None:
    outline, central = gland.outline, gland.central
    paint(canvas, grid, outline.grown(0.06), 0.18, 0.16)  # capsule
    paint(canvas, grid, outline.grown(-0.06), (0.36 + 0.30 * gland.zone_contrast) * tissue, 0.2)
    if gland.lesion is not None:
        paint(canvas, grid, gland.lesion, 0.24 * tissue, 0.25, opacity=0.85)
    paint(canvas, grid, central.grown(0.06), 0.17, 0.15)
    paint(canvas, grid, central, 0.36 * tissue, 0.2)
    for nodule, grey in gland.nodules:
        paint(canvas, grid, nodule, grey * tissue, 0.2, opacity=0.7)
    paint(
        canvas, grid, Blob(-0.86 * outline.ry, 0, 0.16 * outline.ry, 0.5 * outline.rx), 0.15 * tissue, 0.3, opacity=0.8
    )
    paint(canvas, grid, Blob(0.05 * outline.ry, 0, 0.18, 0.14), 0.62, 0.2, opacity=0.8)  # urethra


# --- acquisition -----------------------------------------------------------------------------


def _shading(rng: np.random.Generator, grid: Grid, gland: Gland, scanner: Scanner) -> Field:
    """Gain times the slow bias field of the receive coils."""
    bias = np.exp(np.float32(scanner.bias) * Texture.random(rng, 3, 12).on(grid))
    bias *= np.float32(scanner.gain * rng.normal(1.0, 0.06))
    if scanner.coil:
        y, x = gland.outline.ry + 1.2, rng.normal(0, 0.3)
        bias *= 0.75 + np.float32(rng.uniform(0.9, 1.4)) * np.exp(
            -((grid.y - y) ** 2 + (grid.x - x) ** 2) / np.float32(2 * 2.4**2)
        )
    shading: Field = bias
    return shading
