"""What a consortium may publish: one member's own view, or the shares of all sites with differential privacy."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import SystemRandom
from time import time
from typing import Any

from fedce import algorithms
from fedce.base.errors import ConfigError, RunError, nearest
from fedce.base.identity import coordinator
from fedce.core.credit import Credit
from fedce.core.presence import paid
from fedce.core.recorded import Facts
from fedce.guard.alarms import alarm_text
from fedce.record.entries import DataFacts, Publish
from fedce.record.folder import RunFolder
from fedce.record.ledger import sightings
from fedce.record.standing import change_sentences
from fedce.record.verify import checked
from fedce.valuation.worth import NO_BALLOT, is_told

FLOOR = 0.05
"""Errors count as at least this much if shares are published with noise: the smaller an error, the more one of its
cases moves the shares."""


BESIDE = ("alone", "gain", "gain_interval", "dice_common", "dice_personal", "keeps")
"""Results about further models of a site, if it also trained alone, or personalised."""


def member_view(run: RunFolder, site: str) -> dict[str, Any]:
    """What concerns one site: its share, its interval, its Dice, what was seen of it; nothing about any other site."""
    return view_of(run, checked(run).results, site)


def view_of(run: RunFolder, results: Mapping[str, Any], site: str) -> dict[str, Any]:
    """The same from results that were checked before."""
    if site not in (shares := results["contributions"]):
        raise ConfigError(f"no site is called {site!r}{nearest(site, shares)}; there are: {', '.join(shares)}")
    mine = [(done.round_no + 1, done.sites[site]) for done in run.rounds() if site in done.sites]
    intervals, watched = results["intervals"], results["freerider"].get(site, {})
    ends = [None if intervals is None else intervals[side].get(site) for side in ("low", "high")]
    return {
        "site": site,
        "n_sites": len(shares),
        "rounds": results["rounds"],
        "rounds_taken_part": len(mine),
        "share": shares[site],
        "interval": ends if None not in ends else None,
        "no_interval": results.get("no_intervals") if intervals is None else intervals.get("reasons", {}).get(site),
        "algorithm": results["algorithm"],
        **_gives(results, site),
        "dice": results["dice"].get(site),
        "dice_interval": results.get("dice_interval", {}).get(site),
        "test_cases": results.get("test_cases", {}).get(site),
        "dice_without": results["dice_without"].get(site),
        **{key: {site: results[key][site]} for key in BESIDE if site in results.get(key, {})},
        **_own_metrics(results, site),
        "train_images": results["train_images"].get(site),
        "flags": [
            *(seen.text_without_name for seen in sightings(run.rounds()).get(site, [])),
            *(alarm_text(alarm["what"], alarm["round_no"]) for alarm in watched.get("alarms", [])),
        ],
        "changes": [sentence for changed, sentence in change_sentences(run.ledger()) if changed == site],
        "by_round": [{"round": n, "share": facts.share, "score": facts.score} for n, facts in mine],
    }


def _gives(results: Mapping[str, Any], site: str) -> dict[str, Any]:
    """What the site gives to the others, or why it is not known; empty for runs of an earlier version."""
    if (worth := results.get("worth")) is None:
        return {}
    if worth["share"] is None:
        return {"gives": None, "no_gives": worth["reason"]}
    if site in worth.get("unmeasured", []):
        return {"gives": None, "no_gives": NO_BALLOT}
    found = {
        "gives": worth["share"].get(site, 0.0),
        "gives_interval": [worth[end].get(site) for end in ("low", "high")],
    }
    is_believed = site not in worth.get("not_believed", [])
    return {**found, "gives_is_told": is_told(worth), "votes_counted": is_believed}


def _own_metrics(results: Mapping[str, Any], site: str) -> dict[str, Any]:
    """The metrics of one site as the results have them; empty if only Dice was measured."""
    if "metrics" not in results:
        return {}
    kinds = ("metrics", "metrics_by_class", "metrics_undefined", "metrics_unit")
    own = {
        kind: {name: {site: by_site[site]} for name, by_site in results[kind].items() if site in by_site}
        for kind in kinds
    }
    return {**own, "metrics_shown": results.get("metrics_shown", {})}


@dataclass(frozen=True)
class Noisy:
    """Shares that may be published, and the privacy that they cost."""

    shares: Mapping[str, float]
    epsilon: float
    sensitivity: float
    """How far one validation case can move the shares, summed over the sites."""

    @property
    def scale(self) -> float:
        """Mean size of the Laplace noise on each share."""
        return self.sensitivity / self.epsilon


def noisy_shares(run: RunFolder, epsilon: float, random: Any = None) -> Noisy:
    """Shares with Laplace noise: epsilon-differentially private for any one validation case of any one site.

    Exchanging one of n cases, with all its images, moves an error by at most 1/n, hence by a factor of at most 1 + r,
    r = 1 / (n * FLOOR). Every credit of Eqs. 4 and 5 then moves by at most this factor, up or down, and shares whose
    odds move by (1 + r)^2 differ by at most 2r / (2 + r) in sum. This holds for given models and given accepted
    replies: neither is hidden.
    """
    if not 1e-6 <= epsilon <= 1e6:
        raise ConfigError(f"--epsilon: expected a number from 0.000001 to 1000000, got {epsilon:g}")
    shares = _floored_shares(run)
    n = min(_n_cases(run, site, facts) for site, facts in run.ledger().sites.items() if site in shares)
    r = 1 / (n * FLOOR)
    found = Noisy({}, epsilon, 2 * r / (2 + r))
    draw = random or SystemRandom()  # With a known seed, the noise could be removed again.
    noise = {site: (draw.expovariate(1) - draw.expovariate(1)) * found.scale for site in shares}
    positive = {site: max(share + noise[site], 0.0) for site, share in shares.items()}
    total = sum(positive.values())
    # Clipping, scaling to a sum of 1 and presence, which everybody may know, use only the noisy shares, so they cost no
    # privacy.
    scaled = {site: value / total if total else 1 / len(shares) for site, value in positive.items()}
    return replace(found, shares=paid(scaled, run.results.get("presence", {})))


def _n_cases(run: RunFolder, site: str, facts: DataFacts) -> int:
    if not facts.n_validation_cases:
        raise RunError(
            f"{run.ledger_file} names no validation cases of {site} (it validates on its training cases, or the run is "
            "of an earlier version); their number decides the noise, so run the experiment again with such cases"
        )
    return facts.n_validation_cases


def _floored_shares(run: RunFolder) -> dict[str, float]:
    """The shares worked out again from the ledger, with errors that are floored."""
    algorithm = algorithms.built_in(run.config, run.ledger().format)
    if algorithm is None or not algorithm.uses_errors:
        raise RunError(f"{run.path} was not run with FedCE; only its shares can be published with noise")
    credit = Credit()
    for done in run.rounds():
        sites = {site: _floored(algorithm.smoothed(facts)) for site, facts in done.facts.items()}
        credit = algorithm.earn(credit, algorithm.read(sites))
    return algorithm.shares(credit)


def _floored(facts: Facts) -> Facts:
    return facts if facts["err"] is None else {**facts, "err": max(facts["err"], FLOOR)}


def publish(run: RunFolder, epsilon: float) -> tuple[Noisy, float]:
    """Noisy shares, recorded in the ledger; and the sum of epsilon over all publications so far."""
    checked(run)
    with run.lock():
        identity, started = coordinator(), run.ledger().begun.coordinator
        if identity.public != started:
            raise RunError(f"{run.path} belongs to the coordinator {started}; set FEDCE_KEY to that key's file")
        found = noisy_shares(run, epsilon)
        run.sign = identity.sign
        run.append({"kind": "publish", "time": time(), "epsilon": epsilon, "shares": dict(found.shares)})
    return found, sum(line.epsilon for line in run.ledger().of(Publish))
