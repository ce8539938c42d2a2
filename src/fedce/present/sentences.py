"""A run in sentences, by the question that each answers; `glance` puts them together."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedce.algorithms import built_in
from fedce.algorithms.titles import printed_name
from fedce.base.config import Config
from fedce.data.pixels import FOREGROUND
from fedce.data.shape import counted_as
from fedce.present.columns import classes_of, labelled_lines, presence_lines
from fedce.present.gains import gain_sentences, keeps_sentence
from fedce.present.worth import alike_lines, is_about_needs, vote_lines

NO_ALARM = "No alarm was raised."
MOST_ALARMS = 3
NOT_CHECKED = "No check for cheating was made: the guard and the free-rider detector are off."


def trained(results: Mapping[str, Any], config: Config) -> list[str]:
    n_sites, n_rounds = len(results["contributions"]), results["rounds"]
    rounds = f"{n_rounds} round{'s' if n_rounds > 1 else ''}"
    # A single class without a name of its own says nothing.
    classes = ", ".join(name for name in classes_of(results) if name not in FOREGROUND)
    outlined = f"The model outlines {classes or 'what the sites mark'} in {counted_as(config.data)}."
    return [f"{n_sites} sites trained for {rounds} with {printed_name(config.algorithm)}.", outlined]


def quality(results: dict[str, Any], *, numbers: bool = True) -> list[str]:
    """How well the model does, at which site worst, and beside training alone, with or without the numbers of that."""
    which = "the models that the sites keep reach" if results.get("keeps") else "the model reaches"
    return [
        f"On the sites' test cases {which} a mean Dice of {results['fairness']['mean']:.3f}; 1 is perfect.",
        _lowest_dice(results),
        *labelled_lines(results),
        *gain_sentences(results, numbers=numbers),
        *keeps_sentence(results),
    ]


def shares(results: Mapping[str, Any]) -> list[str]:
    if results["algorithm"] == "standalone":
        return ["Every site trained alone, so no site contributed to another."]
    return [_largest_share(results), *presence_lines(results)]


def certainty(results: dict[str, Any], measured: Sequence[dict[str, Any]] = ()) -> list[str]:
    """Which sites can't be told apart, why intervals are missing, whether the order settled, and what truth says."""
    said = list(alike_lines(results))
    if results["algorithm"] != "standalone":
        if not results["intervals"] and results.get("no_intervals"):
            said.append(f"The contributions have no intervals: {results['no_intervals']}.")
        said += _order(results["order_settled_from"], results["rounds"])
    return [*said, *(truth["sentence"] for truth in measured)]


def alarms(results: Mapping[str, Any], config: Config) -> list[str]:
    """The alarms, or that none was raised; empty if no check was made and nothing was seen."""
    raised = [f"{site}: {flag}" for site, flags in results["flags"].items() for flag in flags]
    disbelieved = (results.get("worth") or {}).get("not_believed")
    said = [NO_ALARM] if looked_for_cheats(config) and not disbelieved else []
    if raised:
        more = f"; and {len(raised) - MOST_ALARMS} more" if len(raised) > MOST_ALARMS else ""
        said = [f"{len(raised)} alarm{'s' if len(raised) > 1 else ''}: {'; '.join(raised[:MOST_ALARMS])}{more}."]
        said.append("An alarm is a sign and no proof: honest sites raise some too.")
    if unused := results.get("rounds_unused"):
        whom = ", ".join(f"{site} in {n} of {results['rounds']} rounds" for site, n in unused.items())
        said.append(f"Updates with an alarm have no weight in the model and earn nothing: {whom}.")
    return [*said, *vote_lines(results)]


def _largest_share(results: Mapping[str, Any]) -> str:
    """Which site contributed most, if its interval lies apart from every other site's."""
    shares, found = results["contributions"], results["intervals"] or {}
    needs = "worth" in results and is_about_needs(results)
    verb = "needs" if needs else "contributed"
    first = max(shares, key=shares.get)
    size = f"{100 * shares[first]:.1f} %, compared with an equal share of {100 / len(shares):.1f} %"
    has_interval = {site for site, low in found.get("low", {}).items() if low is not None}
    alike = {frozenset(pair) for pair in found.get("indistinguishable", [])}
    is_shown = (
        "indistinguishable" in found
        and shares.keys() <= has_interval
        and not any(frozenset((first, site)) in alike for site in shares)
    )
    if is_shown:
        return f"{first} {verb} most: {size}."
    return f"{first} has the largest contribution, {size}; this run can't show that it {verb} more than all others."


def _lowest_dice(results: Mapping[str, Any]) -> str:
    """Which site the model serves worst, if its interval lies below all others'."""
    dice, intervals = results["dice"], results.get("dice_interval", {})
    worst = min(dice, key=dice.get)
    ends = intervals.get(worst)
    alike = [
        site for site in dice if site != worst and not (ends and (own := intervals.get(site)) and own[0] > ends[1])
    ]
    if not alike:
        where = "" if ends is None else f" (95 % interval {ends[0]:.3f} to {ends[1]:.3f})"
        return f"The model serves {worst} worst, with a Dice of {dice[worst]:.3f}{where}."
    others = ", ".join(alike[:3]) + (f" and {len(alike) - 3} more" if len(alike) > 3 else "")
    return f"{worst} has the lowest Dice, {dice[worst]:.3f}; this run can't show that it is served worse than {others}."


def _order(settled_from: int | None, n_rounds: int) -> list[str]:
    """Since which round the order of the contributions has not changed."""
    if settled_from is None or n_rounds == 1:
        return []
    if settled_from == n_rounds:
        return ["In this run the order of the contributions still changed in the last round."]
    return [f"In this run the order of the contributions has not changed since round {settled_from}."]


def looked_for_cheats(config: Config) -> bool:
    """Whether the guard or the detector was on."""
    algorithm = built_in(config)
    exchanges = algorithm is None or algorithm.traits.exchanges
    return exchanges and (config.guard == "standard" or config.freerider.detect)


def in_doubt(doubt: str) -> list[str]:
    """A sentence for a page whose numbers are consistent, but not proved to come from the coordinator."""
    return [f"These numbers are not confirmed: the ledger is consistent, but {doubt}."] if doubt else []
