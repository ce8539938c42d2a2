"""Each term of FedCE alone, and their product and sum."""

from fedce.config import Config
from fedce.studies.base import Context, Outcome, Table, best, title_of
from fedce.studies.contribution import truth_of

TITLE = "Ablation: the two terms of FedCE"
ALONE, TOGETHER = ("fedce-cos", "fedce-err"), ("fedce", "fedce-sum")
VARIANTS = (*ALONE, *TOGETHER)


def trainings(context: Context) -> list[Config]:
    return [*context.trainings(VARIANTS), *context.leave_one_out()]


def evaluate(context: Context) -> Outcome:
    truth = truth_of(context)
    rows = context.compare(VARIANTS, truth.shares)
    table = Table(
        "ablation",
        "Dice (%), deviation over sites, and agreement with leave-one-out (%).",
        ["variant", "Avg.", "Std.", "worst", "Pearson", "Spearman"],
        [
            [
                title_of(row.algorithm),
                100 * row.mean,
                100 * row.std_over_sites,
                100 * row.worst,
                None if row.truth_pearson is None else 100 * row.truth_pearson,
                None if row.truth_spearman is None else 100 * row.truth_spearman,
            ]
            for row in rows
        ],
    )
    highest = best({row.algorithm: row.mean for row in rows})
    fairest = best({row.algorithm: row.std_over_sites for row in rows}, lowest=True)
    truest = best({row.algorithm: row.truth_pearson for row in rows})
    gain, less = (
        100 * (choose(by[name] for name in TOGETHER) - choose(by[name] for name in ALONE))
        for choose, by in (
            (max, {row.algorithm: row.mean for row in rows}),
            (min, {row.algorithm: row.std_over_sites for row in rows}),
        )
    )
    findings = [
        f"Highest average: {title_of(highest)}. Smallest deviation over sites: {title_of(fairest)}. "
        f"Nearest to leave-one-out: {title_of(truest)}.",
        "In the paper both terms together beat each alone on both tasks. Here the better combination is "
        f"{gain:+.2f} points in average and {less:+.2f} in deviation over sites from the better single term.",
    ]
    return Outcome("ablation", TITLE, findings, [table])
