"""Which normalisation serves the sites, with which method, in the paper's setting and by the plan.

Where sites differ much, averaged batch-norm statistics fit nobody. This study says how much of what a method repairs is
the norm, and whether its weights still help beside the right norm.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from fedce.base.config import Config
from fedce.base.recipes import PLAN, PLANNED_IF_NEEDED
from fedce.base.recipes import PLANNED as ALWAYS_PLANNED
from fedce.base.tables import WorthConfig
from fedce.learning.planning import planned
from fedce.studies.base import Cell, Context, Outcome, Study, Table, one_seed, results_alone
from fedce.valuation.fairness import sample_std
from fedce.valuation.standing import NO_DIFFERENCE, exceeds, said, standing

TITLE = "Norms: batch, instance and site norm with every method, and the plan"
Norm = Literal["batch", "instance", "site"]
NORMS: tuple[Norm, ...] = ("batch", "instance", "site")
NOT_HERE = ("standalone",)
"""Alone, a site has no averaged statistics: site norm is batch norm."""
WEIGHED = ("fedavg", "fedce")
"""Number of images against contributions as weights."""
STATED: Mapping[str, Any] = {}
"""Keys that the plan does not choose, as a person might state them."""
CHOSEN_BY_PLAN = {key.removeprefix("data.") for key in (*ALWAYS_PLANNED, *PLANNED_IF_NEEDED) if key.startswith("data.")}
"""Keys of [data] that the study's setting may state and a plan chooses by itself."""
Kept = Literal["kept", "common", "alone"]


def trainings(context: Context) -> list[Config]:
    return [config for row in _rows(context) for config in row.configs]


@dataclass(frozen=True)
class _Row:
    """One line of the table: the same training with every seed."""

    setting: str
    norm: str
    method: str
    configs: Sequence[Config]
    what: Kept = "kept"
    """Which of a site's models is shown; planned trainings have several."""


def _rows(context: Context) -> list[_Row]:
    setting = f"recipe {context.config.recipe}"
    rows = [
        _Row(setting, norm, context.title_of(method), _with_norm(context, method, norm))
        for norm in NORMS
        for method in context.methods
        if norm != "site" or method not in NOT_HERE
    ]
    rows.append(_Row(setting, "site-affine", context.title_of("fedbn"), _with_norm(context, "fedbn", "batch")))
    plan = _planned(context)
    configs = [plan.model_copy(update={"seed": seed}) for seed in context.seeds]
    title = context.title_of(plan.algorithm.name)
    shown: Mapping[Kept, str] = {"kept": f"{title}, personalised", "common": title, "alone": "alone"}
    return rows + [_Row(PLAN, plan.model.norm, method, configs, what) for what, method in shown.items()]


def _with_norm(context: Context, method: str, norm: Norm) -> list[Config]:
    model = context.config.model.model_copy(update={"norm": norm})
    return context.trainings([method], model=model)


def _planned(context: Context) -> Config:
    """What `fedce run --alone` trains on these data without an experiment file, but with guard and ballots off."""
    data = context.config.data.model_dump(exclude_unset=True, exclude=CHOSEN_BY_PLAN)
    tree = {"recipe": PLAN, "data": data, "guard": "off", "alone": True, **STATED}
    return planned(tree).config.model_copy(update={"worth": WorthConfig(every=0)})


def evaluate(context: Context) -> Outcome:
    found = [(row, _dice(context, row)) for row in _rows(context)]
    header = ["setting", "norm", "method", *context.names, "Avg.", "Std.", "worst"]
    cells: list[Sequence[Cell]] = []
    for row, by_seed in found:
        means = [100 * fmean(column) for column in zip(*by_seed, strict=True)]
        cells.append([row.setting, row.norm, row.method, *means, fmean(means), sample_std(means), min(means)])
    n = len(context.seeds)
    table = Table(
        "norms",
        f"Test Dice, %, mean over {n} seed{'s' if n > 1 else ''}; Std. is over the sites. By the plan, each site also "
        "trains alone with as many steps, and may keep a model that it personalised.",
        header,
        cells,
        n_keys=3,
    )
    return Outcome("norms", TITLE, _findings(context, found), [table, _gains(context)])


def _gains(context: Context) -> Table:
    """What each site gains by the plan over training alone: mean over the seeds, bounds over test cases, each seed."""
    results = [context.result(config) for config in _rows(context)[-1].configs]
    rows: list[Sequence[Cell]] = []
    for site in context.names:
        together, alone, gains = (
            [100 * result.values[key][site] for result in results] for key in ("dice", "alone", "gain")
        )
        intervals = [result.values["gain_interval"][site] for result in results]
        ends = [fmean(100 * one[end] for one in intervals) if all(intervals) else None for end in (0, 1)]
        rows.append([site, fmean(together), fmean(alone), fmean(gains), *ends, *gains])
    by_seed = [f"seed {seed}" for seed in context.seeds]
    return Table(
        "gains",
        "By the plan: test Dice, %, of the model that each site keeps and of the model that it trains alone, and its "
        "gain in points. The bounds are those of the 95 % interval over test cases, each the mean over the seeds.",
        ["site", "together", "alone", "gain", "from", "to", *by_seed],
        rows,
        digits=1,
    )


def _dice(context: Context, row: _Row) -> list[list[float]]:
    """Dice by (seed, site)."""
    keys = {"kept": "dice", "common": "dice_common", "alone": "alone"}
    return [
        [float(context.result(config).values[keys[row.what]][site]) for site in context.names] for config in row.configs
    ]


Found = Sequence[tuple[_Row, list[list[float]]]]


def _findings(context: Context, found: Found) -> list[str]:
    sentences = [one_seed(context)] if len(context.seeds) == 1 else []
    by_name = {f"{row.method} with {row.norm} norm ({row.setting})": dice for row, dice in found if row.what != "alone"}
    for what, measure, lowest in (
        ("highest average", fmean, False),
        ("smallest deviation over sites", sample_std, True),
        ("highest Dice at its worst site", min, False),
    ):
        values = {name: [measure(one) for one in dice] for name, dice in by_name.items()}
        sentences.append(said(standing(values, lowest=lowest), what, _percent(values), str))
    return [*sentences, *_weights_beside_the_norm(context, found)]


def _percent(values: Mapping[str, Sequence[float]]) -> Callable[[str], str]:
    return lambda name: f"{100 * fmean(values[name]):.1f} %"


def _weights_beside_the_norm(context: Context, found: Found) -> list[str]:
    """Whether FedCE serves its worst site better than FedAvg, with each norm."""
    by = {(row.setting, row.norm, row.method): dice for row, dice in found}
    titles = {name: context.title_of(name) for name in WEIGHED}
    sentences = []
    for setting in dict.fromkeys(row.setting for row, _ in found):
        helps: list[str] = []
        not_shown: list[str] = []
        for norm in NORMS:
            pair = [by.get((setting, norm, titles[name])) for name in ("fedce", "fedavg")]
            if pair[0] is None or pair[1] is None:
                continue
            ours, plain = ([min(one) for one in dice] for dice in pair if dice is not None)
            difference = f"{norm} norm ({100 * (fmean(ours) - fmean(plain)):+.1f} points)"
            (helps if exceeds(ours, plain) else not_shown).append(difference)
        if helps or not_shown:
            shown = f"better with {', '.join(helps)}" if helps else ""
            level = f"{NO_DIFFERENCE} with {', '.join(not_shown)}" if not_shown else ""
            sentences.append(
                f"Each seed's worst site by {titles['fedce']}'s weights, compared with {titles['fedavg']}'s "
                f"({setting}): {'; '.join(part for part in (shown, level) if part)}."
            )
    return sentences


STUDY = Study(TITLE, trainings, evaluate, results_alone)
