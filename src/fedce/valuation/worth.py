"""What each site gives to the others, from the ballots of a run.

A ballot says what every scorer loses when the common model lacks a site, and how far the site's update carries the
model the way of the others' updates. A site's own scores never enter what it gives to the others, and fewer
than half of the others can't move it beyond the votes of the rest (docs/worth.md).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedce.core.ballot import REFERENCE, Ballot
from fedce.core.scoring import LEVEL

Floats = NDArray[np.float64]
By = Literal["all", "middle of others"]
"""Whose losses count: the mean of all scorers, or the median of the others' votes."""
RULE = 4
"""The number of the rule by which worth follows from ballots; a run is checked by its own rule alone."""
N_DRAWS = 2000
LEAST_SCORE = 0.01
"""A mean Dice below this counts as this much, because utilities are logarithms."""
FEWEST_VOTES = 3
"""Fewer votes about a site have no median that one of them could not move."""
LEAST_SIGNAL = 0.2
"""If less than this part of the differences between sites is signal, it can't be told who gives more."""
LEAST_KEPT = 0.1
"""Shares keep at least this part of their differences, so that their order is kept where nothing is sure."""
LEAST_WEIGHT = 0.02
"""A ballot counts at least this much, even if the model had nothing left to learn."""
STEEPNESS = 3.0
"""How much further apart shares lie than the measurements; chosen with `OTHER_RUNS`."""
OTHER_WAYS = 0.4
"""Standard deviation of what is carried in another training, in equal shares."""
OTHER_RUNS = 0.005
"""Standard deviation, in log U, of what another training would say. Ballots of one run can't show it; it was chosen on
the federations that may be looked at, so that intervals hold the truth there (docs/worth.md)."""

NO_BALLOT = "no ballot was held in a round in which it had a weight; continue the run with it for more rounds"
"""Why nothing is known of a site."""
MOST_NAMED = 5
"""Among thousands of sites a sentence names this many."""

NO_WORTH: Mapping[str, Any] = dict.fromkeys(
    ("share", "low", "high", "value", "carried", "all", "matrix", "signal", "ballots")
)
"""The entry of results.json if nothing was measured, without the reason."""


def is_told(worth: Mapping[str, Any] | None) -> bool:
    """Whether the sites differ by more than noise in what they give; `worth` is the entry of results.json."""
    return worth is not None and (worth["signal"] or 0.0) >= LEAST_SIGNAL


def some_of(sites: Sequence[str]) -> str:
    """The first of some sites' names, and how many more there are.

    >>> some_of(["north", "south"]), some_of([f"site{i}" for i in range(9)])
    ('north, south', 'site0, site1, site2, site3, site4 and 4 more')
    """
    more = len(sites) - MOST_NAMED
    return ", ".join(sites[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def measures_needs(algorithm: str) -> bool:
    """Whether an algorithm's contributions are FedCE's, which say what a site needs."""
    return algorithm.startswith("fedce")


@dataclass(frozen=True)
class Worth:
    """What each site gives, in shares that sum to 1 and in Dice."""

    share: Mapping[str, float]
    """What the others would lose without the site and how far it carries the model their way, as a share of all that is
    given; drawn towards equal shares as far as the differences between sites are noise."""
    low: Mapping[str, float]
    high: Mapping[str, float]
    value: Mapping[str, float]
    """What the others lose on average over the ballots, in Dice."""
    carried: Mapping[str, float]
    """The site's share in carrying the model the others' way."""
    whole: Mapping[str, float]
    """As `share`, but with what the site itself would lose."""
    matrix: Mapping[str, Mapping[str, float]]
    """Site to scorer to what the scorer loses without the site, in Dice: the mean over the ballots."""
    signal: float
    """From 0 (the sites differ by no more than noise) to 1 (noise is nothing beside their differences)."""
    n_ballots: int

    @property
    def recorded(self) -> dict[str, Any]:
        """The entry of results.json."""
        return {
            "share": dict(self.share),
            "low": dict(self.low),
            "high": dict(self.high),
            "value": dict(self.value),
            "carried": dict(self.carried),
            "all": dict(self.whole),
            "matrix": {site: dict(row) for site, row in self.matrix.items()},
            "signal": self.signal,
            "ballots": self.n_ballots,
            "reason": None,
        }


@dataclass(frozen=True, eq=False)
class Held:
    """All ballots of a run as arrays; NaN where a site was not left out, or a scorer gave no vote."""

    sites: tuple[str, ...]
    scorers: tuple[str, ...]
    base: Floats
    """(ballots, scorers): scores of the common model."""
    without: Floats
    """(ballots, sites, scorers): scores of the models without a site."""
    carried: Floats
    """(ballots, sites): how far a site's update carried the model the others' way; 0 if it had no part."""
    there: NDArray[np.bool_]
    """(ballots, sites): whether a site took part in the round; a site that did, and had no weight, gave nothing."""

    @classmethod
    def of(
        cls, ballots: Sequence[Ballot], sites: Sequence[str], present: Sequence[Collection[str]] | None = None
    ) -> "Held":
        """`present` are the sites that took part in each ballot's round; without it, all did."""
        scorers = sorted({scorer for ballot in ballots for scorer in ballot.scores})
        base = np.full((len(ballots), len(scorers)), np.nan)
        without = np.full((len(ballots), len(sites), len(scorers)), np.nan)
        carried = np.array([[ballot.carried.get(site, 0.0) for site in sites] for ballot in ballots])
        for b, ballot in enumerate(ballots):
            rows = [sites.index(site) for site in ballot.without]
            for scorer, scores in ballot.scores.items():
                base[b, scorers.index(scorer)] = scores[0]
                without[b, rows, scorers.index(scorer)] = scores[1:]
        there = np.array([[present is None or site in present[b] for site in sites] for b in range(len(ballots))])
        return cls(tuple(sites), tuple(scorers), base, without, carried, there)

    @property
    def lost(self) -> Floats:
        found: Floats = self.base[:, None, :] - self.without
        return found

    @property
    def to_others(self) -> Floats:
        """What the others lose: `lost`, without what a site says of its own absence."""
        return np.where(self.is_own, np.nan, self.lost)

    @property
    def is_own(self) -> NDArray[np.bool_]:
        """(sites, scorers): whether the scorer is the site itself."""
        return np.array([[site == scorer for scorer in self.scorers] for site in self.sites])


def has_votes(ballot: Ballot) -> bool:
    """Whether each model without a site was scored by enough others; a reference set needs no votes.

    Where votes about some sites alone are missing, these sites could not be compared with the rest.
    """
    voters = ballot.scores.keys()
    return REFERENCE in voters or all(len(voters - {site}) >= FEWEST_VOTES for site in ballot.without)


def middle_of(votes: Floats) -> Floats:
    """The median of the votes in each row: fewer than half of the voters can't move it beyond the others' votes.

    NaN votes count for nothing, and fewer than three votes are none.

    >>> middle_of(np.array([[0.1, 0.2, 0.9], [0.1, np.nan, 0.9]])).tolist()
    [0.2, nan]
    """
    n = np.sum(~np.isnan(votes), axis=-1)
    order = np.sort(votes, axis=-1)  # NaN comes last.
    at = np.stack([np.maximum(n - 1, 0) // 2, np.maximum(n // 2, 0)], axis=-1)
    both = np.take_along_axis(order, np.minimum(at, votes.shape[-1] - 1), axis=-1)
    found: Floats = np.where(n >= FEWEST_VOTES, both.mean(axis=-1), np.nan)
    return found


def gives(held: Held, by: By) -> Floats:
    """(ballots, sites): log U(w) - log U(w without the site), U the mean score; 0 where nobody was asked about a site.

    A reference set belongs to nobody and is believed.
    """
    is_vote = by == "middle of others" and held.scorers != (REFERENCE,)
    votes = held.to_others if is_vote else held.lost
    lost = middle_of(votes) if is_vote else _mean_known(votes, axis=2)
    whole = _mean_known(np.where(np.isnan(votes), np.nan, held.base[:, None, :]), axis=2)
    found: Floats = np.log(np.maximum(whole, LEAST_SCORE)) - np.log(np.maximum(whole - lost, LEAST_SCORE))
    return np.where(np.isnan(found), 0.0, found)


def _mean_known(values: Floats, axis: int) -> Floats:
    """The mean of what is known; NaN where nothing is."""
    known = ~np.isnan(values)
    n = known.sum(axis=axis)
    found: Floats = np.where(n > 0, np.where(known, values, 0.0).sum(axis=axis) / np.maximum(n, 1), np.nan)
    return found


def shares_of(values: Floats) -> Floats:
    """Positive parts over their sum; equal shares if no value is positive. Works on the last axis."""
    positive = np.maximum(values, 0.0)
    total = positive.sum(axis=-1, keepdims=True)
    n = values.shape[-1]
    found: Floats = np.where(total > 0, positive / np.where(total > 0, total, 1.0), 1 / n)
    return found


@dataclass(frozen=True, eq=False)
class Votes:
    """What scorers lose by each site: the mean over its ballots of log U(w) - log U(w without it), with its noise."""

    value: Floats
    noise: Floats
    """Variance: how far the ballots contradict each other, and what training again would change (`OTHER_RUNS`)."""

    @classmethod
    def of(cls, by_ballot: Floats, weights: Floats, there: NDArray[np.bool_]) -> "Votes":
        parts = weights[:, None] * there
        parts = parts / np.maximum(parts.sum(axis=0), np.finfo(float).tiny)
        value, n = (parts * by_ballot).sum(axis=0), there.sum(axis=0)
        between = (parts**2 * (by_ballot - value) ** 2).sum(axis=0) * np.where(n > 1, n / np.maximum(n - 1, 1), 1.0)
        return cls(value, between + OTHER_RUNS**2)

    @property
    def signal(self) -> float:
        """The part of the spread between sites that is not noise: 1 - noise / spread, at least 0."""
        spread = float(self.value.var(ddof=1))
        return max(0.0, 1 - float(self.noise.mean()) / spread) if spread > 0 else 0.0

    def drawn(self, rng: np.random.Generator) -> Floats:
        """The values as they might be measured again, (draws, sites)."""
        found: Floats = self.value + rng.standard_normal((N_DRAWS, len(self.value))) * np.sqrt(self.noise)
        return found


@dataclass(frozen=True, eq=False)
class Carried:
    """Each site's share in carrying the model the others' way: the mean over its ballots, with its noise."""

    share: Floats
    noise: Floats

    @classmethod
    def of(cls, by_ballot: Floats, there: NDArray[np.bool_]) -> "Carried":
        shares, n = shares_of(by_ballot), np.maximum(there.sum(axis=0), 1)
        mean = np.where(there, shares, 0.0).sum(axis=0) / n
        apart = np.where(there, (shares - mean) ** 2, 0.0).sum(axis=0)
        between = np.where(n > 1, apart / np.maximum(n - 1, 1) / n, 0.0)
        # Shares of rounds in which sites were away add up to more than 1.
        return cls(mean / mean.sum(), between + (OTHER_WAYS / len(mean)) ** 2)

    def drawn(self, rng: np.random.Generator) -> Floats:
        found: Floats = self.share + rng.standard_normal((N_DRAWS, len(self.share))) * np.sqrt(self.noise)
        return np.maximum(found, 0.0)


def combined(carried: Floats, votes: Floats, signal: float, equal: Floats) -> Floats:
    """Shares from both measurements, (..., sites); votes are put on the scale of what is carried, by their signal.

    `equal` are the shares of sites that give as much as each other.

    >>> combined(np.array([0.4, 0.3, 0.3]), np.array([1.0, 1.0, 1.0]), 1.0, np.full(3, 1 / 3)).round(3).tolist()
    [0.533, 0.233, 0.233]
    """
    spread = carried.std(axis=-1, keepdims=True)
    return shares_of(equal + STEEPNESS * ((carried - equal) + signal * spread * _standard(votes)))


def with_own_losses(share: Floats, held: Held, signal: float) -> Floats:
    """Shares of what is given to all sites: `share`, and what each site itself loses without its part in the model.

    Both count as they do in Dice: own losses by their part in all losses, as far as the votes are signal.
    """
    lost = _mean_known(held.lost, axis=0)
    own = np.maximum(np.nan_to_num(np.where(held.is_own, lost, 0.0)).sum(axis=1), 0.0)
    of_others = np.maximum(np.nan_to_num(np.where(held.is_own, 0.0, lost)).sum(axis=1), 0.0).sum()
    part = own.sum() / (own.sum() + of_others) if own.sum() > 0 else 0.0
    found: Floats = (1 - signal * part) * share + signal * part * shares_of(own)
    return found


def _standard(values: Floats) -> Floats:
    deviation = values.std(axis=-1, keepdims=True)
    found: Floats = (values - values.mean(axis=-1, keepdims=True)) / np.where(deviation > 0, deviation, 1.0)
    return found


def left_to_learn(held: Held, reached: float) -> Floats:
    """The weight of each ballot: how far the model still was from the best score that the run reached.

    Leaving a site out of one round shows how much the model leans on the site at that moment. While there is much to
    learn, this is what the site teaches; at the end the others would make up for it if they trained on.
    """
    found: Floats = np.maximum(reached - _mean_known(held.base, axis=1), 0.0) / max(reached, LEAST_SCORE)
    return found + LEAST_WEIGHT


@dataclass(frozen=True)
class Attendance:
    """Who took part when, and which names count as a whole site."""

    present: Sequence[Collection[str]]
    """The sites that took part in the round of each ballot."""
    presence: Mapping[str, float]
    """The part of all rounds in which a site took part; it multiplies what the site gives (core/presence.py)."""
    counts: Mapping[str, float]
    """1 for a site; a half each for two names whose updates are those of one site."""


def worth_of(
    ballots: Sequence[Ballot], sites: Sequence[str], reached: float, seed: int, attended: Attendance | None = None
) -> Worth:
    """What each site gives by these ballots, at least one. `reached`: the best smoothed mean score of the run.

    A site is judged by the ballots of the rounds in which it took part, and paid for the rounds in which it did.
    """
    attended = attended or Attendance([sites] * len(ballots), {}, {})
    held, rng = Held.of(ballots, sites, attended.present), np.random.default_rng(seed)
    equal = shares_of(np.array([attended.counts.get(site, 1.0) for site in sites]))
    weights = left_to_learn(held, reached)
    carried = Carried.of(held.carried, held.there)
    to_others = Votes.of(gives(held, "middle of others"), weights, held.there)
    raw = combined(carried.share, to_others.value, to_others.signal, equal)
    again = combined(carried.drawn(rng), to_others.drawn(rng), to_others.signal, equal)
    spread = float(raw.var(ddof=1))
    signal = max(0.0, 1 - float(again.var(axis=0, ddof=1).mean()) / spread) if spread > 0 else 0.0
    kept = max(signal, LEAST_KEPT)
    share = kept * raw + (1 - kept) * equal
    low, high = np.quantile(again, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    low, high = np.minimum(low, share), np.maximum(high, share)
    whole = with_own_losses(share, held, Votes.of(gives(held, "all"), weights, held.there).signal)
    lost = _mean_known(held.lost, axis=0)
    there = np.array([attended.presence.get(site, 1.0) for site in sites])
    if np.any(there < 1) and float(share @ there) > 0:
        paid = there / float(share @ there)
        share, low, high, whole = share * paid, low * paid, np.minimum(high * paid, 1.0), shares_of(whole * there)

    def by_site(values: Floats) -> dict[str, float]:
        return dict(zip(sites, values.tolist(), strict=True))

    return Worth(
        share=by_site(share),
        low=by_site(low),
        high=by_site(high),
        value=by_site(np.nan_to_num(_mean_known(_mean_known(held.to_others, axis=0), axis=1))),
        carried=by_site(carried.share),
        whole=by_site(whole),
        matrix={
            site: {scorer: float(x) for scorer, x in zip(held.scorers, row, strict=True) if not np.isnan(x)}
            for site, row in zip(sites, lost, strict=True)
        },
        signal=signal,
        n_ballots=len(ballots),
    )
