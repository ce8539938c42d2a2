"""A row for each site, a column for each method: outlines of the truth and of what was found."""

from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from fedce.config import Config
from fedce.data import SiteData
from fedce.data.overlays import outline
from fedce.data.pixels import with_channels
from fedce.predict import load_learner
from fedce.record import RunFolder
from fedce.studies.base import Cell, Context, Outcome, Picture, Table, best, title_of

TITLE = "Example segmentations"
TRUTH, FOUND = (0, 200, 83), (255, 143, 0)
ENLARGED = 3
"""Pixels of a small image become blocks of so many, so that outlines stay thin beside what they show."""


def trainings(context: Context) -> list[Config]:
    return [context.training(name, context.seeds[0]) for name in context.methods]


def evaluate(context: Context) -> Outcome:
    from fedce.report import plots

    cells: dict[str, list[tuple[NDArray[np.uint8], str]]] = {site.name: [] for site in context.sites}
    rows: list[list[Cell]] = []
    scores: dict[str, list[float]] = {name: [] for name in context.methods}
    for name in context.methods:
        run = RunFolder(context.store.path(context.training(name, context.seeds[0])))
        personal = not run.model_file.exists()
        for site in context.sites:
            learner, _, _ = load_learner(run, site.name if personal else None)
            case = example(site)
            found = learner.predict(site.images[case : case + 1])[0]
            dice = _dice(found, site.masks[case] > 0)
            cells[site.name].append((_outlined(site, case, found), f"{title_of(name)} {dice:.2f}"))
            scores[name].append(dice)
            rows.append([site.name, site.files[case], name, dice])
    picture = Picture(
        "examples",
        "The first test image of each site (not chosen), by method: truth green, prediction amber, and the Dice of "
        "that one image.",
        plots.image_grid(cells),
        ending="png",
        data=Table("examples", "Dice of the images shown.", ["site", "image", "method", "Dice"], rows, digits=4),
    )
    first = best({name: fmean(values) for name, values in scores.items()})
    findings = [f"On these {len(cells)} images {title_of(first)} has the highest mean Dice; so few decide nothing."]
    return Outcome("qualitative", TITLE, findings, [], [picture])


def example(site: SiteData) -> int:
    return int(site.split.test[0])


def _dice(found: NDArray[np.bool_], truth: NDArray[np.bool_]) -> float:
    total = found.sum() + truth.sum()
    return float(2 * (found & truth).sum() / total) if total else 1.0


def _outlined(site: SiteData, case: int, found: NDArray[np.bool_]) -> NDArray[np.uint8]:
    def enlarged(array: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return array.repeat(ENLARGED, 0).repeat(ENLARGED, 1)

    image = with_channels(np.asarray(site.images[case]), 3).transpose(1, 2, 0)
    picture = np.ascontiguousarray(image.repeat(ENLARGED, 0).repeat(ENLARGED, 1))
    for masks, colour in ((site.masks[case] > 0, TRUTH), (found, FOUND)):
        for mask in masks:
            picture[outline(enlarged(mask))] = colour
    return picture
