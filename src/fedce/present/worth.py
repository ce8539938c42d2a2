"""What each site gives to the others and what it needs, in words: two numbers that people take for one."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedce.valuation.worth import MOST_NAMED, NO_BALLOT, is_told, measures_needs, some_of


def shares_given(results: Mapping[str, Any]) -> Mapping[str, float]:
    """Each site's share of what is given; empty if it was not measured."""
    found: Mapping[str, float] | None = (results.get("worth") or {}).get("share")
    return found or {}


def is_about_needs(results: Mapping[str, Any]) -> bool:
    """Whether the contributions are FedCE's, which say what a site needs."""
    return measures_needs(str(results["algorithm"]))


def alike_lines(results: Mapping[str, Any]) -> list[str]:
    """Which sites' contributions can't be told apart; where worth stands beside them, it is said which is meant."""
    said: list[str] = results["intervals"]["sentences"] if results["intervals"] else []
    return [f"By contribution: {sentence}" for sentence in said] if shares_given(results) else said


def worth_sentences(results: Mapping[str, Any]) -> list[str]:
    """Who gives most, if that can be told, and who gives more or less than it needs. Nothing for earlier runs."""
    if "worth" not in results:
        return []
    if not (share := shares_given(results)):
        return [f"What each site gives to the others was not measured: {results['worth']['reason']}."]
    if not is_told(results["worth"]):
        return [
            "Who gives most to the others can't be told: what the sites lose by each other's absence differs by no "
            "more than noise. The shares that are shown are drawn towards equal ones."
        ]
    low, high = results["worth"]["low"], results["worth"]["high"]
    first = max(share, key=share.__getitem__)
    interval = f"{100 * low[first]:.0f} to {100 * high[first]:.0f} %"
    ends = f"{100 * share[first]:.0f} % (95 % interval {interval})"
    apart = all(high[site] < low[first] for site in share if site != first)
    said = [
        f"{first} gives most to the others: {ends} of all that is given."
        if apart
        else f"{first} has the largest share of what is given, {ends}; this run can't show that it gives more than all "
        "others."
    ]
    return [*said, *_beside_needs(results)] if is_about_needs(results) else said


def vote_lines(results: Mapping[str, Any]) -> list[str]:
    """Whose votes about the others are missing or do not count, and whom no vote is about."""
    worth = results.get("worth") or {}
    quiet = worth.get("no_votes", {})
    silent = [
        f"{site} did not say in {n} ballot{'' if n == 1 else 's'} what it loses without the others; the ledger has the "
        "reason."
        for site, n in list(quiet.items())[:MOST_NAMED]
    ]
    if len(quiet) > MOST_NAMED:
        silent.append(f"{len(quiet) - MOST_NAMED} more of the sites that were asked did not say it in some ballots.")
    late = worth.get("unmeasured", [])
    unmeasured = [f"What {some_of(late)} gives was not measured: {NO_BALLOT}."] if late else []
    return [*map(disbelieved, worth.get("not_believed", [])), *silent, *unmeasured]


def disbelieved(site: str) -> str:
    return f"The votes of {site} on what the other sites give were not counted: its scores contradict each other."


def beside_needs(gives: Sequence[float], need: float) -> str:
    """Whether a site gives more than it needs or less, by the interval of what it gives; empty: neither is shown.

    >>> beside_needs((0.1, 0.2), 0.3), beside_needs((0.1, 0.2), 0.15)
    ('needs more than it gives', '')
    """
    low, high = gives
    return "gives more than it needs" if need < low else "needs more than it gives" if need > high else ""


def _beside_needs(results: Mapping[str, Any]) -> list[str]:
    """Sites whose need lies outside the interval of what they give."""
    share, needs = shares_given(results), results["contributions"]
    low, high = results["worth"]["low"], results["worth"]["high"]
    found = {site: beside_needs((low[site], high[site]), needs[site]) for site in share}
    more = [site for site in share if found[site].startswith("gives")]
    less = [site for site in share if found[site].startswith("needs")]
    said = []
    if more:
        said.append(f"Gives more than it needs: {_both(more, share, needs)}.")
    if less:
        said.append(f"Needs more than it gives: {_both(less, share, needs)}.")
    return said


def _both(sites: list[str], share: Mapping[str, float], needs: Mapping[str, float]) -> str:
    return ", ".join(f"{site} (gives {100 * share[site]:.0f} %, needs {100 * needs[site]:.0f} %)" for site in sites)
