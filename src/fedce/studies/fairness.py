"""Table 2: how well each site is served, compared with what it reaches alone."""

from collections.abc import Callable
from math import dist
from statistics import fmean

from fedce.base.config import Config
from fedce.questions import compare as comparing
from fedce.studies import paper
from fedce.studies.base import Cell, Context, Outcome, Study, Table, results_alone
from fedce.valuation.standing import exceeds, said, standing

TITLE = "Performance fairness (the paper's Table 2)"


def trainings(context: Context) -> list[Config]:
    return context.trainings(_methods(context))


def _methods(context: Context) -> list[str]:
    """The methods that are compared, and Standalone, with which they are compared."""
    return list(dict.fromkeys([*context.methods, "standalone"]))


def evaluate(context: Context) -> Outcome:
    compared = context.compare(_methods(context))
    alone = next(row for row in compared if row.algorithm == "standalone")
    rows = [row for row in compared if row is not alone]
    printed = paper.FAIRNESS.get(context.printed, {})
    header = ["method", "Pearson, %", "p", "Euclid", "worst", "Std.", "Jain", "Gini"]
    header += ["paper's Pearson", "paper's p", "paper's Euclid"] if printed else []
    fairness = Table(
        "fairness",
        "Sites' Dice against Standalone's (Pearson with its two-sided p, higher is better; Euclid in points, lower is "
        "better), and how evenly the sites are served.",
        header,
        [
            [
                context.title_of(row.algorithm),
                None if row.standalone_pearson is None else 100 * row.standalone_pearson,
                _p(row.standalone_pearson_p),
                None if row.standalone_euclid is None else 100 * row.standalone_euclid,
                100 * row.worst,
                100 * row.std_over_sites,
                row.jain,
                row.gini,
                *(_printed(printed.get(row.algorithm)) if printed else ()),
            ]
            for row in rows
        ],
    )
    gain = Table(
        "gain",
        "Points of Dice that each site gains over training alone.",
        ["method", *context.names, "sites that lose"],
        [
            [
                context.title_of(row.algorithm),
                *(f"{100 * row.gain[site]:+.2f}" for site in context.names),
                str(sum(value < 0 for value in row.gain.values())),
            ]
            for row in rows
            if row.gain
        ],
    )
    return Outcome("fairness", TITLE, _findings(rows, alone, bool(printed), context.title_of), [fairness, gain])


def _p(value: float | None) -> str | None:
    """A p value with two digits, however small, as the paper writes it."""
    return None if value is None else f"{value:.1e}"


def _printed(numbers: tuple[float, float, float] | None) -> list[Cell]:
    if numbers is None:
        return [None] * 3
    correlation, p, euclid = numbers
    return [correlation, _p(p), euclid]


def _findings(
    rows: list[comparing.Row], alone: comparing.Row, in_the_paper: bool, title_of: Callable[[str], str]
) -> list[str]:
    by_name = {row.algorithm: row for row in rows}
    distances = {name: _distances(row, alone) for name, row in by_name.items()}
    findings = [
        said(
            standing(distances, lowest=True),
            "smallest distance to what the sites reach alone (Euclid)",
            lambda name: f"{100 * fmean(distances[name]):.1f} points",
            title_of,
        )
    ]
    losers = {name: _who_loses(row, alone) for name, row in by_name.items()}
    if len(next(iter(distances.values()))) > 1:
        named = [f"{title_of(name)}: {', '.join(sites)}" for name, sites in losers.items() if sites]
        findings.append(
            f"Sites whose Dice is lower than when they train alone, by more than the seeds differ: {'; '.join(named)}."
            if named
            else "With no method is any site's Dice lower than when it trains alone by more than the seeds differ."
        )
    if in_the_paper:
        findings.append(
            "The paper's Table 2 does not follow from its Table 1, so the paper's numbers are shown and not aimed at. "
            "A distance to Standalone also grows when a site gains: where all sites gain, it says little."
        )
    return findings


def _distances(row: comparing.Row, alone: comparing.Row) -> list[float]:
    """Euclidean distance between the sites' Dice with a method and alone, for each seed."""
    pairs = [(row.dice_by_seed[site], alone.dice_by_seed[site]) for site in row.dice_by_seed]
    return [dist([own[n] for own, _ in pairs], [other[n] for _, other in pairs]) for n in range(len(pairs[0][0]))]


def _who_loses(row: comparing.Row, alone: comparing.Row) -> list[str]:
    return [site for site, own in row.dice_by_seed.items() if exceeds(alone.dice_by_seed[site], own)]


STUDY = Study(TITLE, trainings, evaluate, results_alone, order=2)
