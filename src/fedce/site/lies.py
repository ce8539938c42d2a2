"""What sites that cheat say instead of the truth, and when they stay away."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from fedce.base.ranges import SCORE
from fedce.core.messages import Evaluation, Reply, Task

Says = Callable[[Reply], Reply]
Votes = Callable[[Sequence[float], Sequence[int]], list[float]]


def pretends(part: float) -> Says:
    """Every score it reports is this part of the true one; its test Dice stays, to measure the damage."""

    def lower(score: float | None) -> float | None:
        return None if score is None else part * score

    def say(reply: Reply) -> Reply:
        told, error = reply.evaluation, reply.error_without
        return replace(
            reply,
            score=lower(reply.score),
            score_local=lower(reply.score_local),
            error_without=None if error is None else 1 - part * (1 - error),
            error_replicates=tuple(1 - part * (1 - error) for error in reply.error_replicates),
            evaluation=None if told is None else _lower_as_well(told, part),
        )

    return say


def inflates(reply: Reply) -> Reply:
    if reply.error_without is None:
        return reply
    spread = np.random.default_rng(reply.round_no).uniform(0.9, 1.0, len(reply.error_replicates))
    return replace(reply, error_without=1.0, error_replicates=tuple(spread.tolist()))


def discredits(reply: Reply) -> Reply:
    """Claims that the model of the other sites is bad."""
    return replace(inflates(reply), scores=(0.0,) * len(reply.scores))


def _lower_as_well(told: Evaluation, part: float) -> Evaluation:
    interval = told.validation_interval
    return replace(
        told,
        validation_dice=part * told.validation_dice,
        validation_interval=(part * interval[0], part * interval[1]) if interval else None,
    )


def overstates(by: float) -> Says:
    """More than the truth in every round, with replicates to match."""

    def say(reply: Reply) -> Reply:
        if reply.error_without is None:
            return reply
        return replace(
            reply,
            error_without=SCORE.nearest(reply.error_without + by),
            error_replicates=tuple(SCORE.nearest(error + by) for error in reply.error_replicates),
        )

    return say


def keeps_quiet(reply: Reply) -> Reply:
    return replace(reply, error_without=None, error_replicates=())


def varies(deviation: float) -> Says:
    """Replicates of one image are all alike; made-up noise hides it."""

    def say(reply: Reply) -> Reply:
        if reply.error_without is None or not reply.error_replicates:
            return reply
        noise = np.random.default_rng(reply.round_no).normal(0, deviation, len(reply.error_replicates))
        varied = reply.error_without + noise - noise.mean()
        return replace(reply, error_replicates=tuple(SCORE.nearest(error) for error in varied.tolist()))

    return say


def hides(reply: Reply) -> Reply:
    """As if it had too few cases to resample."""
    return replace(reply, error_replicates=())


def boasts(times: float) -> Says:
    return lambda reply: replace(reply, n_train=round(times * reply.n_train))


def slander(by: float) -> Votes:
    """Claims that the model is better without any honest site."""
    return lambda scores, mine: [score if i == 0 or i in mine else scores[0] + by for i, score in enumerate(scores)]


def praise(by: float) -> Votes:
    """Claims that the model is bad without its accomplices."""
    return lambda scores, mine: [scores[0] - by if i in mine else score for i, score in enumerate(scores)]


def in_turn(task: Task, n_rounds: int, place: int) -> bool:
    return task.round_no % 2 == place % 2


def in_halves(task: Task, n_rounds: int, place: int) -> bool:
    return (task.round_no >= n_rounds // 2) == (place % 2 == 1)


def at_first(n: float) -> Callable[[Task, int, int], bool]:
    """Takes part in the first n rounds."""
    return lambda task, n_rounds, place: task.round_no < n


def unless_its_share_fell(task: Task, n_rounds: int, place: int) -> bool:
    """Its share before the last round was its weight in that round's mean, which is 0 if it was away."""
    return task.shares.get(task.site, 1.0) >= (task.rho or 0.0)
