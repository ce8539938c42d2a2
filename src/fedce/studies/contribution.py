"""Table 3: contributions against leave-one-out, and the appendix's two tables of each site's value."""

from statistics import fmean

import numpy as np

from fedce.base.config import Config
from fedce.questions import compare as comparing
from fedce.questions import value as valuing
from fedce.studies import paper
from fedce.studies.base import Cell, Context, Outcome, Study, Table, best, results_alone
from fedce.valuation import shapley
from fedce.valuation.agreement import Interval, agreement, bootstrap_agreement
from fedce.valuation.standing import NO_DIFFERENCE, exceeds

TITLE = "Contributions against the truth (the paper's Table 3)"


def trainings(context: Context) -> list[Config]:
    return [*context.trainings(_estimators(context)), *context.leave_one_out()]


def _estimators(context: Context) -> list[str]:
    # FedCE is always among them: it is trained for the truth anyway, and the findings are about it.
    return list(dict.fromkeys([name for name in (*context.methods, "fedce") if name != "standalone"]))


def truth_of(context: Context) -> valuing.Truth:
    return valuing.truth_over_seeds(
        context.training("fedce", 0), "loo", "fedce", context.seeds, context.store, 0, lambda progress: None
    )


def evaluate(context: Context) -> Outcome:
    truth = truth_of(context)
    rows = context.compare(_estimators(context), truth.shares)
    tables = [
        _agreement(context, rows, truth),
        _worth(context, truth),
        *_worth_by_class(context),
        _changes(context),
        _shares(context, rows, truth),
    ]
    return Outcome("contribution", TITLE, _findings(context, rows, truth), tables)


def _agreement(context: Context, rows: list[comparing.Row], truth: valuing.Truth) -> Table:
    printed = paper.AGREEMENT.get(context.printed, {})
    header = ["method", "Pearson, %", "95 % interval", "p", "Spearman, %", "Euclid", "cosine", "order over seeds (tau)"]
    header += ["paper's Pearson", "paper's Euclid", "paper's cosine"] if printed else []
    return Table(
        "agreement",
        "Contributions (mean over seeds) against leave-one-out shares. The interval comes from a bootstrap over sites "
        "and seeds, with the seeds of the truth drawn too.",
        header,
        [
            [
                context.title_of(row.algorithm),
                _percent(row.truth_pearson),
                _interval(context, row.algorithm, truth),
                row.truth_pearson_p,
                _percent(row.truth_spearman),
                row.truth_euclid,
                row.truth_cosine,
                row.rank_tau,
                *(printed.get(row.algorithm, (None,) * 3) if printed else ()),
            ]
            for row in rows
        ],
    )


def _interval(context: Context, algorithm: str, truth: valuing.Truth) -> str:
    found = _pearson_interval(context, algorithm, truth)
    return "-" if found is None else f"{100 * found.low:.0f} to {100 * found.high:.0f}"


def _pearson_interval(context: Context, algorithm: str, truth: valuing.Truth) -> Interval | None:
    estimates = [
        [context.result(context.training(algorithm, seed)).contributions[site] for site in context.names]
        for seed in context.seeds
    ]
    return bootstrap_agreement(estimates, _truth_by_seed(context, truth), np.random.default_rng(0)).pearson


def _truth_by_seed(context: Context, truth: valuing.Truth) -> list[list[float]]:
    """Leave-one-out values of each seed, which the bootstrap draws too, because they differ from seed to seed."""
    by_seed = [shapley.shares(truth.by_seed[seed]).by_player for seed in context.seeds]
    return [[shares[site] for site in context.names] for shares in by_seed]


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _worth(context: Context, truth: valuing.Truth) -> Table:
    """The appendix's tables: Dice without each site, the drop, its share, and the share of training images."""
    images = {site.name: site.n_by_part["train"] for site in context.sites}
    total = sum(images.values())
    shares = paper.LEAVE_ONE_OUT.get(context.printed)
    printed = dict(zip(paper.CLIENTS, shares, strict=True)) if shares else {}
    whole, *without = _mean_dice(context)
    header = ["site", "Dice without it", "drop", *(f"drop, seed {seed}" for seed in context.seeds), "share, %"]
    header += ["training images", "their share, %", *(["paper's share, %"] if printed else [])]
    return Table(
        "leave-one-out",
        f"Mean test Dice over all sites when FedCE trains without one site; with all sites it is {100 * whole:.2f} %. "
        "A share is a site's drop divided by the sum of all drops; a negative drop counts as 0.",
        header,
        [
            [
                site,
                100 * dice,
                100 * truth.values[site],
                *(100 * values[site] for values in truth.by_seed.values()),
                100 * truth.shares[site],
                str(images[site]),
                100 * images[site] / total,
                *([printed[site]] if printed else []),
            ]
            for site, dice in zip(context.names, without, strict=True)
        ],
    )


def _worth_by_class(context: Context) -> list[Table]:
    """The appendix's table for each class (disc and cup); empty if there is one class."""
    classes = list(context.sites.classes)
    if len(classes) < 2:
        return []
    printed = paper.LEAVE_ONE_OUT_DROPS.get(context.printed, {})
    whole = _dice_by_class(context, ())
    rows: list[list[Cell]] = []
    for i, left in enumerate(context.names):
        dice = _dice_by_class(context, (left,))
        own = [cell for name in classes for cell in (100 * dice[name], 100 * (whole[name] - dice[name]))]
        rows.append([left, *own, *(printed[name][i] for name in classes if printed)])
    header = [column for name in classes for column in (f"{name} without it", f"drop of {name}")]
    levels = ", ".join(f"{name} {100 * whole[name]:.2f} %" for name in classes)
    return [
        Table(
            "leave-one-out-by-class",
            f"Test Dice by class when FedCE trains without a site, mean over sites and seeds; with all sites {levels}.",
            ["site", *header, *(f"paper's drop of {name}" for name in classes if printed)],
            rows,
        )
    ]


def _changes(context: Context) -> Table:
    """How each site's absence changes the Dice of every site."""
    whole = _dice_by_site(context, ())
    rows: list[list[Cell]] = []
    for left in context.names:
        dice = _dice_by_site(context, (left,))
        rows.append([left, *(f"{100 * (dice[site] - whole[site]):+.1f}" for site in context.names)])
    return Table(
        "leave-one-out-by-site",
        "Change of each site's test Dice, in points, when the site of the row does not train (mean over seeds).",
        ["without", *context.names],
        rows,
    )


def _dice_by_site(context: Context, left: tuple[str, ...]) -> dict[str, float]:
    runs = [context.result(context.training("fedce", seed, leave_out=left)).dice for seed in context.seeds]
    return {site: fmean(run[site] for run in runs) for site in context.names}


def _dice_by_class(context: Context, left: tuple[str, ...]) -> dict[str, float]:
    """Class to its mean Dice over seeds and sites."""
    runs = [context.result(context.training("fedce", seed, leave_out=left)).values for seed in context.seeds]
    found = [run["dice_by_class"][site] for run in runs for site in context.names]
    return {name: fmean(dice[name] for dice in found if name in dice) for name in context.sites.classes}


def _mean_dice(context: Context) -> list[float]:
    """Mean Dice over seeds and sites: with all sites, then without each site."""
    n = len(context.names) + 1
    utilities = np.array([valuing.utility(context.result(config)) for config in context.leave_one_out()])
    return [float(mean) for mean in utilities.reshape(len(context.seeds), n).mean(axis=0)]


def _shares(context: Context, rows: list[comparing.Row], truth: valuing.Truth) -> Table:
    cells: list[list[Cell]] = [
        [context.title_of(row.algorithm), *(100 * row.contributions[site] for site in context.names)] for row in rows
    ]
    cells.append(["leave-one-out", *(100 * truth.shares[site] for site in context.names)])
    return Table(
        "shares",
        "Contributions by method, % (mean over seeds), and the truth (leave-one-out shares).",
        ["method", *context.names],
        cells,
        digits=1,
    )


def _findings(context: Context, rows: list[comparing.Row], truth: valuing.Truth) -> list[str]:
    ours = next(row for row in rows if row.algorithm == "fedce")
    findings = [_agrees_best(context, rows, truth)]
    if truth.reliability is not None:
        findings.append(
            f"Two seeds' leave-one-out values correlate by {truth.reliability.between_seeds:.2f}, so even a perfect "
            f"estimate would be expected to reach no more than {truth.reliability.ceiling:.2f} against their mean."
        )
    drops = {site: [values[site] for values in truth.by_seed.values()] for site in context.names}
    if negative := [site for site, own in drops.items() if exceeds([0.0] * len(own), own)]:
        findings.append(
            f"The mean Dice rises when FedCE trains without {' or without '.join(negative)}: by leave-one-out, such a "
            "site has no value."
        )
    findings += _influence(context, ours, truth)
    own = _own_drops(context)
    shares = [ours.contributions[site] for site in context.names]
    with_own = agreement(shares, [own[site] for site in context.names]).pearson
    findings.append(
        f"FedCE's data term measures the drop of Dice on a site's own images. The correlation of FedCE's contributions "
        f"with that drop on the left-out site's own test images is {_said(with_own)}."
    )
    return findings


def _agrees_best(context: Context, rows: list[comparing.Row], truth: valuing.Truth) -> str:
    """Which method follows leave-one-out best, if its interval lies above 0 and above all others'."""
    known = {row.algorithm: row.truth_pearson for row in rows if row.truth_pearson is not None}
    if not known:
        return "No correlation with leave-one-out is defined: shares or drops are the same for all sites."
    intervals = {name: _pearson_interval(context, name, truth) for name in known}
    first = best(known)

    def named(name: str) -> str:
        ends = intervals[name]
        where = "no interval" if ends is None else f"{ends.low:.2f} to {ends.high:.2f}"
        return f"{context.title_of(name)} {known[name]:.2f} ({where})"

    own = intervals[first]
    others = [intervals[name] for name in known if name != first]
    if own is not None and own.low > 0 and all(other is not None and other.high < own.low for other in others):
        return f"{context.title_of(first)} agrees best with leave-one-out, by Pearson's correlation: {named(first)}."
    ours = "" if first == "fedce" or "fedce" not in known else f", and {named('fedce')}"
    if known[first] <= 0:
        return (
            f"No method's contributions follow leave-one-out: the highest Pearson correlation is {named(first)}{ours}."
        )
    return f"Agreement with leave-one-out (Pearson): {NO_DIFFERENCE}; the highest is {named(first)}{ours}."


def _influence(context: Context, row: comparing.Row, truth: valuing.Truth) -> list[str]:
    """The lowest and the highest correlation over all sites but one: with few sites, one may decide it."""
    without = {}
    for left in context.names:
        rest = [site for site in context.names if site != left]
        if len(rest) > 2:
            pairs = [(row.contributions[site], truth.shares[site]) for site in rest]
            without[left] = agreement(*zip(*pairs, strict=True)).pearson
    if not (known := {site: value for site, value in without.items() if value is not None}):
        return []
    low, high = best(known, lowest=True), best(known)
    n_train = {site.name: site.n_by_part["train"] for site in context.sites}
    return [
        f"FedCE's correlation with leave-one-out is {known[low]:.2f} over all sites but {low}, and {known[high]:.2f} "
        f"over all sites but {high}. {high} gets {100 * row.contributions[high]:.1f} % by FedCE and "
        f"{100 * truth.shares[high]:.1f} % by leave-one-out, and has "
        f"{100 * n_train[high] / sum(n_train.values()):.0f} % of the training images."
    ]


def _said(correlation: float | None) -> str:
    return "undefined" if correlation is None else f"{correlation:.2f}"


def _own_drops(context: Context) -> dict[str, float]:
    """How much a site's own Dice falls when FedCE trains without the site, mean over seeds."""
    whole = _dice_by_site(context, ())
    return {site: whole[site] - _dice_by_site(context, (site,))[site] for site in context.names}


STUDY = Study(TITLE, trainings, evaluate, results_alone, order=3)
