"""A member's page in ten seconds: the questions of the report, answered for one site, and nothing on the others."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedce.base.config import Config
from fedce.present import sentences
from fedce.present.gains import MODELS, gain_sentences
from fedce.present.glance import Glance, not_checked, verdict
from fedce.present.worth import beside_needs, disbelieved, is_about_needs

Model = tuple[str, float, Sequence[float] | None]
"""A model's name, its Dice, and the interval if there is one."""


def own_glance(
    view: Mapping[str, Any],
    results: dict[str, Any],
    config: Config,
    measured: Sequence[dict[str, Any]],
    doubt: str = "",
) -> Glance:
    """The top of a member's page. `view` is what concerns the site; of `results` only what names no site is used."""
    site = view["site"]
    needs = "needs" if "gives" in view and is_about_needs(view) else "contributes"
    rows = [
        ("What was trained", sentences.trained(results, config)),
        (f"Is it good for {site}?", [*_dice(view), *gain_sentences(view), *_keeps(view)]),
        (f"What {site} gives", _gives(view)),
        (f"What {site} {needs}", _needs(view, needs)),
        ("How sure is that?", _certainty(view, needs)),
        ("Alarms", _alarms(view, config)),
        ("Changes of members", view["changes"]),
        ("What was not checked", not_checked(results, config, measured, doubt)),
    ]
    return Glance(verdict(results), [row for row in rows if row[1]])


def own_models(view: Mapping[str, Any], results: Mapping[str, Any]) -> list[Model]:
    """The Dice of each model on the site's test cases: together beside alone."""
    site, kept = view["site"], _kept(view)
    ends = {kept: view["dice_interval"], "alone": results.get("alone_interval", {}).get(site)}
    dice = {
        "common": _common(view),
        "personal": view.get("dice_personal", {}).get(site),
        "alone": view.get("alone", {}).get(site),
        "without": view["dice_without"],
    }
    names = {
        "common": "Together: the common model",
        "personal": "Together, then trained on at the site",
        "alone": "Alone: a model trained on its own cases",
        "without": "Without it: the common model of the other sites",
    }
    keeps = {kept: ", which it keeps"} if "keeps" in view else {}
    return [
        (f"{name}{keeps.get(model, '')}", value, ends.get(model))
        for model, name in names.items()
        if (value := dice[model]) is not None
    ]


def _kept(view: Mapping[str, Any]) -> str:
    kept: str = view.get("keeps", {}).get(view["site"], "common")
    return kept


def _common(view: Mapping[str, Any]) -> float | None:
    """The Dice of the common model, which need not be the model that the site keeps."""
    found: float | None = view.get("dice_common", {}).get(view["site"], view["dice"])
    return found


def _dice(view: Mapping[str, Any]) -> list[str]:
    if view["dice"] is None:
        return []
    ends, n = view["dice_interval"], view["test_cases"]
    interval = f" (95 % interval over {n} test cases: {ends[0]:.3f} to {ends[1]:.3f})" if ends else ""
    said = [
        f"On the test cases of {view['site']}, {MODELS[_kept(view)]} reaches a Dice of {view['dice']:.3f}{interval}; "
        "1 is perfect."
    ]
    if view["dice_without"] is not None:
        without = f"without the part of {view['site']} in it, {view['dice_without']:.3f}"
        said.append(f"The common model reaches {_common(view):.3f}; {without}.")
    return said


def _keeps(view: Mapping[str, Any]) -> list[str]:
    kept = MODELS[_kept(view)]
    return [f"By its own validation cases, {view['site']} keeps {kept}."] if "keeps" in view else []


def _gives(view: Mapping[str, Any]) -> list[str]:
    if "gives" not in view:
        return []
    if view["gives"] is None:
        return [f"What {view['site']} gives to the others was not measured: {view['no_gives']}."]
    said = [f"{_percent(view['gives'])} of what the sites give to each other{_within(view['gives_interval'])}."]
    return said if view["votes_counted"] else [*said, disbelieved(view["site"])]


def _needs(view: Mapping[str, Any], verb: str) -> list[str]:
    what = "It is the site's contribution by FedCE, its weight in the common model." if verb == "needs" else ""
    return [f"{_percent(view['share'])}{_within(view['interval'])}. {what}".strip()]


def _certainty(view: Mapping[str, Any], verb: str) -> list[str]:
    said = []
    if view.get("gives") is not None:
        said.append(_beside_equal(view, "gives", view["gives_interval"]))
        if not view["gives_is_told"]:
            said.append("In this run the sites differ by no more than noise in what they give.")
        elif verb == "needs" and (beside := beside_needs(view["gives_interval"], view["share"])):
            said.append(f"By the interval of what it gives, {view['site']} {beside}.")
    if view["interval"]:
        said.append(_beside_equal(view, verb, view["interval"]))
    elif view["no_interval"]:
        said.append(f"What {view['site']} {verb} has no interval: {view['no_interval']}.")
    return said


def _beside_equal(view: Mapping[str, Any], verb: str, ends: Sequence[float]) -> str:
    """Whether the site's share differs from an equal one, as far as the interval shows."""
    equal = 1 / view["n_sites"]
    share = f"an equal share of {_percent(equal)}"
    if ends[0] <= equal <= ends[1]:
        return f"What {view['site']} {verb} can't be told from {share}."
    return f"By its interval, {view['site']} {verb} {'more' if ends[0] > equal else 'less'} than {share}."


def _alarms(view: Mapping[str, Any], config: Config) -> list[str]:
    if view["flags"]:
        return [f"Alarm for this site: {flag}." for flag in view["flags"]]
    is_clear = sentences.looked_for_cheats(config) and view.get("votes_counted", True)
    return [f"No alarm was raised for {view['site']}."] if is_clear else []


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _within(ends: Sequence[float] | None) -> str:
    return f", with a 95 % interval from {100 * ends[0]:.1f} to {_percent(ends[1])}" if ends else ""
