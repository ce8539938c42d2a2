"""fundus6: colour photographs of the optic disc from six cameras, with disc and cup annotated.

An `Eye` is anatomy in disc radii (the disc's radius is about 1); a `Camera` is a site. The same
eye can be photographed twice, which is how the stereo pairs of site 5 come about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedce.data.synthetic.drawing import Blob, Field, Grid, Strokes, Texture, blur, ink, to_uint8, waves

Rgb = tuple[float, float, float]
Range = tuple[float, float]


@dataclass(frozen=True)
class Camera:
    """What a site's camera, operator and patients have in common. Lengths are in disc radii."""

    tint: Rgb  # the retina's colour
    disc_tint: Rgb  # the neuroretinal rim's colour
    cup_gain: Range  # how much paler than the rim the cup is
    half_view: Range  # from the centre of the picture to its border
    wander: float  # how far the disc may lie from the centre, as a share of half_view
    vignette: Range  # loss of light in the corners
    blur: Range
    chroma_blur: float  # as left behind by JPEG's coarser colour planes
    noise: float
    saturation: float
    gamma: float
    tessellation: float  # contrast of the choroid seen through the retina
    p_aperture: float  # how often the round aperture is in the picture
    stereo: bool = False


CAMERAS: Mapping[str, Camera] = {
    "site1": Camera(
        tint=(0.76, 0.39, 0.15), disc_tint=(0.93, 0.66, 0.33), cup_gain=(0.55, 0.9), half_view=(2.5, 3.1), wander=0.15,
        vignette=(0.15, 0.35), blur=(0.03, 0.05), chroma_blur=0.04, noise=0.012, saturation=1.0, gamma=1.0,
        tessellation=0.6, p_aperture=0.0,
    ),
    "site2": Camera(
        tint=(0.60, 0.24, 0.12), disc_tint=(0.84, 0.50, 0.30), cup_gain=(0.5, 0.9), half_view=(3.6, 4.4), wander=0.25,
        vignette=(0.35, 0.6), blur=(0.03, 0.06), chroma_blur=0.08, noise=0.02, saturation=1.1, gamma=1.15,
        tessellation=1.0, p_aperture=0.3,
    ),
    "site3": Camera(
        tint=(0.66, 0.40, 0.26), disc_tint=(0.86, 0.65, 0.45), cup_gain=(0.5, 0.85), half_view=(3.0, 3.8), wander=0.2,
        vignette=(0.2, 0.45), blur=(0.05, 0.09), chroma_blur=0.10, noise=0.015, saturation=0.9, gamma=0.95,
        tessellation=0.5, p_aperture=0.0,
    ),
    "site4": Camera(
        tint=(0.74, 0.37, 0.08), disc_tint=(0.95, 0.70, 0.30), cup_gain=(0.5, 0.9), half_view=(4.2, 4.9), wander=0.3,
        vignette=(0.25, 0.5), blur=(0.02, 0.05), chroma_blur=0.05, noise=0.015, saturation=1.15, gamma=1.0,
        tessellation=0.8, p_aperture=0.6,
    ),
    "site5": Camera(
        tint=(0.68, 0.43, 0.33), disc_tint=(0.90, 0.72, 0.53), cup_gain=(0.55, 0.9), half_view=(2.6, 3.0), wander=0.1,
        vignette=(0.3, 0.55), blur=(0.03, 0.06), chroma_blur=0.06, noise=0.02, saturation=0.95, gamma=0.95,
        tessellation=0.7, p_aperture=0.0, stereo=True,
    ),
    "site6": Camera(
        tint=(0.66, 0.33, 0.20), disc_tint=(0.88, 0.60, 0.38), cup_gain=(0.5, 0.9), half_view=(3.0, 4.0), wander=0.2,
        vignette=(0.2, 0.5), blur=(0.03, 0.07), chroma_blur=0.06, noise=0.012, saturation=1.0, gamma=1.0,
        tessellation=0.8, p_aperture=0.15,
    ),
}  # fmt: skip

# A stereo photograph is 3:2, cut in two and squeezed to a square: half a picture is 3:4.
STEREO_ASPECT = 0.75
N_POINTS = 48  # along every vessel


@dataclass(frozen=True)
class Eye:
    """The anatomy around one optic disc, which lies at the origin."""

    disc: Blob
    cup: Blob
    atrophy: Blob  # the pale crescent that often lies beside the disc and is not part of it
    atrophy_opacity: float
    vessels: tuple[Strokes, ...]
    choroid: Texture
    mottle: Texture
    grain: Texture


def draw(site: str, rng: np.random.Generator, size: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """One photograph (3, size, size) and its masks (2, size, size): disc with cup, cup."""
    camera = CAMERAS[site]
    eye = _eye(rng)
    half_view = rng.uniform(*camera.half_view)
    y, x = -rng.uniform(-1, 1, 2) * camera.wander * half_view
    frame = Grid.square(size)
    if camera.stereo:
        # The second view is taken from a step aside: the frame shifts, and the cup, which lies
        # deeper than the rim, shifts less.
        parallax = rng.uniform(0.04, 0.10) * rng.choice([-1, 1])
        other = replace(eye, cup=replace(eye.cup, x=eye.cup.x + parallax * (1 - eye.cup.rx)))
        left = frame.x[:, frame.x[0] < 0] * 2 + 1
        right = frame.x[:, frame.x[0] >= 0] * 2 - 1
        width = half_view * STEREO_ASPECT
        shots = [
            (eye, Grid(frame.y * half_view + y, left * width + x)),
            (other, Grid(frame.y * half_view + y + rng.normal(0, 0.04), right * width + x + 2 * parallax)),
        ]
    else:
        shots = [(eye, Grid(frame.y * half_view + y, frame.x * half_view + x))]
    light = _light(rng, camera)
    views = [_expose(camera, shot, grid, light if k == 0 else _dim(rng, light)) for k, (shot, grid) in enumerate(shots)]
    image = np.concatenate(views, axis=2)
    # The sensor's noise comes last: it is the only part whose number of draws depends on the size.
    image += np.float32(camera.noise) * rng.standard_normal(image.shape, dtype=np.float32)
    mask = np.concatenate([_annotate(shot, grid) for shot, grid in shots], axis=2)
    return to_uint8(image), mask


def _annotate(eye: Eye, grid: Grid) -> NDArray[np.uint8]:
    disc, cup = eye.disc.mask(grid), eye.cup.mask(grid)
    return np.stack([disc, disc & cup]).astype(np.uint8)


# --- anatomy ---------------------------------------------------------------------------------


def _eye(rng: np.random.Generator) -> Eye:
    temporal = float(rng.choice([-1, 1]))  # the side of the macula: right or left eye
    disc = Blob(0, 0, rng.uniform(0.98, 1.1), rng.uniform(0.88, 1.0), rng.normal(0, 0.15), waves(rng, 0.03))
    ratio = rng.uniform(0.3, 0.8)  # vertical cup-to-disc ratio
    slack = 0.45 * (0.95 - ratio)
    cup = Blob(
        y=rng.uniform(-1, 1) * slack * 0.7,
        x=temporal * rng.uniform(-0.3, 1) * slack,
        ry=disc.ry * ratio,
        rx=disc.rx * ratio * rng.uniform(0.92, 1.08),
        turn=rng.normal(0, 0.3),
        waves=waves(rng, 0.04),
    )
    reach = rng.uniform(0.1, 0.35)
    atrophy = Blob(
        0.1 * rng.normal(), temporal * reach * 0.8, disc.ry + 0.4 * reach, disc.rx + 0.5 * reach, 0, waves(rng, 0.06)
    )
    return Eye(
        disc=disc,
        cup=cup,
        atrophy=atrophy,
        atrophy_opacity=float(rng.choice([0.0, rng.uniform(0.15, 0.6)])),
        vessels=_vessels(rng, temporal, cup),
        choroid=Texture.random(rng, 26, 7.0),
        mottle=Texture.random(rng, 8, 7.0),
        grain=Texture.random(rng, 90, 7.0),
    )


# Where the great vessels go, in the frame whose macula lies to the right: heading as they leave
# the disc and far from it, in degrees (0 temporal, 90 up). Each is a vein and an artery.
ARCADES = np.repeat([(78.0, 25.0), (-78.0, -25.0), (112.0, 150.0), (-112.0, -150.0)], 2, axis=0)
IS_VEIN = np.tile([True, False], 4)
N_BRANCHES = (18, 16)  # of the trunks, and of those branches


def _vessels(rng: np.random.Generator, temporal: float, cup: Blob) -> tuple[Strokes, ...]:
    """Trunks, branches, their branches, and a few twigs that cross the temporal rim."""
    n = len(ARCADES)
    # Vessels hug the nasal wall of the cup and bend where they climb over its rim.
    start = np.array([cup.y, temporal * cup.x - 0.45 * cup.rx]) + rng.normal(0, 1, (n, 2)) * (0.12 * cup.ry, 0.04)
    jitter = rng.normal(0, 9, n) + np.where(IS_VEIN, 7, -7)
    leave, end = ARCADES[:, 0] + jitter, ARCADES[:, 1] + jitter + rng.normal(0, 12, n)
    trunks = _curves(rng, start, leave, end, np.full(n, 7.0), kink=rng.normal(0, 35, n), rim=cup.ry)
    width = rng.uniform(0.055, 0.082, n) * np.where(IS_VEIN, 1.0, 0.72)
    levels = [Strokes(trunks, width[:, None] * np.linspace(1, 0.45, N_POINTS), np.where(IS_VEIN, 1.0, 0.75))]
    for n_branches in N_BRANCHES:
        levels.append(_branches(rng, levels[-1], n_branches))
    n = 4
    angle = rng.normal(0, 35, n)
    start = np.array([cup.y, temporal * cup.x]) + 0.6 * cup.rx * _direction(angle)
    twigs = _curves(rng, start, angle, angle * 0.3, rng.uniform(0.5, 2.5, n))
    levels.append(Strokes(twigs, np.tile(np.linspace(0.03, 0.012, N_POINTS), (n, 1)), np.full(n, 0.8)))
    flip = np.array([1.0, temporal])
    return tuple(replace(strokes, points=strokes.points * flip) for strokes in levels)


def _direction(degrees: NDArray[np.float64]) -> NDArray[np.float64]:
    angle = np.deg2rad(degrees)
    return np.stack([-np.sin(angle), np.cos(angle)], axis=-1)


def _curves(
    rng: np.random.Generator,
    start: NDArray[np.float64],
    leave: NDArray[np.float64],
    end: NDArray[np.float64],
    length: NDArray[np.float64],
    kink: NDArray[np.float64] | float = 0.0,
    rim: float = 0.0,
) -> NDArray[np.float64]:
    """Points (m, n, 2) of vessels that turn from one heading to another, kinked up to the rim."""
    m = len(start)
    s = length[:, None] * np.linspace(0, 1, N_POINTS)
    pace, phase, swing = rng.uniform(1.2, 2.5, m), rng.uniform(0, 2 * np.pi, m), rng.uniform(4, 12, m)
    heading = leave[:, None] + (end - leave)[:, None] * (1 - np.exp(-s / 2.5))
    heading += swing[:, None] * np.sin(s * pace[:, None] + phase[:, None])
    heading += np.broadcast_to(kink, m)[:, None] / (1 + np.exp(np.minimum((s - rim) / 0.06, 50)))
    steps = _direction(heading) * (length / (N_POINTS - 1))[:, None, None]
    return np.asarray(start[:, None] + np.cumsum(steps, axis=1) - steps[:, :1])


def _branches(rng: np.random.Generator, parents: Strokes, n: int) -> Strokes:
    """n thinner vessels that leave random parents somewhere along their way."""
    parent = rng.integers(0, len(parents.points), n)
    at = rng.integers(N_POINTS // 5, 3 * N_POINTS // 4, n)
    start = parents.points[parent, at]
    along = parents.points[parent, at + 1] - start
    heading = np.rad2deg(np.arctan2(-along[:, 0], along[:, 1]))
    fork = rng.choice([-1, 1], n) * rng.uniform(25, 60, n)
    length = 0.7 * (N_POINTS - at) * np.hypot(*along.T)
    points = _curves(rng, start, heading + fork, heading + 0.6 * fork, length)
    width = 0.7 * parents.half_width[parent, at]
    return Strokes(points, width[:, None] * np.linspace(1, 0.45, N_POINTS), parents.strength[parent])


# --- photography -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Light:
    """Flash and focus of one exposure; positions are shares of the half picture."""

    gain: NDArray[np.float32]  # one per colour plane
    slope: tuple[float, float]
    vignette: float
    cup_gain: float
    blur: float
    aperture: Blob | None


def _light(rng: np.random.Generator, camera: Camera) -> Light:
    aperture = Blob(*rng.normal(0, 0.06, 2), *[rng.uniform(1.0, 1.2)] * 2)
    gain = rng.normal(1.0, 0.07) * (1 + rng.normal(0, 0.03, 3))
    return Light(
        gain=gain.astype(np.float32),
        slope=(rng.normal(0, 0.07), rng.normal(0, 0.07)),
        vignette=rng.uniform(*camera.vignette),
        cup_gain=rng.uniform(*camera.cup_gain),
        blur=rng.uniform(*camera.blur),
        aperture=aperture if rng.random() < camera.p_aperture else None,
    )


def _dim(rng: np.random.Generator, light: Light) -> Light:
    """The second flash of a stereo pair is never quite the first."""
    gain = light.gain * np.float32(rng.uniform(0.9, 1.05))
    return replace(light, gain=gain, slope=(light.slope[0], -light.slope[1]), blur=light.blur * rng.uniform(0.9, 1.2))


def _expose(camera: Camera, eye: Eye, grid: Grid, light: Light) -> Field:
    """The picture (3, h, w), before noise, 0..1 and a little beyond."""
    image = _retina(camera, eye, grid, light.cup_gain)
    frame = Grid(
        *(
            np.linspace(-1, 1, n, dtype=np.float32).reshape(s)
            for n, s in zip(grid.shape, ((-1, 1), (1, -1)), strict=True)
        )
    )
    falloff = 1 - np.float32(light.vignette / 2) * (frame.y**2 + frame.x**2)
    falloff += np.float32(light.slope[0]) * frame.y + np.float32(light.slope[1]) * frame.x
    if light.aperture is not None:
        falloff *= light.aperture.cover(frame, 0.04)
    image *= falloff * light.gain[:, None, None]
    grey = image.mean(axis=0)
    chroma = (image - grey) * np.float32(camera.saturation)
    grey = blur(grey, grid, light.blur)
    red, green = (blur(plane, grid, light.blur + camera.chroma_blur) for plane in chroma[:2])
    image = grey + np.stack([red, green, -red - green])  # the three chroma planes add up to 0
    developed: Field = np.clip(image, 0.0, 1.2) ** np.float32(camera.gamma) + np.float32(0.015)
    return developed


def _retina(camera: Camera, eye: Eye, grid: Grid, cup_gain: float) -> Field:
    """Reflected colour (3, h, w): choroid, atrophy, disc, cup, then the vessels on top."""
    mottle, grain = eye.mottle.on(grid), eye.grain.on(grid)
    ridges = np.abs(eye.choroid.on(grid))  # valleys of |noise| form a net, like choroidal vessels
    relief = np.float32(0.05) * mottle + np.float32(0.015) * grain
    relief += np.float32(0.09 * camera.tessellation) * (np.minimum(ridges, 1.0) - np.float32(0.6))
    tint, rim = (np.array(c, dtype=np.float32)[:, None, None] for c in (camera.tint, camera.disc_tint))
    image = tint * (1 + relief * np.array([0.7, 1.3, 1.2], dtype=np.float32)[:, None, None])
    distance = Blob(0, 0, 1, 1).radius(grid.y, grid.x)
    glow = np.float32(0.10) * np.exp(1 - np.maximum(distance, 1))  # nerve fibres around the disc
    image *= 1 + glow
    pale = (tint + 2 * rim) / 3
    image += np.float32(eye.atrophy_opacity) * eye.atrophy.cover(grid, 0.25) * (pale * (1 + 2 * relief) - image)
    image += eye.disc.cover(grid, 0.22) * (rim * (1 + np.float32(0.02) * grain + np.float32(0.04) * mottle) - image)
    white = np.array([1.02, 0.95, 0.80], dtype=np.float32)[:, None, None]
    cup = np.float32(cup_gain) * eye.cup.cover(grid, 0.28)
    image += cup * (white * (1 - np.float32(0.025) * np.abs(grain)) - image)
    blood = ink(grid, *eye.vessels) * (1 - np.float32(0.35) * cup)
    image *= 1 - blood * np.array([0.36, 0.62, 0.5], dtype=np.float32)[:, None, None]
    return image
