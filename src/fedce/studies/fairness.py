"""Table 2: who is served how, against what each site reaches alone."""

from fedce import compare as comparing
from fedce.config import Config
from fedce.studies import paper
from fedce.studies.base import Context, Outcome, Table, best, title_of

TITLE = "Performance fairness (the paper's Table 2)"


def trainings(context: Context) -> list[Config]:
    return context.trainings(_methods(context))


def _methods(context: Context) -> list[str]:
    """Those that are compared, and what they are compared with."""
    return list(dict.fromkeys([*context.methods, "standalone"]))


def evaluate(context: Context) -> Outcome:
    rows = [row for row in context.compare(_methods(context)) if row.algorithm != "standalone"]
    printed = paper.FAIRNESS.get(context.data, {})
    header = ["method", "Pearson, %", "Euclid", "worst", "Std.", "Jain", "Gini"]
    header += ["paper's Pearson", "paper's Euclid"] if printed else []
    fairness = Table(
        "fairness",
        "Sites' Dice against Standalone's (Pearson, higher is better; Euclid in points, lower is better), and how "
        "evenly the sites are served.",
        header,
        [
            [
                title_of(row.algorithm),
                None if row.standalone_pearson is None else 100 * row.standalone_pearson,
                None if row.standalone_euclid is None else 100 * row.standalone_euclid,
                100 * row.worst,
                100 * row.std_over_sites,
                row.jain,
                row.gini,
                *(printed.get(row.algorithm, (None, None)) if printed else ()),
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
                title_of(row.algorithm),
                *(f"{100 * row.gain[site]:+.2f}" for site in context.names),
                str(sum(value < 0 for value in row.gain.values())),
            ]
            for row in rows
            if row.gain
        ],
    )
    return Outcome("fairness", TITLE, _findings(rows, bool(printed)), [fairness, gain])


def _findings(rows: list[comparing.Row], in_the_paper: bool) -> list[str]:
    nearest = best({row.algorithm: row.standalone_euclid for row in rows}, lowest=True)
    findings = [f"{title_of(nearest)} stays nearest to what the sites reach alone, by Euclid."]
    losers = {row.algorithm: sum(value < 0 for value in row.gain.values()) for row in rows if row.gain}
    fewest = min(losers.values())
    names = ", ".join(title_of(name) for name, n in losers.items() if n == fewest)
    findings.append(f"Sites that would do better alone: at least {fewest}, with {names}.")
    if in_the_paper:
        findings.append(
            "The paper's Table 2 does not follow from its Table 1, so its numbers are shown, not aimed at. A distance "
            "to Standalone also counts what a site gains: where all sites gain, it says little."
        )
    return findings
