"""Each term of FedCE alone, and their product and sum."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from fedce.base.config import Config
from fedce.studies.base import Context, Outcome, Picture, Study, Table, one_seed, other_metrics, results_alone
from fedce.studies.contribution import truth_of
from fedce.valuation.fairness import sample_std
from fedce.valuation.standing import NO_DIFFERENCE, exceeds, said, standing

TITLE = "Ablation: the two terms of FedCE (the paper's Fig. 7)"
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
                context.title_of(row.algorithm),
                100 * row.mean,
                100 * row.std_over_sites,
                100 * row.worst,
                None if row.truth_pearson is None else 100 * row.truth_pearson,
                None if row.truth_spearman is None else 100 * row.truth_spearman,
            ]
            for row in rows
        ],
    )
    by_name = {row.algorithm: row for row in rows}
    means = {name: row.over_sites(fmean) for name, row in by_name.items()}
    spreads = {name: row.over_sites(sample_std) for name, row in by_name.items()}
    findings = [one_seed(context)] if len(context.seeds) == 1 else []
    findings += [
        said(standing(means), "highest average", lambda name: f"{100 * by_name[name].mean:.1f} %", context.title_of),
        said(
            standing(spreads, lowest=True),
            "smallest deviation over sites",
            lambda name: f"{100 * by_name[name].std_over_sites:.1f}",
            context.title_of,
        ),
        f"In the paper, both terms together are better than either alone, on both tasks: {_together(means, spreads)}",
    ]
    return Outcome(
        "ablation",
        TITLE,
        findings,
        [table, *other_metrics(context, rows)],
        [_picture({context.title_of(name): own for name, own in means.items()})],
    )


def _picture(means: Mapping[str, Sequence[float]]) -> Picture:
    """The picture of the paper's Fig. 7."""
    from fedce.pictures import study_plots

    bars = {name: [100 * value for value in values] for name, values in means.items()}
    return Picture(
        "ablation",
        "Average Dice over the sites, by the terms that set their weights (the paper's Fig. 7): bars are means over "
        "seeds, dots are seeds. The axis does not begin at 0.",
        study_plots.bars(bars, "average Dice, %").encode(),
        data=Table(
            "ablation-seeds",
            "Average Dice over the sites, %, by seed.",
            ["variant", *(f"seed {n + 1}" for n in range(len(next(iter(bars.values())))))],
            [[name, *values] for name, values in bars.items()],
        ),
    )


def _together(means: Mapping[str, Sequence[float]], spreads: Mapping[str, Sequence[float]]) -> str:
    """Whether the better combination is better than both single terms, in average and in deviation over sites."""
    both = max(TOGETHER, key=lambda name: fmean(means[name]))
    gain, less = (
        100 * (choose(fmean(by[name]) for name in TOGETHER) - choose(fmean(by[name]) for name in ALONE))
        for choose, by in ((max, means), (min, spreads))
    )
    is_higher = all(exceeds(means[both], means[name]) for name in ALONE)
    is_fairer = all(exceeds(spreads[both], spreads[name], sign=-1.0) for name in ALONE)
    shown = "so here" if is_higher and is_fairer else NO_DIFFERENCE if not (is_higher or is_fairer) else "in part here"
    return (
        f"{shown}. Compared with the better single term, the better combination differs by {gain:+.2f} points in "
        f"average Dice and by {less:+.2f} points in deviation over sites."
    )


STUDY = Study(TITLE, trainings, evaluate, results_alone, order=7)
