"""An image of each site's first test case with the true and the predicted outlines: for reports and studies.

The training session makes them, because the ledger's last line holds their Dice and the picture's digest.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill

import numpy as np
from numpy.typing import NDArray

from fedce.base.files import write_bytes
from fedce.core.scoring import dice
from fedce.data import SiteData
from fedce.data.overlays import compared

A_ROW, DPI, POINTS, LETTERS = 4, 150, 12, 15
"""Images in a row, which is then about as wide as a page; dots per inch; size of the titles, to be read on a phone too;
and how many letters of that size fit over an image."""


@dataclass(frozen=True)
class Example:
    file: str
    picture: NDArray[np.uint8]
    dice: float
    """The Dice of this one image, with all classes together."""


def example(site: SiteData, predict: Callable[[NDArray[np.uint8]], NDArray[np.bool_]]) -> Example:
    """The image, or slice, of the first test case in which most is marked: a fixed rule, so that no example is picked.

    `predict` returns masks for images (n, channels, height, width), or for all slices of a volume.
    """
    first = site.cases[site.split.test[0]]
    rows = [int(row) for row in site.split.test if site.cases[row] == first]
    shown = max(rows, key=lambda row: int(site.masks[row].sum()))
    is_labelled = np.array([site.labels(i) for i in range(site.masks.shape[1])])[:, None, None]
    found, truth = found_in(site, shown, predict) & is_labelled, (site.masks[shown] > 0) & is_labelled
    of_all = dice(np.array((found & truth).sum()), np.array(found.sum() + truth.sum()))
    return Example(site.files[shown], compared(site.images[shown], truth, found), float(of_all))


def found_in(site: SiteData, row: int, predict: Callable[[NDArray[np.uint8]], NDArray[np.bool_]]) -> NDArray[np.bool_]:
    """What is found in one image, or in one slice of a volume that the network sees as a whole."""
    if not site.patch:
        only: NDArray[np.bool_] = predict(site.images[row : row + 1])[0]
        return only
    volume = site.stacks(np.flatnonzero(np.array(site.items) == site.items[row]))[0]
    # The padding of stored slices is no part of the volume: its grey values would count in the normalisation.
    found = predict(volume.of(site.images))[int(np.flatnonzero(volume.rows == row)[0])]
    whole = np.zeros(site.masks.shape[1:], bool)
    whole[:, : volume.height, : volume.width] = found
    return whole


def write_examples(path: Path, examples: Mapping[str, Example]) -> None:
    """One picture of all sites' examples."""
    from fedce.pictures.grid import image_grid

    titles = {site: fill(site, LETTERS, max_lines=2, placeholder="…") for site in examples}
    cells = [(one.picture, f"{titles[site]}\nDice {one.dice:.2f}") for site, one in examples.items()]
    rows = [("", cells[start : start + A_ROW]) for start in range(0, len(cells), A_ROW)]
    write_bytes(path, image_grid(rows, DPI, POINTS))
