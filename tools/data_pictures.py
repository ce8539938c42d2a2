"""Redraw docs/pictures/{fundus6,prostate6,volume6}-{sites,histograms}.png from the generators.

    python tools/data_pictures.py            # takes a few seconds

The contact sheets show a row for each site, with mask outlines on every second picture, and of volumes also a cut
across the slices; the histograms correspond to the paper's figure of pixel intensity distributions.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from numpy.typing import NDArray
from PIL import Image, ImageOps
from scipy import ndimage

from fedce.data.synthetic import FEDERATIONS, Federation, draw_volume, generate
from fedce.data.synthetic.volume import LESION

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"
N_COLUMNS, SHEET_SIZE, SEED = 5, 104, 0
N_FOR_HISTOGRAM, HISTOGRAM_SIZE = 40, 64
PIXELS_A_MM = 1.5
OUTLINES = ((64, 255, 64), (64, 255, 255))  # one colour a mask channel


def outlined(image: NDArray[np.uint8], mask: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(h, w, 3) with the border of every mask channel drawn one pixel wide."""
    picture = np.array(np.broadcast_to(image, (3, *image.shape[1:])).transpose(1, 2, 0))
    for channel, colour in zip(mask.astype(bool), OUTLINES, strict=False):
        picture[channel & ~ndimage.binary_erosion(channel)] = colour
    return picture


def contact_sheet(federation: Federation) -> Image.Image:
    if federation.draw is None:
        return volume_sheet(federation)
    rows = []
    for site in federation.n_train_by_site:
        images, masks = generate(federation.name, site, N_COLUMNS, SHEET_SIZE, SEED)
        masks[::2] = 0  # every second picture stays bare
        rows.append(np.hstack([outlined(image, mask) for image, mask in zip(images, masks, strict=True)]))
    # Five bits a colour are plenty for a page of documentation, and halve the file.
    return ImageOps.posterize(Image.fromarray(np.vstack(rows)), 5)


def volume_sheet(federation: Federation) -> Image.Image:
    """For two volumes of each site: the slice with most of the lesion, bare and outlined, and a cut across slices."""
    rows = []
    for site in federation.n_train_by_site:
        row = []
        for i in range(2):
            drawn = draw_volume(federation.name, site, i, SEED)
            lesion = drawn.labels == LESION
            slice_, line = int(lesion.sum((1, 2)).argmax()), int(lesion.sum((0, 2)).argmax())
            pixels, labels = drawn.values[slice_], drawn.labels[slice_]
            masks = np.stack([labels > 0, labels == LESION]).astype(np.uint8)
            across = drawn.values[::-1, line]
            for picture, spacing in (
                (outlined(pixels[None], masks * 0), drawn.spacing[1:]),
                (outlined(pixels[None], masks), drawn.spacing[1:]),
                (outlined(across[None], np.zeros((1, *across.shape), np.uint8)), drawn.spacing[::2]),
            ):
                row.append(_square(picture, spacing))
        rows.append(np.hstack(row))
    return ImageOps.posterize(Image.fromarray(np.vstack(rows)), 5)


def _square(picture: NDArray[np.uint8], spacing: tuple[float, float]) -> NDArray[np.uint8]:
    """The picture at its size in millimetres, in the middle of a black square."""
    height, width = (round(n * mm * PIXELS_A_MM) for n, mm in zip(picture.shape[:2], spacing, strict=True))
    square = Image.new("RGB", (SHEET_SIZE + 16, SHEET_SIZE + 16))
    resized = Image.fromarray(picture).resize((width, height), Image.Resampling.NEAREST)
    square.paste(resized, ((square.width - width) // 2, (square.height - height) // 2))
    return np.asarray(square)


def histograms(federation: Federation, path: Path) -> None:
    figure, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
    for site in federation.n_train_by_site:
        grey = _grey_values(federation, site)
        density, edges = np.histogram(grey, bins=64, range=(0, 255), density=True)
        axes.plot((edges[1:] + edges[:-1]) / 2, ndimage.gaussian_filter1d(density, 1.0), label=site)
    axes.set(title=federation.name, xlabel="pixel intensity (mean of the channels)", ylabel="density", xlim=(0, 255))
    axes.legend(frameon=False, ncols=2)
    # Without the version stamp the file changes only when the data do.
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)


def _grey_values(federation: Federation, site: str) -> NDArray[np.float64]:
    if federation.draw is None:
        volumes = [draw_volume(federation.name, site, i, SEED).values.ravel() for i in range(N_FOR_HISTOGRAM // 4)]
        return np.concatenate(volumes).astype(np.float64)
    images, _ = generate(federation.name, site, N_FOR_HISTOGRAM, HISTOGRAM_SIZE, SEED)
    return images.mean(axis=1)


def main() -> None:
    mpl.use("Agg")
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, federation in FEDERATIONS.items():
        contact_sheet(federation).save(PICTURES / f"{name}-sites.png", optimize=True)
        histograms(federation, PICTURES / f"{name}-histograms.png")
    for path in sorted(PICTURES.glob("*6-*.png")):
        print(f"{path.name}  {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
