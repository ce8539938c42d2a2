"""Table 1: the Dice of each method at each site, and the appendix's deviations over seeds."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from fedce.base.config import Config
from fedce.questions.compare import Row
from fedce.studies import paper
from fedce.studies.base import Cell, Context, Outcome, Study, Table, one_seed, other_metrics, results_alone
from fedce.valuation.fairness import sample_std
from fedce.valuation.standing import NO_DIFFERENCE, Standing, exceeds, said, standing

TITLE = "Performance (the paper's Table 1)"


def trainings(context: Context) -> list[Config]:
    return context.trainings(context.methods)


def evaluate(context: Context) -> Outcome:
    rows = context.compare(context.methods)
    tables = [_dice(context, rows)]
    if len(rows[0].dice_by_class) > 1:
        tables.append(_by_class(context, rows))
    if context.printed:
        tables.append(_beside_the_paper(context, rows))
    return Outcome("performance", TITLE, _findings(context, rows), [*tables, *other_metrics(context, rows)])


def _dice(context: Context, rows: list[Row]) -> Table:
    return Table(
        "dice",
        f"Test Dice, %{_of_seeds(context)}; Std. is over the sites.",
        ["method", *context.names, "Avg.", "Std.", "worst"],
        [
            [
                context.title_of(row.algorithm),
                *(_over_seeds(context, row, site) for site in context.names),
                100 * row.mean,
                100 * row.std_over_sites,
                100 * row.worst,
            ]
            for row in rows
        ],
    )


def _of_seeds(context: Context) -> str:
    n = len(context.seeds)
    return f": mean and standard deviation over {n} seeds" if n > 1 else f" (seed {context.seeds[0]})"


def _over_seeds(context: Context, row: Row, site: str) -> Cell:
    mean, deviation = 100 * row.dice[site], 100 * row.dice_std[site]
    return f"{mean:.2f} ± {deviation:.2f}" if len(context.seeds) > 1 else mean


def _by_class(context: Context, rows: list[Row]) -> Table:
    classes = list(rows[0].dice_by_class)
    return Table(
        "dice-by-class",
        "Test Dice by class, %: mean over sites and seeds.",
        ["method", *classes],
        [[context.title_of(row.algorithm), *(100 * row.dice_by_class[name] for name in classes)] for row in rows],
    )


def _beside_the_paper(context: Context, rows: list[Row]) -> Table:
    printed = paper.DICE[context.printed]
    return Table(
        "dice-beside-the-paper",
        f"Average Dice and its deviation over sites, with the paper's numbers ({paper.SETTINGS}).",
        ["method", "Avg.", "paper's", "Std.", "paper's", "site 5", "paper's"],
        [
            [
                context.title_of(row.algorithm),
                100 * row.mean,
                fmean(printed[row.algorithm]) if row.algorithm in printed else None,
                100 * row.std_over_sites,
                sample_std(printed[row.algorithm]) if row.algorithm in printed else None,
                100 * row.dice["site5"],
                printed[row.algorithm][4] if row.algorithm in printed else None,
            ]
            for row in rows
        ],
    )


def _findings(context: Context, rows: list[Row]) -> list[str]:
    federated = {row.algorithm: row for row in rows if row.algorithm != "standalone"}
    means = {name: row.over_sites(fmean) for name, row in federated.items()}
    highest = standing(means)
    fairest = standing({name: row.over_sites(sample_std) for name, row in federated.items()}, lowest=True)
    safest = standing({name: row.over_sites(min) for name, row in federated.items()})
    findings = [one_seed(context)] if len(context.seeds) == 1 else []
    findings += [
        said(
            highest,
            "highest average of the federated methods",
            lambda m: f"{100 * federated[m].mean:.1f} %",
            context.title_of,
        ),
        said(
            fairest,
            "smallest deviation over sites",
            lambda m: f"{100 * federated[m].std_over_sites:.1f}",
            context.title_of,
        ),
        said(safest, "highest Dice at its worst site", lambda m: f"{100 * federated[m].worst:.1f} %", context.title_of),
    ]
    if context.printed:
        findings.append(
            "In the paper, FedCE (Multi.) has the highest average and the smallest deviation on both tasks: "
            + _as_in_the_paper(highest, fairest)
        )
    if alone := next((row for row in rows if row.algorithm == "standalone"), None):
        findings.append(_against(alone, means, context.title_of))
    return findings


def _as_in_the_paper(*standings: Standing) -> str:
    if any(found.is_shown and found.first != "fedce" for found in standings):
        return "not here."
    if all(found.is_shown for found in standings):
        return "so here."
    return "these runs can't show whether this holds here."


def _against(alone: Row, means: Mapping[str, Sequence[float]], title_of: Callable[[str], str]) -> str:
    """Which methods are below training alone, which are above it, and for which neither can be shown."""
    reached = alone.over_sites(fmean)
    below = [title_of(name) for name, own in means.items() if exceeds(reached, own)]
    above = [title_of(name) for name, own in means.items() if exceeds(own, reached)]
    parts = [f"below it: {', '.join(below)}"] if below else []
    parts += [f"above it: {', '.join(above)}"] if above else []
    if len(below) + len(above) < len(means):
        which = "the others" if parts else "all federated methods"
        parts.append(f"{which}: {NO_DIFFERENCE}")
    return f"Training alone reaches {100 * alone.mean:.1f} % on average; {'; '.join(parts)}."


STUDY = Study(TITLE, trainings, evaluate, results_alone, order=1)
