"""One site after the other repeats a single image: does its score stand out, and does an alarm go off?"""

from collections.abc import Mapping, Sequence
from typing import Any

from fedce.base.config import Config
from fedce.base.tables import FreeRiderConfig
from fedce.federation.session import Result
from fedce.guard.alarms import history
from fedce.record.entries import Round
from fedce.studies.base import Cell, Context, Outcome, Picture, Study, Table

TITLE = "Free riders"
ROUNDS_SHOWN = (1, 10, 25, 50, 100, 200)
N_SHOWN = 6
ScoresBySite = Mapping[str, list[float | None]]
Scores = Mapping[str, ScoresBySite]
"""Scores by the free rider of the training, then by site."""


def trainings(context: Context) -> list[Config]:
    return [*_planted(context).values(), _honest(context)]


def _honest(context: Context) -> Config:
    return context.training("fedce", context.seeds[0], freerider=FreeRiderConfig(detect=True))


def _planted(context: Context) -> dict[str, Config]:
    """One training for each site as the free rider, with one seed."""
    return {
        site: context.training(
            "fedce", context.seeds[0], freerider=FreeRiderConfig(detect=True, plant={site: "repeat"})
        )
        for site in context.names
    }


def rounds_shown(n_rounds: int) -> list[int]:
    """Six rounds: the paper's, if the training has them, filled up evenly."""
    shown = {n for n in ROUNDS_SHOWN if n <= n_rounds} | {n_rounds}
    for i in range(1, N_SHOWN + 1):
        if len(shown) < min(N_SHOWN, n_rounds):
            shown.add(max(1, round(i * n_rounds / N_SHOWN)))
    return sorted(shown)[-N_SHOWN:]


def evaluate(context: Context) -> Outcome:
    planted = {site: context.result(config) for site, config in _planted(context).items()}
    rounds = {site: context.rounds(config) for site, config in _planted(context).items()}
    scores = {rider: _scores(result.values, context.names) for rider, result in planted.items()}
    literal = {rider: _to_the_letter(rounds[rider], result) for rider, result in planted.items()}
    found = {rider: _found(result.values, rider) for rider, result in planted.items()}
    false = sum(_false_alarms(result.values, rider) for rider, result in planted.items())
    false += _false_alarms(context.result(_honest(context)).values, None)
    caught = [round_no for round_no in found.values() if round_no is not None]
    findings = [
        f"An alarm is raised for {len(caught)} of {len(found)} free riders"
        + (f", in round {max(caught)} at the latest" if caught else "")
        + f"; {false} false alarms.",
        _said_of_scores("The score alone", scores),
        _said_of_scores("The paper's score to the letter (local-global similarity times error difference)", literal),
    ]
    pictures = [_heat(context, scores), _cosines(context, rounds)]
    return Outcome("free-rider", TITLE, findings, [_table(found, scores, literal)], pictures)


def _table(found: Mapping[str, int | None], scores: Scores, literal: Scores) -> Table:
    return Table(
        "alarms",
        "Each site in turn repeats one image. Scores at the end: fedce's (D13), and the paper's to the letter.",
        [
            *("free rider", "alarm in round", "site with the highest score at the end", "its own score"),
            *("highest other", "to the letter: highest", "its own, to the letter", "highest other, to the letter"),
        ],
        [
            [
                *(rider, "none" if round_no is None else str(round_no)),
                *_ends(scores[rider], rider),
                *_ends(literal[rider], rider),
            ]
            for rider, round_no in found.items()
        ],
        digits=4,
    )


def _ends(scores: ScoresBySite, rider: str) -> list[Cell]:
    """The site with the highest score, the rider's own, and the highest of all others."""
    last = {site: own[-1] or 0.0 for site, own in scores.items()}
    return [max(last, key=lambda site: last[site]), scores[rider][-1], max(v for s, v in last.items() if s != rider)]


def _said_of_scores(what: str, scores: Scores) -> str:
    n_top = sum(_ends(own, rider)[0] == rider for rider, own in scores.items())
    said = f"{what} is highest for the free rider in {n_top} of {len(scores)} trainings"
    return said + (
        "." if n_top == len(scores) else ": an honest site with images that no other site has also scores high."
    )


def _heat(context: Context, scores: Scores) -> Picture:
    from fedce.pictures import study_plots

    shown, names = rounds_shown(context.config.n_rounds), context.names
    maps = {f"round {n}": [[scores[rider][site][n - 1] for site in names] for rider in names] for n in shown}
    return Picture(
        "heat",
        "Free-rider score (D13), mean over the rounds so far. Each row is a training in which the site of the row is "
        "the free rider; the diagonal should be the darkest.",
        study_plots.heat_maps(maps, names).encode(),
        data=Table(
            "heat",
            "Scores.",
            ["round", "free rider", *names],
            [[str(n), rider, *(scores[rider][site][n - 1] for site in names)] for n in shown for rider in names],
            digits=6,
        ),
    )


def _cosines(context: Context, rounds: Mapping[str, Sequence[Any]]) -> Picture:
    """The figure of the paper's appendix."""
    from fedce.pictures import study_plots

    similarity = {rider: {site: _similarities(own, site) for site in context.names} for rider, own in rounds.items()}
    return Picture(
        "cosine",
        "Cosine between each site's update and the common model's update, by round, as in the paper's appendix; a "
        "panel for each free rider (bold line).",
        study_plots.panels(similarity, "cosine").encode(),
        data=Table(
            "cosine",
            "Cosines.",
            ["free rider", "round", *context.names],
            [
                [rider, str(n), *cosines]
                for rider, by_site in similarity.items()
                for n, cosines in enumerate(zip(*by_site.values(), strict=True), 1)
            ],
            digits=6,
        ),
    )


def _to_the_letter(rounds: Sequence[Any], result: Result) -> ScoresBySite:
    """The paper's score to the letter, computed from the ledger, whatever score the run itself used."""
    return history(rounds, result.values["validation_dice"], "literal")


def _scores(values: dict[str, Any] | Any, sites: Sequence[str]) -> ScoresBySite:
    return {site: values["freerider"][site]["scores"] for site in sites}


def _found(values: Any, rider: str) -> int | None:
    """The round of the first alarm, counted from 1."""
    rounds = [alarm["round_no"] + 1 for alarm in values["freerider"][rider]["alarms"]]
    return min(rounds, default=None)


def _false_alarms(values: Any, rider: str | None) -> int:
    return sum(bool(facts["alarms"]) for site, facts in values["freerider"].items() if site != rider)


def _similarities(rounds: Sequence[Round], site: str) -> list[float | None]:
    return [done.sites[site].similarity_to_all if site in done.sites else None for done in rounds]


STUDY = Study(TITLE, trainings, evaluate, order=5)
