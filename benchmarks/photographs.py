"""Drawn fundus photographs as PNG files, one folder a site."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

from fedce.data.synthetic import generate


def write_sites(root: Path, sites: Iterable[str], n_images: int, size: int) -> None:
    for site in sites:
        images, masks = generate("fundus6", site, n_images, size, 0)
        for part in ("images", "masks"):
            (root / site / part).mkdir(parents=True)
        for i, (image, mask) in enumerate(zip(images, masks, strict=True)):
            pixels = np.ascontiguousarray(image.transpose(1, 2, 0))
            Image.fromarray(pixels).save(root / site / "images" / f"{i:03}.png")
            Image.fromarray(255 * mask[0]).save(root / site / "masks" / f"{i:03}.png")
