"""A run in ten seconds: what can be told at all, what was trained, whether it is good, who gives and needs what, how
sure that is, and what was not checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedce.base.config import Config
from fedce.base.tables import BUILT_IN
from fedce.core.scoring import MIN_CASES
from fedce.present import sentences
from fedce.present.worth import is_about_needs, shares_given, worth_sentences
from fedce.questions.allocation import any_apart, better_than_at_first
from fedce.valuation.uncertainty import MIN_ROUNDS
from fedce.valuation.worth import is_told

TOO_EARLY = "Too early to tell"


@dataclass(frozen=True)
class Glance:
    verdict: str
    """The first line: whether this run can tell anything yet."""
    rows: Sequence[tuple[str, Sequence[str]]]
    """Each question with the sentences that answer it."""


def glance(
    results: dict[str, Any],
    config: Config,
    measured: Sequence[dict[str, Any]] | None = None,
    doubt: str = "",
    changes: Sequence[str] = (),
) -> Glance:
    """The top of a report.

    `measured` are the sites' values by 'fedce value', None if they were not looked for; `doubt` is why the numbers are
    not confirmed, if they are not; `changes` are sentences about members' keys and members that withdrew.
    """
    needs = "What each site needs" if "worth" in results and is_about_needs(results) else "What each site contributes"
    rows = [
        ("What was trained", sentences.trained(results, config)),
        ("Is it good?", sentences.quality(results, numbers=False)),
        ("What each site gives", worth_sentences(results)),
        (needs, sentences.shares(results)),
        ("How sure is that?", sentences.certainty(results, measured or ())),
        ("Alarms", sentences.alarms(results, config)),
        ("Changes of members", changes),
        ("What was not checked", not_checked(results, config, measured, doubt)),
    ]
    return Glance(verdict(results), [row for row in rows if row[1]])


def verdict(results: Mapping[str, Any]) -> str:
    """Whether this run can tell who gives and needs what, or that it is too early; names no site."""
    if reasons := _too_early(results):
        return f"{TOO_EARLY}: {'; '.join(reasons)}. Do not decide anything by the shares on this page."
    better = better_than_at_first(results) if _knows_the_start(results) else []
    said = []
    if better:
        n_sites = len(results["contributions"])
        said.append(f"at {len(better)} of {n_sites} sites the model is shown to be better than before the training")
    if is_told(results.get("worth")):
        said.append("the sites differ by more than noise in what they give")
    text = "; ".join(said) or "the rounds are done"
    return f"{text[0].upper()}{text[1:]}."


def _too_early(results: Mapping[str, Any]) -> list[str]:
    reasons = []
    if _knows_the_start(results) and not better_than_at_first(results):
        measured = any(ends is not None for ends in results["validation_interval"].values())
        few = f", because none has {MIN_CASES} validation cases"
        reasons.append(f"at no site is the model shown to be better than before the training{'' if measured else few}")
    if shares_given(results) and not is_told(results["worth"]):
        reasons.append("in what they give, the sites differ by no more than noise")
    elif shares_given(results) and not any_apart(results["worth"]):
        reasons.append("the 95 % intervals of what the sites give all overlap")
    if is_about_needs(results) and results["rounds"] < MIN_ROUNDS:
        n = results["rounds"]
        reasons.append(f"{n} round{' is' if n == 1 else 's are'} too few for intervals of what each site needs")
    return reasons


def _knows_the_start(results: Mapping[str, Any]) -> bool:
    """Earlier versions did not record how well the initial model does, or how sure the final score is."""
    return bool(results.get("initial_dice")) and bool(results.get("validation_interval"))


def not_checked(
    results: Mapping[str, Any], config: Config, measured: Sequence[dict[str, Any]] | None, doubt: str
) -> list[str]:
    """What a reader might take for checked; names no site."""
    said = sentences.in_doubt(doubt)
    looked = sentences.looked_for_cheats(config)
    if not looked:
        said.append(sentences.NOT_CHECKED)
    elif not config.freerider.detect:
        said.append("The guard checked every update; the free-rider detector was off.")
    if not config.data.split[1]:
        said.append(
            "Validation used the training cases (data.split), so no share rests on cases that are new to the model."
        )
    if results["algorithm"] != "standalone":
        if measured is not None and not measured:
            said.append("The shares were not compared with trainings without each site ('fedce value' does that).")
        if "alone" not in results:
            said.append("What a site reaches alone was not measured (--alone measures it).")
    where = "cases that a program drew" if results["data"] in BUILT_IN else "cases of these sites alone"
    said.append(f"The model was tested on {where}, and in no clinical study.")
    return said
