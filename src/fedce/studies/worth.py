"""The bench of worth: estimates of what a site gives, on many federations, against training again without each site.

The federations and their division into those that may be looked at and those that are reported are in `federations`.
One training gives all estimates that need no training of their own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

import numpy as np

from fedce.base.config import Config
from fedce.base.tables import BUILT_IN, AlgorithmConfig, DataConfig, WorthConfig
from fedce.federation.session import Result
from fedce.questions import value as valuing
from fedce.studies.base import Cell, Context, Outcome, Study, Table
from fedce.studies.estimates import OURS, OURS_TO_OTHERS, Floats, array_of, estimates_of
from fedce.studies.federations import DRAWN, Federation, of_folder
from fedce.valuation import shapley
from fedce.valuation.agreement import Reliability, agreement, reliability
from fedce.valuation.worth import shares_of

TITLE = "Worth: estimates of what a site gives, against leave-one-out"
TRAINED = ("fedci", "cgsv")
"""Estimates that need a training of their own, with the first seed alone: FedCI takes as long as eight others."""
RECONSTRUCTED_ROUNDS = 6
"""Values from the models of all coalitions are taken of this many first rounds: each costs 63 validation passes."""
SHAPLEY_ROUNDS = 20
N_SHAPLEY = 4
"""Exact Shapley values need 64 trainings of six sites, so they are worked out for this many federations, if there are
several seeds."""
RELIABLE = 0.7
Truth = Literal["whole", "others"]
"""What all sites lose without a site, or what the others lose."""
TRUTHS: tuple[Truth, Truth] = ("whole", "others")


def trainings(context: Context) -> list[Config]:
    found: list[Config] = []
    for federation in federations(context):
        whole = _whole(context, federation)
        names = _names(context, federation)
        for seed in context.seeds:
            found += valuing.trainings(_seeded(whole, seed), "loo", names)
            found.append(_reconstructed(context, federation, seed))
        found += [_of(context, federation, name, context.seeds[0]) for name in TRAINED]
    for federation in _with_shapley(context):
        found += valuing.trainings(_short(context, federation), "shapley", _names(context, federation))
    return found


def in_full(context: Context) -> list[Config]:
    """The trainings with all sites, from whose rounds estimates follow."""
    whole = [
        _seeded(_whole(context, federation), seed) for federation in federations(context) for seed in context.seeds
    ]
    return [*whole, *(_short(context, federation) for federation in _with_shapley(context))]


def federations(context: Context) -> list[Federation]:
    """All that can be drawn, and those of the folder that the study is called with."""
    if context.data in BUILT_IN:
        return list(DRAWN)
    return [*DRAWN, *of_folder(context.data, context.config.data.model_dump(exclude_unset=True, exclude={"source"}))]


def _with_shapley(context: Context) -> list[Federation]:
    if len(context.seeds) == 1:
        return []
    found = federations(context)
    sides = [[one for one in found if one.is_reported is side] for side in (False, True)]
    return [one for side in sides for one in side[: N_SHAPLEY // 2]]


def _whole(context: Context, federation: Federation) -> Config:
    """FedCE with ballots at their usual rate, and with sketches, from which further estimates follow."""
    experiment = context.to_the_letter.model_copy(
        update={
            "worth": WorthConfig(),
            "freerider": context.config.freerider.model_copy(update={"detect": True}),
            "algorithm": AlgorithmConfig(name="fedce"),
            **({"data": DataConfig()} if federation.base in BUILT_IN else {}),
        }
    )
    return federation.config(experiment, context.store.folder / "federations")


def _seeded(config: Config, seed: int) -> Config:
    return config.model_copy(update={"seed": seed})


def _of(context: Context, federation: Federation, algorithm: str, seed: int) -> Config:
    return _seeded(_whole(context, federation), seed).model_copy(
        update={"algorithm": AlgorithmConfig(name=algorithm), "worth": WorthConfig(every=0)}
    )


def _reconstructed(context: Context, federation: Federation, seed: int) -> Config:
    """The first rounds once more, with the models of all coalitions scored."""
    whole = _of(context, federation, "fedce", seed)
    return whole.model_copy(update={"rounds": min(RECONSTRUCTED_ROUNDS, whole.n_rounds), "reconstruction": True})


def _short(context: Context, federation: Federation) -> Config:
    whole = _whole(context, federation)
    return _seeded(whole, context.seeds[0]).model_copy(update={"rounds": min(SHAPLEY_ROUNDS, whole.n_rounds)})


def _names(context: Context, federation: Federation) -> list[str]:
    return [site.name for site in context.store.sites(_whole(context, federation).data)]


# What follows from all trainings of one federation.


@dataclass(frozen=True)
class Found:
    """One federation: its truth, and every estimate by seed."""

    federation: Federation
    whole: Mapping[int, Floats]
    """Seed to what all sites lose without each site, in Dice."""
    others: Mapping[int, Floats]
    """Seed to what the other sites lose."""
    estimates: Mapping[str, Sequence[Floats]]
    holds: Sequence[bool]
    """For each site and seed, whether the interval of worth.share holds the truth's share."""
    signals: Sequence[float]

    def by_seed(self, truth: Truth) -> Mapping[int, Floats]:
        return self.whole if truth == "whole" else self.others

    def reliability(self, truth: Truth) -> Reliability | None:
        return reliability(list(self.by_seed(truth).values()))

    def ceiling(self, truth: Truth) -> float | None:
        found = self.reliability(truth)
        return found.ceiling if found else None

    def truth(self, kind: Truth) -> Floats:
        """The mean over seeds."""
        return _mean(self.by_seed(kind))

    def pearson(self, name: str, truth: Truth) -> float | None:
        """The mean over seeds of the agreement of one run's estimate with the truth of all seeds."""
        known = [
            found
            for estimate in self.estimates.get(name, ())
            if (found := agreement(estimate, self.truth(truth)).pearson) is not None
        ]
        return fmean(known) if known else None

    def euclid(self, name: str, truth: Truth) -> float | None:
        target = shares_of(self.truth(truth))
        known = [float(np.linalg.norm(estimate - target)) for estimate in self.estimates.get(name, ())]
        return fmean(known) if known else None


def _mean(by_seed: Mapping[int, Floats]) -> Floats:
    found: Floats = np.mean(list(by_seed.values()), axis=0)
    return found


def _found(context: Context, federation: Federation) -> Found:
    names, whole, others = _names(context, federation), {}, {}
    estimates: dict[str, list[Floats]] = {}
    results: list[Result] = []
    for seed in context.seeds:
        everybody, *without = valuing.trainings(_seeded(_whole(context, federation), seed), "loo", names)
        result = context.result(everybody)
        results.append(result)
        lost = np.array([[result.dice[j] - context.result(one).dice[j] for j in names] for one in without])
        whole[seed] = lost.mean(axis=1)
        others[seed] = (lost.sum(axis=1) - np.diag(lost)) / (len(names) - 1)
        by_name = estimates_of(result, context.rounds(everybody))
        if seed == context.seeds[0]:
            for name in TRAINED:
                by_name[name] = array_of(context.result(_of(context, federation, name, seed)).contributions, names)
        by_name |= _by_coalitions(context.result(_reconstructed(context, federation, seed)), names)
        for name, shares in by_name.items():
            estimates.setdefault(name, []).append(shares)
    target = shares_of(_mean(others))
    worths = [result.values["worth"] for result in results if result.values["worth"]["share"] is not None]
    holds = [worth["low"][site] <= target[i] <= worth["high"][site] for worth in worths for i, site in enumerate(names)]
    return Found(federation, whole, others, estimates, holds, [worth["signal"] for worth in worths])


def _by_coalitions(result: Result, names: Sequence[str]) -> dict[str, Floats]:
    """Shapley and Banzhaf values of the first rounds' models, as shares."""
    keys = {"reconstruction": "reconstruction", "Banzhaf": "banzhaf"}
    return {title: shares_of(array_of(result.values[key], names)) for title, key in keys.items()}


# The page.


def evaluate(context: Context) -> Outcome:
    found = [_found(context, federation) for federation in federations(context)]
    tables = [
        _summary(found),
        _table("whole", "Pearson with what all sites lose", found),
        _table("others", "Pearson with what the other sites lose", found),
        _truths(found),
    ]
    if chosen := _with_shapley(context):
        tables.append(_shapley(context, chosen))
    return Outcome("worth", TITLE, _findings(found), tables)


def _side(found: Sequence[Found], reported: bool) -> list[Found]:
    return [one for one in found if one.federation.is_reported is reported]


def _over(
    found: Sequence[Found], measure: Callable[[Found, str, Truth], float | None], name: str, truth: Truth
) -> float | None:
    """The mean over federations."""
    return _mean_of([measure(one, name, truth) for one in found])


def _mean_of(numbers: Sequence[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return fmean(known) if known else None


def _names_of(found: Sequence[Found]) -> list[str]:
    return list(dict.fromkeys(name for one in found for name in one.estimates))


def _summary(found: Sequence[Found]) -> Table:
    """For each estimate, the means over both sides."""
    sides = [side for side in (_side(found, False), _side(found, True)) if side]

    def row(name: str) -> list[Cell]:
        cells: list[Cell] = [name]
        for side in sides:
            for truth in TRUTHS:
                cells += [_over(side, Found.pearson, name, truth), _over(side, Found.euclid, name, truth)]
        return cells

    ceilings: list[Cell] = ["a perfect estimate (the ceiling)"]
    for side in sides:
        for truth in TRUTHS:
            ceilings += [_mean_of([one.ceiling(truth) for one in side]), None]
    titles = ["reported" if side[0].federation.is_reported else "looked at" for side in sides]
    header = ["estimate"]
    for title in titles:
        header += [f"{title}: r whole", "Euclid", "r others", "Euclid"]
    return Table(
        "summary",
        "Mean over the federations of Pearson's r and of the Euclidean distance of shares, against what all sites lose "
        "by leave-one-out, and against what the other sites lose.",
        header,
        [ceilings, *(row(name) for name in _names_of(found))],
    )


def _table(truth: Truth, title: str, found: Sequence[Found]) -> Table:
    estimates = _names_of(found)
    return Table(
        truth,
        f"{title}, by federation; the mean over the seeds of the run that is estimated from.",
        ["federation", "reported", *estimates],
        [
            [
                one.federation.name,
                "yes" if one.federation.is_reported else "no",
                *(one.pearson(estimate, truth) for estimate in estimates),
            ]
            for one in found
        ],
        n_keys=2,
    )


def _truths(found: Sequence[Found]) -> Table:
    """How reliable the truth is, and how worth's intervals fare."""
    return Table(
        "truth",
        "The truth's own reliability: correlation of two seeds, and the ceiling that a perfect estimate can reach "
        "against their mean, for what all sites lose and for what the others lose. Largest drop, in points of Dice. "
        "Worth: signal, and the part of sites and seeds whose interval holds the truth.",
        [
            "federation",
            "reported",
            *(f"{truth}: {what}" for truth in TRUTHS for what in ("two seeds", "ceiling")),
            "largest drop",
            "signal",
            "intervals that hold",
        ],
        [
            [
                one.federation.name,
                "yes" if one.federation.is_reported else "no",
                *_reliability_cells(one),
                100 * float(one.truth("whole").max()),
                fmean(one.signals) if one.signals else None,
                fmean(one.holds) if one.holds else None,
            ]
            for one in found
        ],
        n_keys=2,
    )


def _reliability_cells(one: Found) -> list[Cell]:
    found = [one.reliability(truth) for truth in TRUTHS]
    return [cell for each in found for cell in ((each.between_seeds, each.ceiling) if each else (None, None))]


def _shapley(context: Context, chosen: Sequence[Federation]) -> Table:
    rows: list[list[Cell]] = []
    for federation in chosen:
        names, short = _names(context, federation), _short(context, federation)
        found = valuing.value(short, "shapley", context.store)
        truth = np.array([found.values[name] for name in names])
        by_name = estimates_of(context.result(short), context.rounds(short))
        drops = shapley.leave_one_out(_utility(found), names)
        rows += [
            [federation.name, name, agreement(estimate, truth).pearson]
            for name, estimate in {"leave-one-out": array_of(drops, names), **by_name}.items()
        ]
    return Table(
        "shapley",
        f"Pearson with exact Shapley values of {SHAPLEY_ROUNDS} rounds, one seed.",
        ["federation", "estimate", "Pearson"],
        rows,
        n_keys=2,
    )


def _utility(found: valuing.Valuation) -> shapley.Utility:
    return lambda coalition: found.utilities["+".join(sorted(coalition))]


def _findings(found: Sequence[Found]) -> list[str]:
    side = _side(found, True)
    if not side:
        return []
    said = []
    for what, name, truth in (("all sites lose", OURS, TRUTHS[0]), ("the other sites lose", OURS_TO_OTHERS, TRUTHS[1])):
        reached, theirs, images = (_over(side, Found.pearson, key, truth) for key in (name, "fedce", "images"))
        away, theirs_away = (_over(side, Found.euclid, key, truth) for key in (name, "fedce"))
        ceiling = _mean_of([one.ceiling(truth) for one in side])
        of_ceiling = f", {reached / ceiling:.2f} of the ceiling" if reached is not None and ceiling else ""
        said.append(
            f"On the {len(side)} reported federations, {name} agrees with what {what} by {_text(reached)} (Pearson, "
            f"mean{of_ceiling}), FedCE's share by {_text(theirs)}, the number of images by {_text(images)}. Its "
            f"Euclidean distance is {_text(away)}, that of FedCE's share {_text(theirs_away)}."
        )
        if behind := [one.federation.name for one in side if _is_behind(one, name, truth)]:
            said.append(
                f"{name} is more than 0.1 behind the better of FedCE's share and the images: {', '.join(behind)}."
            )
    holds = [held for one in side for held in one.holds]
    if holds:
        said.append(
            f"The 95 % intervals of {OURS_TO_OTHERS} hold the truth in {100 * fmean(holds):.0f} % of sites and seeds."
        )
    return said


def _is_behind(one: Found, name: str, truth: Truth) -> bool:
    """Whether FedCE's share or the images agree clearly better with a truth that is reliable."""
    reliable, reached = one.reliability(truth), one.pearson(name, truth)
    if reliable is None or reliable.between_seeds <= RELIABLE or reached is None:
        return False
    others = [one.pearson(other, truth) for other in ("fedce", "images")]
    return reached < max(found for found in [*others, -1.0] if found is not None) - 0.1


def _text(value: float | None) -> str:
    return "no defined number" if value is None else f"{value:.2f}"


STUDY = Study(TITLE, trainings, evaluate, in_full)
