"""A run in sentences, for readers who read nothing else."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedce.algorithms import built_in
from fedce.algorithms.titles import printed_name
from fedce.base.config import Config
from fedce.present.columns import labelled_lines, presence_lines
from fedce.present.gains import gain_sentences, keeps_sentence
from fedce.present.worth import alike_lines, is_about_needs, worth_sentences

NO_ALARM = "No alarm was raised."
NOT_CHECKED = "No check for cheating was made: the guard and the free-rider detector are off."


def summary(
    results: dict[str, Any],
    config: Config,
    measured: Sequence[dict[str, Any]] = (),
) -> list[str]:
    """The summary at the top of a report."""
    shares = results["contributions"]
    n_sites, mean = len(shares), results["fairness"]["mean"]
    sentences = [
        f"{n_sites} sites trained for {results['rounds']} rounds with {printed_name(config.algorithm)}; "
        f"on their test cases the model reaches a mean Dice of {mean:.3f}.",
        *gain_sentences(results),
        *keeps_sentence(results),
        *worth_sentences(results),
    ]
    if results["algorithm"] == "standalone":
        sentences.append("Every site trained alone, so no site contributed to another.")
    else:
        sentences.append(_largest_share(results))
    sentences += alike_lines(results)
    if not results["intervals"] and results.get("no_intervals") and results["algorithm"] != "standalone":
        sentences.append(f"The contributions have no intervals: {results['no_intervals']}.")
    if results["algorithm"] != "standalone":
        sentences += _order(results["order_settled_from"], results["rounds"])
    sentences += [truth["sentence"] for truth in measured]
    sentences += [_lowest_dice(results), *presence_lines(results), *labelled_lines(results)]
    alarms = [f"{site}: {flag}" for site, flags in results["flags"].items() for flag in flags]
    plural = "s" if len(alarms) > 1 else ""
    nothing = NO_ALARM if looked_for_cheats(config) else NOT_CHECKED
    sentences.append(f"{len(alarms)} alarm{plural}: {'; '.join(alarms[:3])}." if alarms else nothing)
    if unused := results.get("rounds_unused"):
        whom = ", ".join(f"{site} in {n} of {results['rounds']} rounds" for site, n in unused.items())
        sentences.append(f"Updates with an alarm have no weight in the model and earn nothing: {whom}.")
    return sentences


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
