"""What each site gains by the federation, in words: its Dice against what it reaches alone."""

from collections.abc import Mapping
from functools import partial
from typing import Any

MODELS = {"common": "the common model", "personal": "a personalised model", "alone": "the model trained alone"}
"""The models among which a site chooses the one that it keeps."""


def gain_sentences(results: Mapping[str, Any], *, numbers: bool = True) -> list[str]:
    """Sites that lose first; a gain whose interval holds zero is said to be no difference. Nothing without `alone`.

    Without `numbers` the sites are named alone, where a table beside the sentence has the numbers.
    """
    gain: Mapping[str, float] = results.get("gain", {})
    if not gain:
        return []
    intervals = results["gain_interval"]
    shown = {site: ends for site in gain if (ends := intervals.get(site)) is not None and not ends[0] <= 0 <= ends[1]}
    losing = [site for site in shown if gain[site] < 0]
    gaining = [site for site in shown if gain[site] > 0]
    level = [site for site in gain if site not in shown]
    unit = ", in Dice with its 95 % interval" if numbers else ""
    named = partial(_named, gain=gain, intervals=intervals) if numbers else ", ".join
    said = []
    if losing:
        said.append(f"Worse off than alone{unit}: {named(losing)}.")
    if gaining:
        said.append(f"Better off than alone{unit}: {named(gaining)}.")
    if level:
        said.append(
            f"No difference from training alone that this run can show: {named(level)}"
            + (", which is every site." if len(level) == len(gain) > 1 else ".")
        )
    return said


def _named(sites: list[str], gain: Mapping[str, float], intervals: Mapping[str, Any]) -> str:
    return ", ".join(f"{site} {gain[site]:+.3f} ({_ends(intervals.get(site))})" for site in sites)


def _ends(interval: Any) -> str:
    return "too few test cases for an interval" if interval is None else "{:+.3f} to {:+.3f}".format(*interval)


def keeps_sentence(results: Mapping[str, Any]) -> list[str]:
    """Which model each site keeps, where they chose."""
    keeps: Mapping[str, str] = results.get("keeps", {})
    by_model = {words: [site for site in keeps if keeps[site] == model] for model, words in MODELS.items()}
    said = [f"{', '.join(sites)} ({words})" for words, sites in by_model.items() if sites]
    rule = "Each site keeps the common model unless its own validation cases show that another one is better"
    return [f"{rule}: {'; '.join(said)}."] if said else []
