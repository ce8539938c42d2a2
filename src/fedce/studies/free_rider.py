"""One site after the other repeats a single image: does its score stand out, and does an alarm go off?"""

from collections.abc import Sequence
from typing import Any

from fedce.base.config import Config, FreeRiderConfig
from fedce.record.entries import Round
from fedce.studies.base import Context, Outcome, Picture, Table

TITLE = "Free riders"
ROUNDS_SHOWN = (1, 10, 25, 50, 100, 200)
N_SHOWN = 6


def trainings(context: Context) -> list[Config]:
    return [*_planted(context).values(), _honest(context)]


def _honest(context: Context) -> Config:
    return context.training("fedce", context.seeds[0], freerider=FreeRiderConfig(detect=True))


def _planted(context: Context) -> dict[str, Config]:
    """One seed: each site in turn is the free rider."""
    return {
        site: context.training(
            "fedce", context.seeds[0], freerider=FreeRiderConfig(detect=True, plant={site: "repeat"})
        )
        for site in context.names
    }


def rounds_shown(n_rounds: int) -> list[int]:
    """Six rounds: the paper's as far as they were run, then evenly filled up."""
    shown = {n for n in ROUNDS_SHOWN if n <= n_rounds} | {n_rounds}
    for i in range(1, N_SHOWN + 1):
        if len(shown) < min(N_SHOWN, n_rounds):
            shown.add(max(1, round(i * n_rounds / N_SHOWN)))
    return sorted(shown)[-N_SHOWN:]


def evaluate(context: Context) -> Outcome:
    from fedce.pictures import study_plots

    planted = {site: context.result(config) for site, config in _planted(context).items()}
    shown = rounds_shown(context.config.n_rounds)
    scores = {rider: _scores(result.values, context.names) for rider, result in planted.items()}
    maps = {
        f"round {n}": [[scores[rider][site][n - 1] for site in context.names] for rider in context.names] for n in shown
    }
    found = {rider: _found(result.values, rider) for rider, result in planted.items()}
    false = sum(_false_alarms(result.values, rider) for rider, result in planted.items())
    honest = context.result(_honest(context))
    false += _false_alarms(honest.values, None)
    top = {rider: max(context.names, key=lambda site: scores[rider][site][-1] or 0.0) for rider in context.names}
    table = Table(
        "alarms",
        "Each site in turn repeats one image.",
        ["free rider", "alarm in round", "site with the highest score at the end", "its own score", "highest other"],
        [
            [
                rider,
                "none" if found[rider] is None else str(found[rider]),
                top[rider],
                scores[rider][rider][-1],
                max(scores[rider][site][-1] or 0.0 for site in context.names if site != rider),
            ]
            for rider in context.names
        ],
        digits=4,
    )
    similarity = {
        rider: {site: _similarities(context.rounds(config), site) for site in context.names}
        for rider, config in _planted(context).items()
    }
    pictures = [
        Picture(
            "heat",
            "Free-rider score (D13), mean of the rounds so far: a row for each training, in which the site of the row "
            "is the free rider; the diagonal should be the darkest.",
            study_plots.heat_maps(maps, context.names).encode(),
            data=Table(
                "heat",
                "Scores.",
                ["round", "free rider", *context.names],
                [
                    [str(n), rider, *(scores[rider][site][n - 1] for site in context.names)]
                    for n in shown
                    for rider in context.names
                ],
                digits=6,
            ),
        ),
        Picture(
            "cosine",
            "Cosine between each site's update and the others' by round, a panel for each free rider (bold).",
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
        ),
    ]
    n_top = sum(top[rider] == rider for rider in context.names)
    caught = [round_no for round_no in found.values() if round_no is not None]
    findings = [
        f"The alarm goes off for {len(caught)} of {len(found)} free riders"
        + (f", in round {max(caught)} at the latest" if caught else "")
        + f"; {false} false alarms.",
        f"The score alone is highest for the free rider in {n_top} of {len(found)} trainings"
        + ("." if n_top == len(found) else ": an honest site whose images nobody else has scores high as well."),
    ]
    return Outcome("free-rider", TITLE, findings, [table], pictures)


def _scores(values: dict[str, Any] | Any, sites: Sequence[str]) -> dict[str, list[float | None]]:
    return {site: values["freerider"][site]["scores"] for site in sites}


def _found(values: Any, rider: str) -> int | None:
    """The round of the first alarm, counted from 1."""
    rounds = [alarm["round_no"] + 1 for alarm in values["freerider"][rider]["alarms"]]
    return min(rounds, default=None)


def _false_alarms(values: Any, rider: str | None) -> int:
    return sum(bool(facts["alarms"]) for site, facts in values["freerider"].items() if site != rider)


def _similarities(rounds: Sequence[Round], site: str) -> list[float | None]:
    return [done.sites[site].similarity if site in done.sites else None for done in rounds]
