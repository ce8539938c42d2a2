"""How fast each method learns: mean validation Dice of the common model, from the initial to the final one."""

from collections.abc import Sequence
from statistics import fmean

import numpy as np
from numpy.typing import NDArray
from scipy.signal import savgol_filter

from fedce.base.config import Config
from fedce.federation.session import Result
from fedce.record.entries import Round
from fedce.studies.base import Cell, Context, Outcome, Picture, Study, Table
from fedce.valuation.standing import said, standing

TITLE = "Convergence"
ORDER = 3
"""Degree of the polynomial that Savitzky and Golay's filter fits."""


def trainings(context: Context) -> list[Config]:
    return context.trainings(_federated(context))


def _federated(context: Context) -> list[str]:
    return [name for name in context.methods if name != "standalone"]


def evaluate(context: Context) -> Outcome:
    from fedce.pictures import study_plots

    by_seed = {name: _curves(context, name) for name in _federated(context)}
    curves = {name: own.mean(axis=0) for name, own in by_seed.items()}
    smooth = {name: smoothed(curve) for name, curve in curves.items()}
    n_models = len(next(iter(curves.values())))
    rows: list[list[Cell]] = [[str(i), *(float(curve[i]) for curve in curves.values())] for i in range(n_models)]
    picture = Picture(
        "convergence",
        "Mean validation Dice of the common model before the first round and after each round, mean over seeds: the "
        "smoothed curve (Savitzky-Golay), with the raw curve behind it.",
        study_plots.curves(
            {context.title_of(name): (curves[name].tolist(), smooth[name].tolist()) for name in curves},
            "validation Dice",
        ).encode(),
        data=Table("convergence", "Raw curves.", ["rounds done", *map(context.title_of, curves)], rows, digits=4),
    )
    ends = {name: float(curve[-1]) for name, curve in smooth.items()}
    target = 0.9 * max(ends.values())
    reached = {name: next((i for i, v in enumerate(curve) if v >= target), None) for name, curve in smooth.items()}
    table = Table(
        "rounds-to-target",
        f"Rounds until a method's smoothed curve reaches {target:.3f}, which is 90 % of the highest final value of all "
        "methods, and the curve's final value.",
        ["method", "rounds", "ends at"],
        [
            [context.title_of(name), "never" if reached[name] is None else str(reached[name]), ends[name]]
            for name in curves
        ],
        digits=3,
    )
    last = {name: [float(smoothed(curve)[-1]) for curve in own] for name, own in by_seed.items()}
    findings = [said(standing(last), "highest end", lambda name: f"{ends[name]:.3f}", context.title_of)]
    return Outcome("convergence", TITLE, findings, [table], [picture])


def _curves(context: Context, algorithm: str) -> NDArray[np.float64]:
    """(seeds, models): each round scores the model that it starts from; the run's end scores the last model."""
    configs = [context.training(algorithm, seed) for seed in context.seeds]
    return np.array([_curve(context.rounds(config), context.result(config)) for config in configs], np.float64)


def _curve(rounds: Sequence[Round], result: Result) -> list[float]:
    return [*(done.mean_score for done in rounds), fmean(result.values["validation_dice"].values())]


def smoothed(curve: NDArray[np.float64]) -> NDArray[np.float64]:
    """The curve, smoothed over at least a seventh of the rounds; a curve shorter than the filter stays as it is."""
    window = max(ORDER + 2, len(curve) // 7) | 1
    if window > len(curve):
        return curve
    result: NDArray[np.float64] = savgol_filter(curve, window, ORDER)
    return result


STUDY = Study(TITLE, trainings, evaluate, order=4)
