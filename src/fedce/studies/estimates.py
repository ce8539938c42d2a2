"""Estimates of what each site contributes, all from the record of one run."""

from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from fedce import algorithms
from fedce.core.best import smoothed
from fedce.federation.session import Result
from fedce.record.entries import Round
from fedce.valuation.worth import Carried, Held, Votes, gives, left_to_learn, shares_of

Floats = NDArray[np.float64]
FEDCE = ("fedce", "fedce-sum", "fedce-cos", "fedce-err")
OURS = "worth.all"
OURS_TO_OTHERS = "worth.share"


def estimates_of(result: Result, rounds: Sequence[Round]) -> dict[str, Floats]:
    """Every estimate that follows from one run's record, as shares in the order of the sites."""
    sites = list(result.contributions)
    found = {name: _replayed(name, rounds, sites) for name in FEDCE}
    images = np.array([float(result.values["train_images"][site]) for site in sites])
    found["images"] = images / images.sum()
    worth = result.values.get("worth") or {}
    if worth.get("share") is not None:
        found |= _by_ballots(rounds, sites)
        found[OURS], found[OURS_TO_OTHERS] = (array_of(worth[what], sites) for what in ("all", "share"))
    found["influence"] = shares_of(np.array([_mean_similarity(rounds, site) for site in sites]))
    found["residual volume"] = _residual_volume(rounds, sites)
    return found


def array_of(by_site: Mapping[str, float], sites: Sequence[str]) -> Floats:
    return np.array([by_site.get(site, 0.0) for site in sites])


def _replayed(name: str, rounds: Sequence[Round], sites: Sequence[str]) -> Floats:
    """FedCE's shares by one of its four rules, from the terms that were recorded."""
    replayer = algorithms.make(name, {}).replay()
    shares: Mapping[str, float] = {}
    for done in rounds:
        _, shares, _ = replayer.round(done.facts)
    return array_of(shares, sites)


def _by_ballots(rounds: Sequence[Round], sites: Sequence[str]) -> dict[str, Floats]:
    """Simpler forms of worth, to see what each part of it does."""
    held = Held.of([done.ballot.ballot for done in rounds if done.ballot is not None], sites)
    reached = max(smoothed([done.mean_score for done in rounds]))
    alike, weights = np.ones(len(held.base)), left_to_learn(held, reached)
    return {
        "votes, ballots alike": shares_of(Votes.of(gives(held, "all"), alike, held.there).value),
        "votes": shares_of(Votes.of(gives(held, "all"), weights, held.there).value),
        "votes in Dice": shares_of(np.nan_to_num(held.lost).mean(axis=2).mean(axis=0)),
        "carried": Carried.of(held.carried, held.there).share,
    }


def _mean_similarity(rounds: Sequence[Round], site: str) -> float:
    """First-order influence: how far a site's update goes the common way."""
    known = [done.sites[site].similarity_to_all for done in rounds if site in done.sites]
    return fmean([value for value in known if value is not None] or [0.0])


def _residual_volume(rounds: Sequence[Round], sites: Sequence[str]) -> Floats:
    """The part of each update that the other updates do not span, from the sketches."""
    total = np.zeros(len(sites))
    for done in rounds:
        sketches = {site: facts.sketch for site, facts in done.sites.items() if facts.sketch is not None}
        for i, site in enumerate(sites):
            if site not in sketches:
                continue
            others = np.array([sketch for other, sketch in sketches.items() if other != site]).T
            own = np.array(sketches[site])
            rest = own - others @ np.linalg.lstsq(others, own, rcond=None)[0]
            total[i] += float(rest @ rest)
    return shares_of(total)
