"""Do the shares of the others stay as they are when a site leaves?"""

from statistics import fmean

from fedce.config import Config
from fedce.studies.base import Context, Outcome, Picture, Table

TITLE = "Distribution shift: shares with and without a site"


def trainings(context: Context) -> list[Config]:
    return context.leave_one_out()


def evaluate(context: Context) -> Outcome:
    from fedce.report import plots

    whole = _mean_shares(context, ())
    changes = {}
    for left in context.names:
        before = renormalised(whole, left)
        after = _mean_shares(context, (left,))
        changes[left] = {site: (before[site], after[site]) for site in before}
    largest = {left: max(abs(b - a) for b, a in pairs.values()) for left, pairs in changes.items()}
    subject = max(whole, key=lambda site: whole[site])
    table = Table(
        "shift",
        "Change of each site's share, in points, when the site of the row leaves; before, the shares of those who stay "
        "are brought to a sum of 100 %.",
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
        f"Shares of the others with {subject} (which has the largest) and without it, %: bars of a pair that are "
        "equally high mean that the estimate does not depend on who else is there.",
        plots.pairs({site: pairs[site] for site in pairs}, (f"with {subject}", f"without {subject}")).encode(),
        data=Table(
            "shift-pairs", "Shares.", ["site", "with", "without"], [[s, *map(float, p)] for s, p in pairs.items()]
        ),
    )
    findings = [
        f"When {subject}, the largest contributor, leaves, no other share changes by more than "
        f"{100 * largest[subject]:.1f} points; over all sites the largest change is "
        f"{100 * max(largest.values()):.1f} points.",
    ]
    order = sorted(pairs, key=lambda site: pairs[site][0])
    same = order == sorted(pairs, key=lambda site: pairs[site][1])
    findings.append(f"The order of those who stay is {'the same' if same else 'not the same'} without {subject}.")
    return Outcome("shift", TITLE, findings, [table], [picture])


def _mean_shares(context: Context, left: tuple[str, ...]) -> dict[str, float]:
    runs = [context.result(context.training("fedce", seed, leave_out=left)).contributions for seed in context.seeds]
    return {site: fmean(run[site] for run in runs) for site in context.names if site not in left}


def renormalised(shares: dict[str, float], left: str) -> dict[str, float]:
    rest = 1 - shares[left]
    return {site: share / rest for site, share in shares.items() if site != left}
