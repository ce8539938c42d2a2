"""A round's ballot: how sites score the common model, and the models that lack one of the round's sites.

What a site gives to the others (`valuation/worth.py`) follows from the ballots in the ledger. Ballots change nothing in
the training.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt

import numpy as np

from fedce.base.config import Config
from fedce.core.decoys import DECOY
from fedce.core.params import Params, gram, leave_out

FEWEST_SITES = 4
"""Below this, a vote could be held against fewer than two other votes, or the model without a site be that of two."""
FEWEST_WITH_REFERENCE = 2
"""Nobody votes on a reference set; a model that lacks one of two sites is the other's."""
FEWEST_BALLOTS = 3
REFERENCE = "reference"
"""The name of the scorer that is a set of images at the coordinator."""
SET_REFERENCE = "set worth.reference to a labelled folder at the coordinator"
"""What to do where sites can't vote."""
LARGEST_WEIGHT = 0.99
"""A site of a larger weight is not left out: what would remain is rounding noise."""


@dataclass(frozen=True)
class Ballots:
    """In which rounds ballots are held, and who scores."""

    n_rounds: int
    every: int | None = None
    """0: never; None: `usual_step` within `usual_end`."""
    scorers: Sequence[str] = ()
    """Empty: all sites of the round."""
    on_reference: bool = False
    """Whether the coordinator scores on images of its own, and no site is asked."""
    draws: bool = False
    """Whether each round draws its sites."""

    @classmethod
    def asked_by(cls, config: Config) -> "Ballots":
        wanted, draws = config.worth, config.sites_per_round is not None
        return cls(config.n_rounds, wanted.every, wanted.scorers, wanted.reference is not None, draws)

    @property
    def fewest(self) -> int:
        """A round in which fewer sites have a weight holds no ballot."""
        return FEWEST_WITH_REFERENCE if self.on_reference else FEWEST_SITES

    def is_due(self, round_no: int, weighed: Sequence[str], n_before: Mapping[str, int]) -> bool:
        """Whether a round holds a ballot about the sites that have a weight in it.

        `n_before` counts the earlier ballots about each site. A site that joins late has ballots late, unless sites are
        drawn: then many come late, and every round would have to hold one.
        """
        if len(weighed) < self.fewest or round_no >= self.n_rounds or self.every == 0:
            return False
        if self.every is not None:
            return (round_no + 1) % self.every == 0
        has_newcomer = not self.draws and any(n_before.get(site, 0) < FEWEST_BALLOTS for site in weighed)
        is_time = (round_no + 1) % usual_step(self.n_rounds, len(weighed)) == 0
        return is_time and (round_no < usual_end(self.n_rounds) or has_newcomer)

    def scorers_of(self, sites: Sequence[str]) -> list[str]:
        return [site for site in sites if not self.scorers or site in self.scorers]


def usual_end(n_rounds: int) -> int:
    """Ballots are held in the first half of the rounds: later ones say less about training without a site."""
    return max(-(-n_rounds // 2), min(n_rounds, FEWEST_BALLOTS))


def usual_step(n_rounds: int, n_sites: int) -> int:
    """Rounds between two ballots, so that over the whole run a site scores one model more in a round, or less.

    A ballot has a model without each site and a decoy (the common model is scored in any case), and ballots are held in
    half of the rounds. Short runs hold three ballots all the same.

    >>> usual_step(100, 6), usual_step(12, 6), usual_step(3, 6)
    (4, 2, 1)
    """
    return max(min((n_sites + DECOY + 1) // 2, usual_end(n_rounds) // FEWEST_BALLOTS), 1)


@dataclass(frozen=True)
class Ballot:
    """The scores of one round.

    >>> held = Ballot(("north", "south"), {"west": (0.8, 0.7, 0.75), "east": (0.6, 0.5, 0.6)})
    >>> held.scores["west"][0]
    0.8
    """

    without: tuple[str, ...]
    """The sites that were left out, one after the other."""
    scores: Mapping[str, Sequence[float]]
    """Scorer to its scores: of the common model, and of the model without each of these sites."""
    carried: Mapping[str, float] = field(default_factory=dict)
    """Site to how far its update carries the model the way of the others' updates together; below 0: against it."""
    signed: Mapping[str, Sequence[Mapping[str, str]]] = field(default_factory=dict)
    """Scorer to its answers as it signed them, if they came over a network: all scores in the order of the models."""
    decoy: Mapping[str, float] = field(default_factory=dict)
    """Scorer to its score of the decoy (core/decoys.py); empty if there was none."""
    secret: str = ""
    """What the decoy and the order of the models were drawn from; empty if nothing was drawn."""
    no_vote: Mapping[str, str] = field(default_factory=dict)
    """Site that was asked and gave no vote, to the reason."""


def carried_by(models: Mapping[str, Params], start: Params, trust: Mapping[str, float]) -> dict[str, float]:
    """The length of each site's update along the sum of the other sites' updates; 0 if that sum has no direction.

    An update that goes the others' way moves the model where the others want it; a site that no other is like goes its
    own way, however much it needs the federation. No update counts as longer than the round's median: anybody can
    lengthen an update. Twins share what they carry (`trust`).
    """
    if len(models) < 2:
        return dict.fromkeys(models, 0.0)
    products = gram(list(models.values()), start)
    lengths = np.sqrt(np.diag(products))
    factors = np.minimum(1.0, float(np.median(lengths)) / np.maximum(lengths, np.finfo(float).tiny))
    products = products * np.outer(factors, factors)
    found = {}
    for i, site in enumerate(models):
        with_others = float(products[i].sum() - products[i, i])
        of_others = float(products.sum() - 2 * products[i].sum() + products[i, i])
        found[site] = trust.get(site, 1.0) * with_others / sqrt(of_others) if of_others > 0 else 0.0
    return found


def weighed_in(rho: Mapping[str, float], sites: Iterable[str]) -> list[str]:
    """The sites that have a part in the common model and can be left out of it."""
    return sorted(site for site in sites if 0 < rho.get(site, 0.0) < LARGEST_WEIGHT)


def models_without(mean: Params, models: Mapping[str, Params], rho: Mapping[str, float]) -> dict[str, Params]:
    """The common model without each site that has a part in it."""
    weighed = set(weighed_in(rho, models))
    return {site: leave_out(mean, rho[site], model) for site, model in models.items() if site in weighed}
