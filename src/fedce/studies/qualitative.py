"""Example segmentations: a row for each site, a column for each method, with true and predicted outlines."""

from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from fedce.base.config import Config
from fedce.pictures.examples import example
from fedce.questions.loading import Which, load_model
from fedce.record.folder import RunFolder
from fedce.studies.base import Cell, Context, Outcome, Picture, Study, Table, best

TITLE = "Example segmentations"


def trainings(context: Context) -> list[Config]:
    return [context.training(name, context.seeds[0]) for name in context.methods]


def evaluate(context: Context) -> Outcome:
    from fedce.pictures.grid import image_grid

    cells: dict[str, list[tuple[NDArray[np.uint8], str]]] = {site.name: [] for site in context.sites}
    rows: list[list[Cell]] = []
    scores: dict[str, list[float]] = {name: [] for name in context.methods}
    for name in context.methods:
        run = RunFolder(context.store.path(context.training(name, context.seeds[0])))
        personal = not run.model_file.exists()
        for site in context.sites:
            learner = load_model(run, Which(site.name if personal else None, trust_code=True, device="cpu")).learner
            found = example(site, learner.predict)
            cells[site.name].append((found.picture, f"{context.title_of(name)} {found.dice:.2f}"))
            scores[name].append(found.dice)
            rows.append([site.name, found.file, context.title_of(name), found.dice])
    picture = Picture(
        "examples",
        "The first test case of each site, by method: truth green, prediction amber, and the Dice of this one image. "
        "The cases were not picked.",
        image_grid(list(cells.items())),
        ending="png",
        data=Table("examples", "Dice of the images shown.", ["site", "image", "method", "Dice"], rows, digits=4),
    )
    first = best({name: fmean(values) for name, values in scores.items()})
    findings = [
        f"On these {len(cells)} images {context.title_of(first)} has the highest mean Dice; they are too few to decide."
    ]
    return Outcome("qualitative", TITLE, findings, [], [picture])


STUDY = Study(TITLE, trainings, evaluate, order=8)
