"""Near-duplicates: how many pairs are reported among images without copies, and how many planted copies are found.

Photographs of whole retinas are drawn: a round field of view on black, a bright disc, vessels that differ between eyes;
at some sites all are registered, at others the disc, the field and the zoom vary by some per cent. Copies of each kind
are planted among them, and among PolypGen's frames if its folder is given. Limits were chosen with part "choose" (even
seeds; PolypGen's centres C1 to C3); docs/data.md states the figures of part "report" (odd seeds; C4 to C6).

    python -m benchmarks.duplicates [--part choose|report] [--seeds 2] [--size 128] [--images 50] [--polypgen DIR]
        [--margins]
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from fedce.base.tables import DataConfig
from fedce.data import duplicates
from fedce.data.duplicates import WHOLE, find_duplicates
from fedce.data.likeness import layouts
from fedce.data.site import SiteData, Sites
from fedce.data.sites import load_sites
from fedce.data.splits import split
from fedce.data.synthetic import fundus

Picture = NDArray[np.uint8]
Rng = np.random.Generator
CENTRES = {"choose": ("C1", "C2", "C3"), "report": ("C4", "C5", "C6")}
VIEWS = {"site1": (3.0, 0.5), "site2": (5.0, 0.4), "site3": (4.0, 0.6), "site4": (5.5, 0.5), "site6": (6.5, 0.35)}
"""Camera to half the width of its view in disc radii, and the contrast of vessels and texture."""
COPIES_PER_SITE = 2
"""Number of planted copies of each kind."""


def retina(rng: Rng, size: int, contrast: float, wander: float) -> Picture:
    """An image of the camera "bench", with less contrast outside the disc, in a round field of view."""
    drawn, masks = fundus.draw("bench", rng, size)
    image, is_disc = drawn.astype(np.float32), masks[0] > 0
    outside = 1 - ndimage.gaussian_filter(is_disc.astype(np.float32), 1)
    among = np.maximum(ndimage.gaussian_filter(outside, size / 10), 0.05)
    smooth = np.stack([ndimage.gaussian_filter(plane * outside, size / 10) / among for plane in image])
    image = np.where(is_disc, image, smooth + contrast * (image - smooth))
    y, x = np.mgrid[:size, :size] / (size / 2) - 1
    distance, radius = np.hypot(y, x), 0.96 + wander * rng.normal(0, 0.25)
    view = np.clip((radius - distance) * size / 2 + 0.5, 0, 1)
    light = (1 + rng.normal(0, 0.1) * y + rng.normal(0, 0.1) * x) * (1 - rng.uniform(0.15, 0.5) * distance**2)
    return (image * view * light * rng.normal(1, 0.1)).clip(0, 255).astype(np.uint8)


def retinas(camera: str, n: int, size: int, rng: Rng, wander: float) -> list[Picture]:
    view, contrast = VIEWS[camera]
    fundus.CAMERAS["bench"] = replace(  # type: ignore[index]
        fundus.CAMERAS[camera],
        half_view=(view * (1 - 2 * wander), view * (1 + 2 * wander)),
        wander=wander,
        p_aperture=0.0,
    )
    return [retina(rng, size, contrast, wander) for _ in range(n)]


def resized(image: Picture, size: int) -> Picture:
    return np.asarray(
        Image.fromarray(image.transpose(1, 2, 0)).resize((size, size), Image.Resampling.BILINEAR)
    ).transpose(2, 0, 1)


def encoded(image: Picture, quality: int) -> Picture:
    buffer = BytesIO()
    Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0))).save(buffer, format="JPEG", quality=quality)
    return np.asarray(Image.open(buffer)).transpose(2, 0, 1)


def cropped(image: Picture, share: float, rng: Rng) -> Picture:
    size = image.shape[1]
    kept = round(size * (1 - share))
    y, x = rng.integers(0, size - kept + 1, 2)
    return resized(np.ascontiguousarray(image[:, y : y + kept, x : x + kept]), size)


def shifted(image: Picture, share: float, rng: Rng) -> Picture:
    angle, length = rng.uniform(0, 2 * np.pi), share * image.shape[1]
    return ndimage.shift(image, (0, round(length * np.sin(angle)), round(length * np.cos(angle))), order=0)


def brightened(image: Picture, rng: Rng) -> Picture:
    return (image * rng.uniform(0.7, 1.3) + rng.uniform(-15, 15)).clip(0, 255).astype(np.uint8)


def next_frame(image: Picture, share: float, rng: Rng) -> Picture:
    """The image moved and deformed by up to this share of the width, with other light and noise."""
    size = image.shape[1]
    waves = [ndimage.gaussian_filter(rng.normal(size=(size, size)), size / 8) for _ in range(2)]
    y, x = (
        place + share * size * (wave / np.abs(wave).max() + rng.normal(0, 0.5))
        for place, wave in zip(np.mgrid[:size, :size], waves, strict=True)
    )
    warped = np.stack(
        [ndimage.map_coordinates(plane.astype(float), [y, x], order=1, mode="nearest") for plane in image]
    )
    return (warped * rng.uniform(0.92, 1.08) + rng.normal(0, 4, image.shape)).clip(0, 255).astype(np.uint8)


def turned(image: Picture, degrees: float, rng: Rng) -> Picture:
    return ndimage.rotate(image, degrees * rng.choice([-1, 1]), axes=(1, 2), reshape=False, order=1)


KINDS: dict[str, Callable[[Picture, Rng], Picture]] = {
    "the same pixels": lambda image, rng: image.copy(),
    "JPEG, quality 60": lambda image, rng: encoded(image, 60),
    "JPEG, quality 30": lambda image, rng: encoded(image, 30),
    "cropped by 2 %": lambda image, rng: cropped(image, 0.02, rng),
    "cropped by 5 %": lambda image, rng: cropped(image, 0.05, rng),
    "half the size and back": lambda image, rng: resized(resized(image, image.shape[1] // 2), image.shape[1]),
    "other brightness": brightened,
    "shifted by 3 %": lambda image, rng: shifted(image, 0.03, rng),
    "shifted by 6 %": lambda image, rng: shifted(image, 0.06, rng),
    "mirrored": lambda image, rng: image[:, :, ::-1].copy(),
    "next frame, moved by 1 %": lambda image, rng: next_frame(image, 0.01, rng),
    "next frame, moved by 2 %": lambda image, rng: next_frame(image, 0.02, rng),
    "turned by 3 degrees": lambda image, rng: turned(image, 3, rng),
}


def site_of(name: str, images: list[Picture], names: list[str]) -> SiteData:
    stack = np.stack(images)
    masks = np.ones((len(stack), 1, *stack.shape[2:]), np.uint8)
    return SiteData(name, stack, masks, tuple(names), tuple(names), split(name, names, (0.5, 0.25, 0.25), 0))


def planted(name: str, images: list[Picture], names: list[str], rng: Rng) -> SiteData:
    """The site with planted copies, each of another image; a copy's name is its kind and the name of its original."""
    images, names = list(images), list(names)
    chosen = iter(rng.permutation(len(images)))
    for _ in range(COPIES_PER_SITE):
        for kind, copy_of in KINDS.items():
            source = int(next(chosen))
            images.append(copy_of(images[source], rng))
            names.append(f"{kind}|{names[source]}")
    return site_of(name, images, names)


def drawn_sites(seed: int, size: int, n: int) -> dict[str, list[Picture]]:
    rng = np.random.default_rng(seed)
    return {
        f"{camera} {kind}": retinas(camera, n, size, rng, wander)
        for camera in VIEWS
        for kind, wander in (("registered", 0.0), ("loose", 0.04))
    }


def report(title: str, members: list[SiteData], margins: bool) -> None:
    sites = Sites(DataConfig(source="drawn"), {"all": [1]}, tuple(members))
    start = time.process_time()
    found = find_duplicates(sites)
    seconds = time.process_time() - start
    n = sum(len(site.images) for site in sites)
    pairs = {frozenset((pair.one.file, pair.other.file)): pair for pair in found.pairs}
    print(f"\n## {title}: {n} images at {len(sites)} sites, {seconds:.1f} s of one core")
    copies = [file for site in sites for file in site.files if "|" in file]
    for kind in KINDS if copies else ():
        of_kind = [frozenset((file, file.partition("|")[2])) for file in copies if file.startswith(f"{kind}|")]
        likeness = [pairs[pair].similarity for pair in of_kind if pair in pairs]
        print(
            f"{kind:28s} {len(likeness):4d} of {len(of_kind)} found, the least alike at {min(likeness, default=0):.2f}"
        )
    true = {frozenset((file, file.partition("|")[2])) for file in copies}
    not_planted = [pair for names, pair in pairs.items() if names not in true]
    print(f"{len(not_planted)} pairs that were not planted, {1000 * len(not_planted) / n:.1f} per thousand images")
    originals = [[row for row, file in enumerate(site.files) if "|" not in file] for site in sites]
    edges = np.concatenate([layouts(site.images[rows]) for site, rows in zip(sites, originals, strict=True)])
    n_before = int((np.triu(edges @ edges.T, 1) >= WHOLE).sum())
    print(f"(from {WHOLE} on by 16 x 16 pixels alone, the rule before this one: {n_before})")
    for place in found.usual:
        usual = f"usually {place.details.median:.2f}, spread {place.details.spread:.3f}" if place.details else "unknown"
        print(f"  {place.site}: {usual}, limit {place.limit:.2f}")
    level = {place.site: place.details for place in found.usual}
    for pair in not_planted[: 12 if margins else None]:
        spreads = min(
            (pair.similarity - level[one.site].median) / level[one.site].spread for one in (pair.one, pair.other)
        )
        names = f"{pair.one.group_name} {pair.other.group_name}"
        kind = "mirrored " if pair.mirrored else ""
        print(f"  {pair.similarity:.3f}, {spreads:.1f} spreads, whole {pair.whole:.3f}: {kind}{names}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=list(CENTRES), default="report")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--images", type=int, default=50, help="of each drawn site; there are ten")
    parser.add_argument("--polypgen", type=Path, help="a folder of C1 to C6")
    parser.add_argument("--margins", action="store_true", help="without limits: how alike all likely pairs are")
    options = parser.parse_args()
    if options.margins:
        duplicates.ENOUGH = 0.0
    first = 1 if options.part == "report" else 0
    for seed in range(first, first + 2 * options.seeds, 2):
        drawn = drawn_sites(seed, options.size, options.images)
        rng = np.random.default_rng(1000 + seed)
        members = [
            planted(name, images, [f"{name}-{i}" for i in range(len(images))], rng) for name, images in drawn.items()
        ]
        report(f"retinas of seed {seed}", members, options.margins)
    if options.polypgen:
        config = {"size": options.size, "classes": {"polyp": [255]}, "sites": CENTRES[options.part]}
        centres = load_sites(options.polypgen, **config)
        report("PolypGen as it is", list(centres), options.margins)
        rng = np.random.default_rng(2000 + first)
        members = [planted(site.name, list(site.images), list(site.files), rng) for site in centres]
        report("PolypGen with copies", members, options.margins)


if __name__ == "__main__":
    main()
