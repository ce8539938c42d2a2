"""Scorers whose answers in the ballots contradict each other: they do not follow from images (docs/worth.md).

Close to the common model a score is nearly linear in the model. So the changes by leaving out one site after the other
nearly cancel, and the score of the decoy follows from the other scores (core/decoys.py).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import fmean, median_high

from fedce.core.ballot import Ballot
from fedce.core.decoys import Drawn, contradictions

FEWEST_BALLOTS = 3
"""A scorer is judged by at least this many ballots."""
MOST, MULTIPLE = 0.03, 4.0
"""A scorer is not believed if its contradictions are larger than MOST, in Dice, and than this multiple of the other
scorers' median: where a training moves in large steps, no score is linear."""


@dataclass(frozen=True)
class Scored:
    """A ballot with the round that it belongs to and the weights of the sites that were left out."""

    ballot: Ballot
    round_no: int
    weights: Mapping[str, float]

    def contradictions(self, scorer: str) -> tuple[float, float]:
        weights = {site: self.weights[site] for site in self.ballot.without}
        drawn = Drawn.of(self.ballot.secret, self.round_no, weights)
        return contradictions(drawn, list(weights.values()), self.ballot.scores[scorer], self.ballot.decoy[scorer])


def contradictions_of(held: Iterable[Scored]) -> dict[str, float]:
    """Scorer to the root mean square of its contradictions, in Dice, if there are enough ballots with a decoy."""
    found: dict[str, list[float]] = {}
    for one in held:
        for scorer in one.ballot.decoy:
            found.setdefault(scorer, []).append(fmean(value**2 for value in one.contradictions(scorer)))
    return {scorer: sqrt(fmean(own)) for scorer, own in found.items() if len(own) >= FEWEST_BALLOTS}


def not_believed(held: Sequence[Scored]) -> list[str]:
    """The scorers whose votes do not count.

    Scorers that are not believed have no part in the median; fewer than half of all scorers can be disbelieved.
    """
    found, out = contradictions_of(held), list[str]()
    for scorer in sorted(found, key=lambda name: -found[name]):
        others = [value for other, value in found.items() if other != scorer and other not in out]
        is_most = 2 * (len(out) + 1) >= len(found)
        if is_most or found[scorer] <= max(MOST, MULTIPLE * median_high(others)):
            break
        out.append(scorer)
    return sorted(out)


def without_votes(ballots: Iterable[Ballot], scorers: Sequence[str]) -> list[Ballot]:
    return [
        replace(ballot, scores={site: own for site, own in ballot.scores.items() if site not in scorers})
        for ballot in ballots
    ]
