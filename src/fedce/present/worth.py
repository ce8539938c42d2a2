"""What each site gives to the others and what it needs, in words: two numbers that people take for one."""

from collections.abc import Mapping
from typing import Any

from fedce.valuation.worth import LEAST_SIGNAL


def shares_given(results: Mapping[str, Any]) -> Mapping[str, float]:
    """Each site's share of what is given; empty if it was not measured."""
    found: Mapping[str, float] | None = (results.get("worth") or {}).get("share")
    return found or {}


def is_told(results: Mapping[str, Any]) -> bool:
    """Whether the sites differ by more than noise in what they give."""
    return bool(shares_given(results)) and results["worth"]["signal"] >= LEAST_SIGNAL


def is_about_needs(results: Mapping[str, Any]) -> bool:
    """Whether the contributions are FedCE's, which say what a site needs."""
    return str(results["algorithm"]).startswith("fedce")


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
    if not is_told(results):
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


def disbelieved_lines(results: Mapping[str, Any]) -> list[str]:
    """Which sites' votes about the others do not count, and why."""
    return [disbelieved(site) for site in (results.get("worth") or {}).get("not_believed", [])]


def disbelieved(site: str) -> str:
    return f"The votes of {site} on what the other sites give were not counted: its scores contradict each other."


def _beside_needs(results: Mapping[str, Any]) -> list[str]:
    """Sites whose need lies outside the interval of what they give."""
    share, needs = shares_given(results), results["contributions"]
    low, high = results["worth"]["low"], results["worth"]["high"]
    more = [site for site in share if needs[site] < low[site]]
    less = [site for site in share if needs[site] > high[site]]
    said = []
    if more:
        said.append(f"Gives more than it needs: {_both(more, share, needs)}.")
    if less:
        said.append(f"Needs more than it gives: {_both(less, share, needs)}.")
    return said


def _both(sites: list[str], share: Mapping[str, float], needs: Mapping[str, float]) -> str:
    return ", ".join(f"{site} (gives {100 * share[site]:.0f} %, needs {100 * needs[site]:.0f} %)" for site in sites)
