"""Table 1: what each method does for each site, and the appendix's deviations over seeds."""

from statistics import fmean

from fedce.compare import Row
from fedce.config import Config
from fedce.fairness import sample_std
from fedce.studies import paper
from fedce.studies.base import Cell, Context, Outcome, Table, best, title_of

TITLE = "Performance (the paper's Table 1)"


def trainings(context: Context) -> list[Config]:
    return context.trainings(context.methods)


def evaluate(context: Context) -> Outcome:
    rows = context.compare(context.methods)
    tables = [_dice(context, rows)]
    if len(rows[0].dice_by_class) > 1:
        tables.append(_by_class(rows))
    if context.data in paper.DICE:
        tables.append(_beside_the_paper(context, rows))
    return Outcome("performance", TITLE, _findings(context, rows), tables)


def _dice(context: Context, rows: list[Row]) -> Table:
    return Table(
        "dice",
        f"Test Dice, %{_of_seeds(context)}; Std. is over the sites.",
        ["method", *context.names, "Avg.", "Std.", "worst"],
        [
            [
                title_of(row.algorithm),
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


def _by_class(rows: list[Row]) -> Table:
    classes = list(rows[0].dice_by_class)
    return Table(
        "dice-by-class",
        "Test Dice by class, %: mean over sites and seeds.",
        ["method", *classes],
        [[title_of(row.algorithm), *(100 * row.dice_by_class[name] for name in classes)] for row in rows],
    )


def _beside_the_paper(context: Context, rows: list[Row]) -> Table:
    printed = paper.DICE[context.data]
    return Table(
        "dice-beside-the-paper",
        f"Average and deviation over sites beside the paper's ({paper.SETTINGS}).",
        ["method", "Avg.", "paper's", "Std.", "paper's", "site 5", "paper's"],
        [
            [
                title_of(row.algorithm),
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
    federated = [row for row in rows if row.algorithm != "standalone"]
    highest = best({row.algorithm: row.mean for row in federated})
    fairest = best({row.algorithm: row.std_over_sites for row in federated}, lowest=True)
    safest = best({row.algorithm: row.worst for row in federated})
    by_name = {row.algorithm: row for row in rows}
    findings = [
        f"Of the federated methods {title_of(highest)} has the highest average "
        f"({100 * by_name[highest].mean:.1f} %), {title_of(fairest)} the smallest deviation over sites "
        f"({100 * by_name[fairest].std_over_sites:.1f}), and {title_of(safest)} serves its worst site best "
        f"({100 * by_name[safest].worst:.1f} %)."
    ]
    if context.data in paper.DICE:
        findings.append(
            "In the paper FedCE (Multi.) has the highest average and the smallest deviation on both tasks: "
            + ("so here." if highest == fairest == "fedce" else "not in both respects here.")
        )
    if "standalone" in by_name:
        alone = by_name["standalone"]
        behind = [title_of(row.algorithm) for row in federated if row.mean < alone.mean]
        what = f"{', '.join(behind)} stay below it" if behind else "all federated methods are above it"
        findings.append(f"Training alone reaches {100 * alone.mean:.1f} % on average; {what}.")
    return findings
