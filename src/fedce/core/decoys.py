"""Decoys: one model of a ballot lacks no site, and no scorer is told which one.

The models of a ballot lie in one plane: the common model w, and for each site the model without it. A decoy is another
mean of the same site models, as far from w as they are. Close to w a score is nearly linear in the model, so an honest
scorer's scores of the models without a site say how it scores the decoy, and how its losses add up. Scores that follow
from anything but images do not obey this (docs/worth.md).

Everything is drawn from the run's secret: the coordinator's signature under the seed, which no site can make.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from fedce.core.params import Params, weighted_sum

Floats = NDArray[np.float64]
DECOY = 1
"""Number of decoys on a ballot: each costs every scorer a pass over its validation images."""


def secret_text(seed: int) -> str:
    """What the coordinator signs to have a secret; without a key the text itself is drawn from."""
    return f"decoys of a run with seed {seed}"


@dataclass(frozen=True)
class Drawn:
    """What the secret gives for one ballot."""

    direction: Floats
    """The decoy is w plus the sum of these numbers times (the model without a site - w)."""
    order: tuple[int, ...]
    """In which order the models are sent: 0 is w, then those without a site, last the decoy."""

    @classmethod
    def of(cls, secret: str, round_no: int, rho: Mapping[str, float]) -> "Drawn":
        """`rho`: the weights of the sites that are left out, one after the other.

        The direction changes from ballot to ballot only as far as the weights do: the other models keep their
        directions too, so a decoy is not known by being new.
        """
        way = np.array([_rng(f"{secret}/{site}").standard_normal() for site in rho])
        # Leaving out every site, each as far as the others are left, moves nothing: this part can't be measured.
        rest = 1 - np.array(list(rho.values()))
        way -= rest * (way @ rest) / (rest @ rest) if len(rho) else 0.0
        order = _rng(f"{secret}/round {round_no}").permutation(len(rho) + 1 + DECOY)
        return cls(way / max(float(np.linalg.norm(way)), np.finfo(float).tiny), tuple(order.tolist()))

    def decoy(self, mean: Params, lacking: Sequence[Params]) -> Params:
        parts = self.direction.tolist()
        return weighted_sum([mean, *lacking], [1 - sum(parts), *parts])

    def sent(self, models: Sequence[Params]) -> list[Params]:
        return [models[i] for i in self.order]

    def as_sent(self, scores: Sequence[float]) -> list[float]:
        """Scores of w, of the models without a site and of the decoy, as the scorer gave them."""
        return [scores[i] for i in self.order]

    def in_order(self, scores: Sequence[float]) -> list[float]:
        """The inverse of `as_sent`."""
        return [scores[place] for place in np.argsort(self.order).tolist()]


def contradictions(drawn: Drawn, rho: Sequence[float], scores: Sequence[float], decoy: float) -> tuple[float, float]:
    """How far a scorer's answers are from those of a score that is linear close to w; two measures, in Dice.

    The first is the mean change by leaving out one site after the other, which is 0 for a linear score; the second is
    the decoy's score less what the other scores say of it. If no site could be left out, the decoy is w itself.

    >>> drawn = Drawn(np.array([0.6, -0.8]), (0, 1, 2, 3))
    >>> contradictions(drawn, [0.5, 0.5], [0.8, 0.7, 0.9], 0.66)
    (0.0, 0.0)
    """
    rest = 1 - np.array(rho)
    changes = np.array(scores[1:]) - scores[0]
    mean = float(rest @ changes / rest.sum()) if len(rest) else 0.0
    told = float(drawn.direction @ changes)
    return round(mean, 12) + 0.0, round(decoy - scores[0] - told, 12) + 0.0


def _rng(text: str) -> np.random.Generator:
    return np.random.default_rng(int.from_bytes(sha256(text.encode()).digest()[:16]))
