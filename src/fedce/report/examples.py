"""Each site's first test image with the truth and what a model finds: for a run's report and for studies."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedce.data import SiteData
from fedce.data.overlays import compared
from fedce.files import write_bytes

A_ROW, DPI = 4, 150
"""So that a row is about as wide as a page."""


@dataclass(frozen=True)
class Example:
    file: str
    picture: NDArray[np.uint8]
    dice: float
    """Of this one image, all classes together."""


def example(site: SiteData, predict: Callable[[NDArray[np.uint8]], NDArray[np.bool_]]) -> Example:
    """The first test image: so nobody chooses. `predict` gives masks of images (n, channels, height, width)."""
    case = int(site.split.test[0])
    found, truth = predict(site.images[case : case + 1])[0], site.masks[case] > 0
    return Example(site.files[case], compared(site.images[case], truth, found), _dice(found, truth))


def write_examples(path: Path, examples: Mapping[str, Example]) -> None:
    """One picture of all sites' examples."""
    from fedce.report import plots

    cells = [(one.picture, f"{plots.short(site)}\nDice {one.dice:.2f}") for site, one in examples.items()]
    rows = [("", cells[start : start + A_ROW]) for start in range(0, len(cells), A_ROW)]
    write_bytes(path, plots.image_grid(rows, DPI))


def _dice(found: NDArray[np.bool_], truth: NDArray[np.bool_]) -> float:
    total = found.sum() + truth.sum()
    return float(2 * (found & truth).sum() / total) if total else 1.0
