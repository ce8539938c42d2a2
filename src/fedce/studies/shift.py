"""Distribution shift: do the other sites' shares stay the same when a site leaves?"""

from itertools import combinations
from statistics import fmean

from fedce.base.config import Config
from fedce.studies import paper
from fedce.studies.base import Context, Outcome, Picture, Study, Table, results_alone
from fedce.valuation.standing import NO_DIFFERENCE, exceeds

TITLE = "Distribution shift: shares with and without a site"


def trainings(context: Context) -> list[Config]:
    return context.leave_one_out()


def evaluate(context: Context) -> Outcome:
    from fedce.pictures import study_plots

    whole = _mean_shares(context, ())
    changes = {}
    for left in context.names:
        before = renormalised(whole, left)
        after = _mean_shares(context, (left,))
        changes[left] = {site: (before[site], after[site]) for site in before}
    largest = {left: max(abs(b - a) for b, a in pairs.values()) for left, pairs in changes.items()}
    subject, limit = paper.SHIFT.get(context.printed, (max(whole, key=lambda site: whole[site]), None))
    who = "which has the largest" if limit is None else "which the paper's Fig. 6 leaves out"
    table = Table(
        "shift",
        "Change of each site's share, in points, when the site of the row leaves; the shares of the remaining sites "
        "before it leaves are scaled to a sum of 100 %.",
        ["without", *context.names, "largest"],
        [
            [
                left,
                *("" if site == left else f"{100 * (pairs[site][1] - pairs[site][0]):+.1f}" for site in context.names),
                100 * largest[left],
            ]
            for left, pairs in changes.items()
        ],
        digits=1,
    )
    pairs = changes[subject]
    picture = Picture(
        "shift",
        f"Shares of the other sites with {subject} ({who}) and without it, %. Two bars of equal height mean that the "
        "estimate of this site does not depend on which other sites take part.",
        study_plots.pairs({site: pairs[site] for site in pairs}, (f"with {subject}", f"without {subject}")).encode(),
        data=Table(
            "shift-pairs", "Shares.", ["site", "with", "without"], [[s, *map(float, p)] for s, p in pairs.items()]
        ),
    )
    findings = [
        f"When {subject}, {who}, leaves, no other share changes by more than {100 * largest[subject]:.1f} points"
        + (f", where the paper states changes below {limit:g} %" if limit is not None else "")
        + f"; over all sites the largest change is {100 * max(largest.values()):.1f} points.",
    ]
    findings.append(_order(context, subject))
    return Outcome("shift", TITLE, findings, [table], [picture])


def _order(context: Context, left: str) -> str:
    """Which remaining sites change places, counting only orders that the seeds show."""
    before, after = _shares_by_seed(context, ()), _shares_by_seed(context, (left,))
    pairs = list(combinations(after, 2))
    shown = [
        (a, b) if exceeds(before[a], before[b]) else (b, a)
        for a, b in pairs
        if exceeds(before[a], before[b]) or exceeds(before[b], before[a])
    ]
    turned = [f"{a} and {b}" for a, b in shown if exceeds(after[b], after[a])]
    if not shown:
        return f"The order of the remaining sites: {NO_DIFFERENCE}."
    return f"The seeds show the order of {len(shown)} of {len(pairs)} pairs of remaining sites; without {left}, " + (
        f"{len(turned)} of these pairs change places: {', '.join(turned)}."
        if turned
        else "no such pair changes places."
    )


def _shares_by_seed(context: Context, left: tuple[str, ...]) -> dict[str, list[float]]:
    runs = [context.result(context.training("fedce", seed, leave_out=left)).contributions for seed in context.seeds]
    return {site: [run[site] for run in runs] for site in context.names if site not in left}


def _mean_shares(context: Context, left: tuple[str, ...]) -> dict[str, float]:
    return {site: fmean(shares) for site, shares in _shares_by_seed(context, left).items()}


def renormalised(shares: dict[str, float], left: str) -> dict[str, float]:
    rest = 1 - shares[left]
    return {site: share / rest for site, share in shares.items() if site != left}


STUDY = Study(TITLE, trainings, evaluate, results_alone, order=6)
