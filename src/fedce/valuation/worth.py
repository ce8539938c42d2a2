"""What each site gives to the others, from the ballots of a run.

A ballot says what every scorer loses when the common model lacks a site. What a site gives is what the *other* sites
lose by its absence; its own scores never enter, and a vote counts only as far as other votes go (docs/worth.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedce.core.ballot import Ballot
from fedce.core.scoring import LEVEL

Floats = NDArray[np.float64]
N_DRAWS = 2000
LEAST_SCORE = 0.01
"""A mean Dice below this counts as this much, because utilities are logarithms."""

NO_WORTH: Mapping[str, Any] = dict.fromkeys(("share", "low", "high", "value", "all", "matrix", "signal", "ballots"))
"""The entry of results.json if nothing was measured, without the reason."""


@dataclass(frozen=True)
class Worth:
    """What each site gives, in shares that sum to 1 and in Dice."""

    share: Mapping[str, float]
    """What the others would lose without the site, as a share of all that is given; drawn towards equal shares as far
    as the ballots contradict each other."""
    low: Mapping[str, float]
    high: Mapping[str, float]
    value: Mapping[str, float]
    """What the others lose on average over the ballots, in Dice."""
    whole: Mapping[str, float]
    """As `share`, but with what the site itself would lose."""
    matrix: Mapping[str, Mapping[str, float]]
    """Site to scorer to what the scorer loses without the site, in Dice: the mean over the ballots."""
    signal: float
    """From 0 (the ballots say nothing about who gives more) to 1 (they all say the same)."""
    n_ballots: int

    @property
    def recorded(self) -> dict[str, Any]:
        """The entry of results.json."""
        return {
            "share": dict(self.share),
            "low": dict(self.low),
            "high": dict(self.high),
            "value": dict(self.value),
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

    @classmethod
    def of(cls, ballots: Sequence[Ballot], sites: Sequence[str]) -> "Held":
        scorers = sorted({scorer for ballot in ballots for scorer in ballot.scores})
        base = np.full((len(ballots), len(scorers)), np.nan)
        without = np.full((len(ballots), len(sites), len(scorers)), np.nan)
        for b, ballot in enumerate(ballots):
            rows = [sites.index(site) for site in ballot.without]
            for scorer, scores in ballot.scores.items():
                base[b, scorers.index(scorer)] = scores[0]
                without[b, rows, scorers.index(scorer)] = scores[1:]
        return cls(tuple(sites), tuple(scorers), base, without)

    @property
    def lost(self) -> Floats:
        found: Floats = self.base[:, None, :] - self.without
        return found

    @property
    def is_own(self) -> NDArray[np.bool_]:
        """(sites, scorers): whether the scorer is the site itself."""
        return np.array([[site == scorer for scorer in self.scorers] for site in self.sites])


def within_the_others(votes: Floats) -> Floats:
    """Each vote, moved into the range of the other votes in its row; NaN votes stay NaN and count for nothing.

    >>> within_the_others(np.array([[0.1, 0.2, 0.9]])).round(3).tolist()
    [[0.2, 0.2, 0.2]]
    """
    order = np.sort(votes, axis=-1)  # NaN comes last.
    n = np.sum(~np.isnan(votes), axis=-1, keepdims=True)
    lowest, second = order[..., :1], order[..., 1:2]
    highest = np.take_along_axis(order, np.maximum(n - 1, 0), axis=-1)
    below = np.take_along_axis(order, np.maximum(n - 2, 0), axis=-1)
    found: Floats = np.clip(
        votes, np.where(votes <= lowest, second, lowest), np.where(votes >= highest, below, highest)
    )
    return found


def gives(held: Held, *, own: bool) -> Floats:
    """(ballots, sites): log U(w) - log U(w without the site), U the mean score; 0 where a site was not left out.

    With `own`, the site's own score counts among the others; without it, votes are bounded by the other votes.
    """
    lost = held.lost
    if not own:
        lost = within_the_others(np.where(held.is_own, np.nan, lost))
    there = ~np.isnan(lost)
    n = np.maximum(there.sum(axis=2), 1)
    whole = np.where(there, held.base[:, None, :], 0.0).sum(axis=2) / n
    mean_lost = np.where(there, lost, 0.0).sum(axis=2) / n
    found: Floats = np.log(np.maximum(whole, LEAST_SCORE)) - np.log(np.maximum(whole - mean_lost, LEAST_SCORE))
    return found


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


def signal_of(by_ballot: Floats) -> Floats:
    """The part of the spread between sites that is not the ballots' noise: 1 - noise / spread, at least 0.

    `by_ballot`: (..., ballots, sites).
    """
    n = by_ballot.shape[-2]
    if n < 2:
        return np.zeros(by_ballot.shape[:-2])
    noise = by_ballot.var(axis=-2, ddof=1).mean(axis=-1) / n
    spread = by_ballot.mean(axis=-2).var(axis=-1, ddof=1)
    found: Floats = np.where(spread > 0, np.maximum(0.0, 1 - noise / np.where(spread > 0, spread, 1.0)), 0.0)
    return found


def worth_of(ballots: Sequence[Ballot], sites: Sequence[str], seed: int) -> Worth:
    """What each site gives by these ballots, at least one."""
    held = Held.of(ballots, sites)
    to_others, to_all = gives(held, own=False), gives(held, own=True)
    share, low, high = _with_interval(to_others, np.random.default_rng(seed))
    lost = _mean_known(held.lost, axis=0)

    def by_site(values: Floats) -> dict[str, float]:
        return dict(zip(sites, values.tolist(), strict=True))

    return Worth(
        share=by_site(share),
        low=by_site(low),
        high=by_site(high),
        value=by_site(np.nan_to_num(_mean_known(np.where(held.is_own, np.nan, lost), axis=1))),
        whole=by_site(_shrunk(to_all)),
        matrix={
            site: {scorer: float(x) for scorer, x in zip(held.scorers, row, strict=True) if not np.isnan(x)}
            for site, row in zip(sites, lost, strict=True)
        },
        signal=float(signal_of(to_others)),
        n_ballots=len(ballots),
    )


def _shrunk(by_ballot: Floats) -> Floats:
    """Shares that are drawn towards equal ones as far as the ballots contradict each other."""
    signal, n = signal_of(by_ballot)[..., None], by_ballot.shape[-1]
    found: Floats = signal * shares_of(by_ballot.mean(axis=-2)) + (1 - signal) / n
    return found


def _with_interval(by_ballot: Floats, rng: np.random.Generator) -> tuple[Floats, Floats, Floats]:
    """Shares, and the ends of their intervals: ballots are drawn with repeats."""
    share, n = _shrunk(by_ballot), len(by_ballot)
    again = _shrunk(by_ballot[rng.integers(n, size=(N_DRAWS, n))])
    low, high = np.quantile(again, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return share, np.minimum(low, share), np.maximum(high, share)
