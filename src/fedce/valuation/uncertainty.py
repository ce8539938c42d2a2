"""Intervals for the contributions of a run, from its ledger."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedce.core.algorithm import Algorithm
from fedce.core.credit import Account, Credit
from fedce.core.presence import paid
from fedce.core.recorded import Facts, Rounds
from fedce.core.scoring import MIN_CASES, too_few
from fedce.core.weights import normalise
from fedce.valuation.intervals import Intervals, Replay, intervals, sentences

MIN_ROUNDS = 10
"""With fewer rounds there is nothing to draw from."""
MOST_POINTS = 12
"""Intervals are worked out after this many rounds, evenly spread; a band through as many points looks smooth."""


@dataclass(frozen=True)
class Uncertainty:
    """How certain a run's shares are."""

    intervals: Intervals | None
    """The intervals of the sites that have one; None if no site has one."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why a site has no interval, if other sites have one."""
    none_because: str | None = None
    """Why no site has an interval."""

    def recorded(self, shares: Mapping[str, float]) -> dict[str, Any]:
        """The entry of results.json."""
        found = self.intervals
        if found is None:
            return {"intervals": None, "no_intervals": self.none_because}
        sites = sorted([*found.sites, *self.reasons])
        said = {
            "level": found.level,
            "low": {site: found.low.get(site) for site in sites},
            "high": {site: found.high.get(site) for site in sites},
            "indistinguishable": [list(pair) for pair in found.indistinguishable],
            "sentences": sentences(found, shares, list(self.reasons)),
            "reasons": dict(self.reasons),
        }
        return {"intervals": said, "no_intervals": None}


def contribution_intervals(
    algorithm: Algorithm,
    rounds: Rounds,
    shares: Mapping[str, float],
    seed: int,
    n_cases: Mapping[str, int],
    presence: Mapping[str, float] | None = None,
) -> Uncertainty:
    """95 % intervals of the shares, or why there are none. `n_cases`: validation cases by site, if they are known.

    Reputations (CFFL, CGSV, AFL) can't be worked out from rounds drawn at random: a replay of all rounds does not give
    the shares again, and no interval is better than a wrong one.
    """
    if not algorithm.traits.exchanges:
        return Uncertainty(None, none_because="every site trained alone, so there are no shares to be sure of")
    if len(rounds) < MIN_ROUNDS:
        return Uncertainty(None, none_because=_too_few_rounds(len(rounds)))
    sites = sorted({site for done in rounds for site in done.sites})
    reasons: dict[str, str] = {}
    n_replicates = 0
    if algorithm.traits.accumulates and (measured := _measured(algorithm, rounds)) is not None:
        rounds = measured
        if len(rounds) < MIN_ROUNDS:
            return Uncertainty(None, none_because=_too_few_rounds(len(rounds)))
        if algorithm.uses_errors:
            reasons = {site: reason for site in sites if (reason := _reason(site, rounds, n_cases.get(site, 0)))}
            n_replicates = _fewest_replicates(rounds, reasons)
        if sites and len(reasons) == len(sites):
            # Without names: a member's own page shows this too.
            return Uncertainty(
                None, none_because=f"no site has errors resampled from at least {MIN_CASES} validation cases"
            )
        replay = _replay_credit(algorithm, rounds, sites, n_replicates, frozenset(reasons))
    else:
        replay = _replay_weights(rounds, sites)
    replay = _paid(replay, presence or {})
    again = replay(range(len(rounds)), None)
    if any(abs(again[site] - shares.get(site, 0.0)) > 1e-6 for site in sites):
        return Uncertainty(
            None, none_because="the shares of this method are no mean over rounds that can be drawn anew"
        )
    found = intervals(len(rounds), n_replicates, replay, np.random.default_rng(seed))
    return Uncertainty(found.of(set(sites) - reasons.keys()), reasons)


def _paid(replay: Replay, presence: Mapping[str, float]) -> Replay:
    return lambda chosen, replicate: paid(replay(chosen, replicate), presence)


def _too_few_rounds(n_rounds: int) -> str:
    rounds = "1 round was" if n_rounds == 1 else f"{n_rounds} rounds were"
    return f"{rounds} measured; intervals need at least {MIN_ROUNDS}"


def _reason(site: str, rounds: Rounds, n_cases: int) -> str | None:
    """Why a site has no interval: its error can't be measured again on other cases."""
    if 0 < n_cases < MIN_CASES:
        return too_few(site, n_cases, "validation")
    said = [done.sites[site] for done in rounds if site in done.sites]
    if any(facts.err is not None and not facts.err_replicates for facts in said):
        return f"{site} sent no errors on resampled validation cases"
    return None


def intervals_over_rounds(
    algorithm: Algorithm, rounds: Rounds, seed: int, n_cases: Mapping[str, int]
) -> dict[int, Intervals]:
    """For some rounds, evenly spread: round number to the intervals from all rounds up to this one."""
    ends, seen = [], set[str]()
    for n, done in enumerate(rounds, 1):
        seen |= done.sites.keys()
        # The ledger holds only the shares of sites that replied: after such a round other shares are not known.
        if n >= MIN_ROUNDS and seen == done.sites.keys():
            ends.append(n)
    chosen = np.unique(np.linspace(0, len(ends) - 1, min(MOST_POINTS, len(ends))).round().astype(int)).tolist()
    found = {}
    for n in (ends[i] for i in chosen):
        last = rounds[n - 1]
        shares = {site: facts.share for site, facts in last.sites.items()}
        if (at := contribution_intervals(algorithm, rounds[:n], shares, seed, n_cases).intervals) is not None:
            found[last.round_no] = at
    return found


def _measured(algorithm: Algorithm, rounds: Rounds) -> Rounds | None:
    """The rounds in which any site earned something; None if the ledger does not hold what credit follows from."""
    try:
        return [done for done in rounds if algorithm.gains(Credit(), algorithm.read(done.facts))]
    except LookupError:
        return None


def _fewest_replicates(rounds: Rounds, without: Collection[str]) -> int:
    return min(
        (
            len(facts.err_replicates)
            for done in rounds
            for site, facts in done.sites.items()
            if facts.err is not None and site not in without
        ),
        default=0,
    )


def _replay_credit(
    algorithm: Algorithm,
    rounds: Rounds,
    sites: Sequence[str],
    n_replicates: int,
    as_measured: frozenset[str] = frozenset(),
) -> Replay:
    """The method's own rule, over any rounds, with the errors as measured or on resampled validation cases.

    The errors of sites in `as_measured` are never resampled.
    """
    # What one round earns does not depend on the others, so it is worked out once for each replicate.
    earned = [
        [_rows(algorithm, _resampled(done.facts, replicate, as_measured), sites) for done in rounds]
        for replicate in (*range(n_replicates), None)
    ]
    sums = np.array(earned)
    terms = [algorithm.read(done.facts) for done in rounds]
    for i, site in enumerate(sites):
        sums[:, :, i, 1:] *= np.array(algorithm.lasting(terms, site))[:, None]
    # The guard knows sites by the whole run, however few of a site's rounds are drawn.
    n_rounds = dict(zip(sites, sums[-1, :, :, 0].sum(axis=0).astype(int).tolist(), strict=True))

    def replay(chosen: Sequence[int], replicate: int | None) -> dict[str, float]:
        total = sums[-1 if replicate is None else replicate][list(chosen)].sum(axis=0)
        # A site that is in none of the drawn rounds earns as in the whole run.
        total = np.where(total[:, :1] > 0, total, sums[-1].sum(axis=0))
        accounts = {site: Account(int(row[0]), tuple(row[1:].tolist())) for site, row in zip(sites, total, strict=True)}
        return algorithm.shares(Credit(accounts), n_rounds)

    return replay


def _resampled(recorded: Mapping[str, Facts], replicate: int | None, as_measured: frozenset[str]) -> dict[str, Facts]:
    """What the ledger holds of a round, with errors on resampled validation cases."""

    def facts_of(site: str, facts: Facts) -> Facts:
        if facts["err"] is None or replicate is None or site in as_measured:
            return facts
        return {**facts, "err": facts["err_replicates"][replicate]}

    return {site: facts_of(site, facts) for site, facts in recorded.items()}


def _rows(algorithm: Algorithm, facts: Mapping[str, Facts], sites: Sequence[str]) -> list[tuple[float, ...]]:
    """For each site, whether it was measured, followed by what it earned."""
    gains = algorithm.gains(Credit(), algorithm.read(facts))
    nothing = (0.0,) * (1 + len(next(iter(gains.values()))))
    return [(1.0, *gains[site]) if site in gains else nothing for site in sites]


def _replay_weights(rounds: Rounds, sites: Sequence[str]) -> Replay:
    """For other methods: the mean weight over any rounds, relative to an equal share."""
    weights = np.array(
        [
            [len(done.sites) * (done.sites[site].weight if site in done.sites else np.nan) for site in sites]
            for done in rounds
        ]
    )

    def replay(chosen: Sequence[int], replicate: int | None) -> dict[str, float]:
        drawn = weights[list(chosen)]
        there = ~np.isnan(drawn)
        mean = np.where(there, drawn, 0.0).sum(axis=0) / np.maximum(there.sum(axis=0), 1)
        mean = np.where(there.any(axis=0), mean, np.nanmean(weights, axis=0))
        return normalise(dict(zip(sites, mean.tolist(), strict=True)))

    return replay
