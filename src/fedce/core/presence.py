"""Presence: in how much of a run a site took part. It multiplies what is shown and paid, never the weights (D19)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from fedce.core.weights import normalise


class Attended(Protocol):
    """A recorded round: who was asked, and whose reply was used."""

    @property
    def asked(self) -> Sequence[str]: ...

    @property
    def sites(self) -> Mapping[str, object]: ...


def presence_of(rounds: Sequence[Attended], sites: Iterable[str], *, drawn: bool) -> dict[str, float]:
    """Rounds that a site answered, divided by the rounds that it was asked for.

    A site is asked for every round of the run, also before it joined and after it left: who trained in half of the
    rounds did half of the work. If rounds draw their sites, a site is asked for those in which it was drawn.
    """
    found = {}
    for site in sites:
        answered = sum(site in done.sites for done in rounds)
        asked = sum(site in done.asked for done in rounds) if drawn else len(rounds)
        found[site] = answered / asked if asked else 0.0
    return found


def paid(shares: Mapping[str, float], presence: Mapping[str, float]) -> dict[str, float]:
    """Shares times presence, scaled to a sum of 1; the same numbers if every site was always there.

    >>> paid({"north": 0.5, "south": 0.5}, {"north": 1.0, "south": 0.25})
    {'north': 0.8, 'south': 0.2}
    """
    if all(presence.get(site, 1.0) == 1.0 for site in shares):
        return dict(shares)
    times = {site: share * presence.get(site, 1.0) for site, share in shares.items()}
    return normalise(times) if sum(times.values()) > 0 else dict(shares)
