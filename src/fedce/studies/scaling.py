"""Federations of growing size: does the estimate still agree with the truth, and what does it cost?

Larger federations are made by cutting each site into shards, the smallest by taking the first three sites. The images
stay the same, so what changes is how many sites share them.
"""

from dataclasses import dataclass

from fedce.base.config import Config
from fedce.base.errors import DataError
from fedce.questions import value as valuing
from fedce.studies.base import Context, Outcome, Picture, Study, Table
from fedce.valuation.agreement import agreement

TITLE = "Scaling: agreement and cost as sites grow"
ROUNDS = 20
"""Most sites of a federation in this study: leave-one-out trains once for each site."""
FEWEST = 3


def trainings(context: Context) -> list[Config]:
    return [config for n in sizes(context) for config in _of_size(context, n)]


def sizes(context: Context) -> list[int]:
    """Numbers of sites: three, all, and twice as many again and again as far as the sites can be cut."""
    n = len(context.names)
    found = [FEWEST, n] if n > FEWEST else [n]
    while found[-1] * 2 <= context.largest and _can_cut(context, found[-1] * 2 // n):
        found.append(found[-1] * 2)
    return found


def _can_cut(context: Context, shards: int) -> bool:
    try:
        context.store.sites(context.config.data.model_copy(update={"shards": shards}))
    except DataError:
        return False
    return True


def _of_size(context: Context, n: int) -> list[Config]:
    """Trainings of FedCE with all sites, then without each site; one seed."""
    whole = len(context.names)
    choice = {"sites": tuple(context.names[:n])} if n < whole else {"shards": n // whole}
    config = context.config.model_copy(update={"data": context.config.data.model_copy(update=choice)})
    rounds = min(ROUNDS, context.config.n_rounds)
    everybody = context.training("fedce", context.seeds[0], data=config.data, rounds=rounds)
    names = [site.name for site in context.store.sites(config.data)]
    return valuing.trainings(everybody, "loo", names)


@dataclass(frozen=True)
class _Point:
    """One size of federation."""

    n_sites: int
    pearson: float | None
    spearman: float | None
    largest_drop: float
    seconds_a_round: float
    seconds: float
    """Seconds of a round in FedCE's training."""
    seconds_of_truth: float


def _point(context: Context, n: int) -> _Point:
    configs = _of_size(context, n)
    found = valuing.value(configs[0], "loo", context.store)
    agrees = agreement(list(found.estimate.values()), list(found.values.values()))
    seconds = [float(context.result(config).values["seconds"]) for config in configs]
    return _Point(
        n_sites=n,
        pearson=agrees.pearson,
        spearman=agrees.spearman,
        largest_drop=max(found.values.values()),
        seconds_a_round=seconds[0] / configs[0].n_rounds,
        seconds=seconds[0],
        seconds_of_truth=sum(seconds),
    )


def evaluate(context: Context) -> Outcome:
    from fedce.pictures import study_plots

    points = [_point(context, n) for n in sizes(context)]
    table = Table(
        "scaling",
        "FedCE against leave-one-out (correlations with the drops), the largest drop in points, seconds of a round, "
        "and seconds of all leave-one-out trainings.",
        ["sites", "Pearson, %", "Spearman, %", "largest drop", "seconds a round", "seconds of leave-one-out"],
        [
            [
                str(point.n_sites),
                None if point.pearson is None else 100 * point.pearson,
                None if point.spearman is None else 100 * point.spearman,
                100 * point.largest_drop,
                point.seconds_a_round,
                point.seconds_of_truth,
            ]
            for point in points
        ],
    )
    picture = Picture(
        "cost",
        "Seconds until the contributions are known: FedCE needs one training, leave-one-out one more for each site.",
        study_plots.cost(
            [point.n_sites for point in points],
            {
                "FedCE": [point.seconds for point in points],
                "leave-one-out": [point.seconds_of_truth for point in points],
            },
        ).encode(),
        data=table,
    )
    first, last = points[0], points[-1]
    findings = [
        f"From {first.n_sites} to {last.n_sites} sites leave-one-out takes "
        f"{last.seconds_of_truth / first.seconds_of_truth:.1f} times as long, a round of FedCE "
        f"{last.seconds_a_round / first.seconds_a_round:.1f} times.",
        f"The largest drop without one site is {100 * first.largest_drop:.2f} points with {first.n_sites} sites and "
        f"{100 * last.largest_drop:.2f} with {last.n_sites} (one seed, no interval).",
    ]
    return Outcome("scaling", TITLE, findings, [table], [picture])


STUDY = Study(TITLE, trainings, evaluate, order=10)
