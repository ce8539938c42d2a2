"""One hospital under two names that never take part together: each name's updates continue those of the other.

Twins (`evidence.py`) are seen in one round. Two names of one hospital can keep apart, in turn or one
after the other. So the sketch of a site's update is compared with the last sketch of every name that is absent now and
was never there together with the site. The scale is that of the sites which took part in both rounds: 0 is the median
cosine of two of them, one then and one now, and 1 is the median cosine of a site with itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from fedce.guard.evidence import KEPT, LEAST_ROOM, TWINS_FROM, Sketches

MOST_APART = 3
"""The last update of an absent name is compared for this many rounds: later, a site is no longer like itself."""
FEWEST_SEEN = 3
"""A comparison of one round is noise, because sketches are short."""
CONTINUES = 0.8
"""Mean likeness of one hospital under two names. Honest pairs reach 0.62 in a round, one hospital 0.87 on average."""
FEWEST_BESIDE = 3
"""The scale needs this many sites that took part in both rounds."""

Seen = Mapping[str, tuple[float, ...]]
"""Absent name to the number of comparisons so far, and their mean likeness."""


@dataclass(frozen=True)
class Attendance:
    """In which rounds each name took part, and what was seen of its likeness to names that were then absent."""

    rounds: Mapping[str, tuple[int, ...]]
    """Rounds of each name's kept sketches, newest last."""
    seen: Mapping[str, Seen]

    def with_round(self, round_no: int, sketches: Sketches, sites: Sequence[str]) -> "Attendance":
        """`sketches`: those kept, with this round's, of these sites, as the last one."""
        rounds = dict(self.rounds)
        for site in sites:
            rounds[site] = (*rounds.get(site, ()), round_no)[-KEPT:]
        seen = {name: dict(its) for name, its in self.seen.items()}
        if round_no >= TWINS_FROM:
            for site, absent, likeness in _comparisons(round_no, rounds, sketches, sites):
                n, mean = seen.get(site, {}).get(absent, (0, 0.0))
                seen.setdefault(site, {})[absent] = (n + 1, (n * mean + likeness) / (n + 1))
        # Names that took part together after all are two hospitals.
        apart = {
            site: {other: its for other, its in own.items() if _never_met(rounds, site, other)}
            for site, own in seen.items()
        }
        return Attendance(rounds, {site: own for site, own in apart.items() if own})


def continued_by(seen: Seen) -> list[str]:
    """The names whose updates a site continues."""
    return [name for name, (n, mean) in seen.items() if n >= FEWEST_SEEN and mean >= CONTINUES]


def _never_met(rounds: Mapping[str, Sequence[int]], site: str, other: str) -> bool:
    return not set(rounds.get(site, ())) & set(rounds.get(other, ()))


def _comparisons(
    round_no: int, rounds: Mapping[str, Sequence[int]], sketches: Sketches, sites: Sequence[str]
) -> list[tuple[str, str, float]]:
    """Site, absent name and the likeness of their last updates, where there is a scale for it."""
    found = []
    for absent, its in rounds.items():
        if absent in sites or round_no - its[-1] > MOST_APART:
            continue
        strangers = [site for site in sites if _never_met(rounds, site, absent)]
        if not strangers or (scale := _scale(its[-1], rounds, sketches, sites)) is None:
            continue
        background, room = scale
        then = _direction(sketches[absent][-1])
        found += [
            (site, absent, (float(_direction(sketches[site][-1]) @ then) - background) / room) for site in strangers
        ]
    return found


def _scale(
    then: int, rounds: Mapping[str, Sequence[int]], sketches: Sketches, sites: Sequence[str]
) -> tuple[float, float] | None:
    """The median cosine of two sites, one in round `then` and one now, and how far a site itself stands out from it."""
    beside = [site for site in sites if then in rounds[site]]
    if len(beside) < FEWEST_BESIDE:
        return None
    before = np.array([_direction(sketches[site][rounds[site].index(then) - len(rounds[site])]) for site in beside])
    now = np.array([_direction(sketches[site][-1]) for site in beside])
    cosines = now @ before.T
    background = float(np.median(cosines[~np.eye(len(beside), dtype=bool)]))
    room = median(np.diag(cosines).tolist()) - background
    return (background, room) if room >= LEAST_ROOM * (1 - background) else None


def _direction(sketch: NDArray[np.float32]) -> NDArray[np.float64]:
    vector = sketch.astype(np.float64)
    length = float(np.linalg.norm(vector))
    return vector / length if length > 0 else vector
