"""A run as one self-contained HTML page: no network, opens from disk, light and dark, prints well."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedce.algorithms import built_in
from fedce.config import Config
from fedce.errors import RunError
from fedce.files import write_bytes
from fedce.ledger import checked
from fedce.record import RunFolder
from fedce.report.card import model_card
from fedce.report.pages import page
from fedce.report.standalone import dice_alone
from fedce.report.standalone import sentence as standalone_sentence
from fedce.report.truth import truths
from fedce.results import MOST_BANDS
from fedce.scoring import MIN_CASES

FAIRNESS_ROWS = (
    ("mean", "Mean Dice", "average over the sites' test images"),
    ("std", "Standard deviation", "over sites (n - 1); lower is fairer"),
    ("worst", "Worst site", "the site that the model serves worst"),
    ("best", "Best site", "the site that the model serves best"),
    ("jain", "Jain's index", "1 if all sites are served alike"),
    ("gini", "Gini coefficient", "0 if all sites are served alike"),
)
NO_ALARM = "No alarm was raised."
NOBODY_LOOKED = "Nobody looked for cheats: the guard and the detector are off."


def write_report(run: RunFolder, *, standalone: RunFolder | None = None, examples: bool = True) -> Path:
    """Write report.html from the run's record alone.

    `standalone`: a run on the same data that says what each site reaches alone. Without `examples` the page holds no
    image of a patient.
    """
    from fedce.report import figures

    found, rounds = checked(run), run.rounds()
    results = found.results
    started = [entry for entry in run.ledger() if entry["kind"] == "start"]
    if not started or not rounds:
        raise RunError(f"{run.ledger_file} is missing or has no rounds; a report needs the whole record")
    measured = truths(run)
    alone = dice_alone(run, standalone) if standalone else {}
    # Runs of earlier versions, and those of a store, have none.
    bands = results.get("intervals_over_rounds", [])
    content = page(
        "page.html.j2",
        name=run.path.resolve().name,
        # The folder's name alone: where it lies on somebody's machine is nobody else's business.
        data_name=Path(results["data"]).name,
        results=results,
        summary=[*summary(results, run.config, measured, alone), *in_doubt(found.doubt)],
        truths=measured,
        sites=_site_rows(results, alone),
        rounds_alone=standalone.config.n_rounds if standalone else None,
        sites_per_round=run.config.sites_per_round,
        fairness=[(label, results["fairness"][key], note) for key, label, note in FAIRNESS_ROWS],
        # Of one round there is nothing to be seen.
        bands=len(bands) > 1,
        too_many_bands=len(results["contributions"]) > MOST_BANDS,
        contributions=figures.contributions(rounds, bands),
        dice=figures.dice(results, alone),
        progress=figures.progress(rounds),
        some_absent=len({frozenset(entry["sites"]) for entry in rounds}) > 1,
        freerider=figures.freerider(results) if results["freerider"] else None,
        alarms=[alarm for found in results["freerider"].values() for alarm in found["alarms"]],
        examples=figures.examples(run, results) if examples else None,
        config=run.config_file.read_text("utf-8"),
        data=run.site_facts(),
        card=model_card(run, results, run.site_facts()),
    )
    write_bytes(run.report_file, content)
    return run.report_file


def in_doubt(doubt: str) -> list[str]:
    """A sentence for a page whose numbers are consistent, but not known to be the coordinator's."""
    return [f"Nobody vouches for these numbers: the ledger is consistent, but {doubt}."] if doubt else []


def looked_for_cheats(config: Config) -> bool:
    """Whether the guard or the detector was on."""
    algorithm = built_in(config)
    guarded = getattr(algorithm, "guard", "off") != "off"
    return guarded or (config.freerider.detect and getattr(algorithm, "exchanges", True))


def summary(
    results: dict[str, Any],
    config: Config,
    measured: Sequence[dict[str, Any]] = (),
    alone: Mapping[str, float] | None = None,
) -> list[str]:
    """What a reader who stops after three sentences should know."""
    shares, dice = results["contributions"], results["dice"]
    n_sites, mean = len(shares), results["fairness"]["mean"]
    sentences = [
        f"{n_sites} sites trained for {results['rounds']} rounds with {results['algorithm']}; "
        f"on their test images the model reaches a mean Dice of {mean:.3f}.",
    ]
    if results["algorithm"] == "standalone":
        sentences.append("Every site trained alone, so nobody contributed to anybody else.")
    else:
        sentences.append(_largest_share(results))
    if results["intervals"]:
        sentences += results["intervals"]["sentences"]
    elif results.get("no_intervals") and results["algorithm"] != "standalone":
        sentences.append(f"The contributions have no intervals: {results['no_intervals']}.")
    if results["algorithm"] != "standalone":
        sentences += _order(results["order_settled_from"], results["rounds"])
    sentences += [truth["sentence"] for truth in measured]
    sentences.append(_lowest_dice(results))
    if alone:
        sentences.append(standalone_sentence(dice, alone, results.get("dice_interval", {})))
    alarms = [f"{site}: {flag}" for site, flags in results["flags"].items() for flag in flags]
    plural = "s" if len(alarms) > 1 else ""
    nothing = NO_ALARM if looked_for_cheats(config) else NOBODY_LOOKED
    sentences.append(f"{len(alarms)} alarm{plural}: {'; '.join(alarms[:3])}." if alarms else nothing)
    if unused := results.get("rounds_unused"):
        whom = ", ".join(f"{site} in {n} of {results['rounds']} rounds" for site, n in unused.items())
        sentences.append(f"Such updates have no weight in the model and earn nothing: {whom}.")
    return sentences


def _largest_share(results: Mapping[str, Any]) -> str:
    """Who contributed most, if the intervals tell that site from every other one."""
    shares, found = results["contributions"], results["intervals"] or {}
    first = max(shares, key=shares.get)
    size = f"{100 * shares[first]:.1f} % where an equal share is {100 / len(shares):.1f} %"
    has_interval = {site for site, low in found.get("low", {}).items() if low is not None}
    alike = {frozenset(pair) for pair in found.get("indistinguishable", [])}
    is_shown = (
        "indistinguishable" in found
        and shares.keys() <= has_interval
        and not any(frozenset((first, site)) in alike for site in shares)
    )
    if is_shown:
        return f"{first} contributed most: {size}."
    return f"The largest share is {first}'s, {size}; this run can't show that it contributed more than all others."


def _lowest_dice(results: Mapping[str, Any]) -> str:
    """Whom the model serves worst, if that site's interval lies below all others'."""
    dice, intervals = results["dice"], results.get("dice_interval", {})
    worst = min(dice, key=dice.get)
    ends = intervals.get(worst)
    alike = [
        site for site in dice if site != worst and not (ends and (own := intervals.get(site)) and own[0] > ends[1])
    ]
    if not alike:
        where = "" if ends is None else f" (95 % interval {ends[0]:.3f} to {ends[1]:.3f})"
        return f"{worst} is served worst, with a Dice of {dice[worst]:.3f}{where}."
    others = ", ".join(alike[:3]) + (f" and {len(alike) - 3} more" if len(alike) > 3 else "")
    return (
        f"The lowest Dice is {worst}'s, {dice[worst]:.3f}; this run can't show that it is served worse than {others}."
    )


def _order(settled_from: int | None, n_rounds: int) -> list[str]:
    """Since when the order of the contributions is what it is."""
    if settled_from is None or n_rounds == 1:
        return []
    if settled_from == n_rounds:
        return ["In this run the order of the contributions still changed in the last round."]
    return [f"In this run the order of the contributions has not changed since round {settled_from}."]


def _interval(results: dict[str, Any], site: str) -> str:
    found = results["intervals"]
    if not found or site not in found["low"]:
        return ""
    if found["low"][site] is None:
        return _no_interval(results["validation_cases"][site])
    return f"{100 * found['low'][site]:.1f} to {100 * found['high'][site]:.1f} %"


def _dice_interval(results: dict[str, Any], site: str) -> str:
    """The interval over the site's test cases, or why there is none; nothing for a run of an earlier version."""
    if found := results.get("dice_interval", {}).get(site):
        return "{:.3f} to {:.3f}".format(*found)
    n = results.get("test_cases", {}).get(site, 0)
    return _no_interval(n) if n and site in results["dice"] else ""


def _no_interval(n_cases: int) -> str:
    """Short, because it stands in a table's cell; the summary says it in a sentence."""
    return f"no interval: {n_cases} of {MIN_CASES} needed cases" if n_cases < MIN_CASES else "no interval"


def _site_rows(results: dict[str, Any], alone: Mapping[str, float]) -> list[dict[str, Any]]:
    # A site that was absent at the end has a share and no Dice.
    classes = next(iter(results["dice_by_class"].values()))
    return [
        {
            "site": site,
            "images": results["images"][site],
            "train": results["train_images"][site],
            "dice": results["dice"].get(site),
            "dice_interval": _dice_interval(results, site),
            "by_class": results["dice_by_class"].get(site, dict.fromkeys(classes)),
            "alone": alone.get(site),
            "without": results["dice_without"].get(site),
            "share": share,
            "interval": _interval(results, site),
            "flags": results["flags"].get(site, []),
        }
        for site, share in results["contributions"].items()
    ]
