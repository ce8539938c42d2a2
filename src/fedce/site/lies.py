"""What sites that cheat say instead of the truth, and when they stay away."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedce.base.ranges import SCORE
from fedce.core.messages import Evaluation, Reply, Task

OVERSTATED = 0.2
"""What is added to an error, and to a score that is lied about."""
BOAST = 16
"""Factor on the number of training images."""
FIRST_ROUNDS = 3
"""A leaver takes part in this many rounds."""


def pretends(reply: Reply) -> Reply:
    """Every score it reports is half of the true one; its test Dice stays, to measure the damage."""
    told = reply.evaluation
    return replace(
        reply,
        score=_half(reply.score),
        score_local=_half(reply.score_local),
        error_without=None if reply.error_without is None else 1 - (1 - reply.error_without) / 2,
        error_replicates=tuple(1 - (1 - error) / 2 for error in reply.error_replicates),
        evaluation=None if told is None else _half_as_well(told),
    )


def inflates(reply: Reply) -> Reply:
    if reply.error_without is None:
        return reply
    spread = np.random.default_rng(reply.round_no).uniform(0.9, 1.0, len(reply.error_replicates))
    return replace(reply, error_without=1.0, error_replicates=tuple(spread.tolist()))


def discredits(reply: Reply) -> Reply:
    """Claims that the model of the other sites is bad."""
    return replace(inflates(reply), scores=(0.0,) * len(reply.scores))


def _half_as_well(told: Evaluation) -> Evaluation:
    interval = told.validation_interval
    return replace(
        told,
        validation_dice=told.validation_dice / 2,
        validation_interval=(interval[0] / 2, interval[1] / 2) if interval else None,
    )


def _half(score: float | None) -> float | None:
    return None if score is None else score / 2


def overstates(reply: Reply) -> Reply:
    """A little more than the truth in every round, with replicates to match."""
    if reply.error_without is None:
        return reply
    return replace(
        reply,
        error_without=SCORE.nearest(reply.error_without + OVERSTATED),
        error_replicates=tuple(SCORE.nearest(error + OVERSTATED) for error in reply.error_replicates),
    )


def keeps_quiet(reply: Reply) -> Reply:
    return replace(reply, error_without=None, error_replicates=())


def varies(reply: Reply) -> Reply:
    """Replicates of one image are all alike; made-up noise hides it."""
    if reply.error_without is None or not reply.error_replicates:
        return reply
    noise = np.random.default_rng(reply.round_no).normal(0, 0.02, len(reply.error_replicates))
    varied = reply.error_without + noise - noise.mean()
    return replace(reply, error_replicates=tuple(SCORE.nearest(error) for error in varied.tolist()))


def hides(reply: Reply) -> Reply:
    """As if it had too few cases to resample."""
    return replace(reply, error_replicates=())


def boasts(reply: Reply) -> Reply:
    return replace(reply, n_train=BOAST * reply.n_train)


def slander(scores: Sequence[float], mine: Sequence[int]) -> list[float]:
    """Claims that the model is better without any honest site."""
    return [score if i == 0 or i in mine else scores[0] + OVERSTATED for i, score in enumerate(scores)]


def praise(scores: Sequence[float], mine: Sequence[int]) -> list[float]:
    """Claims that the model is bad without its accomplices."""
    return [scores[0] - OVERSTATED if i in mine else score for i, score in enumerate(scores)]


def in_turn(task: Task, n_rounds: int, place: int) -> bool:
    return task.round_no % 2 == place % 2


def in_halves(task: Task, n_rounds: int, place: int) -> bool:
    return (task.round_no >= n_rounds // 2) == (place % 2 == 1)


def at_first(task: Task, n_rounds: int, place: int) -> bool:
    return task.round_no < FIRST_ROUNDS


def unless_its_share_fell(task: Task, n_rounds: int, place: int) -> bool:
    """Its share before the last round was its weight in that round's mean, which is 0 if it was away."""
    return task.shares.get(task.site, 1.0) >= (task.rho or 0.0)
