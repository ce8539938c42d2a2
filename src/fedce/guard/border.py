"""Checks a reply before an algorithm sees it: its form, its ranges, and how it compares with the round's others."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isinf
from statistics import median

import numpy as np

from fedce.base.ranges import (
    GAIN,
    IMAGES,
    LOSS,
    MAX_METRICS,
    METRIC,
    N_REPLICATES,
    NOVELTY,
    SCORE,
    SECONDS,
    TRAIN_IMAGES,
)
from fedce.core.algorithm import models_of
from fedce.core.messages import Evaluation, Reply, Task
from fedce.core.params import MAX_EXACT_COUNT, Layout, Params
from fedce.core.recorded import Flag
from fedce.core.scoring import MIN_CASES
from fedce.core.weights import normalise
from fedce.guard.sign import ZERO_UPDATE

FURTHER = 20.0
"""Running statistics may go this many times as far as updates."""
MAX_STEPS = 1000.0
"""A site may count at most this many times the round's median of new batches."""
FAR_STATISTICS = Flag("far statistics", "its running statistics are beyond what images give: they were not used")
HARMFUL_STATISTICS = Flag(
    "harmful statistics", "with its running statistics the model does worse at the other sites: they were not used"
)
SHORTENED = Flag("shortened", "its update was far longer than the others' and was shortened")
SEEN_AT_THE_BORDER = (
    ZERO_UPDATE,
    SHORTENED,
    FAR_STATISTICS,
    HARMFUL_STATISTICS,
    Flag("far statistics", "running statistics far from the others', not used"),
)
"""Flags of a round; the last one is from earlier versions."""


@dataclass(frozen=True)
class Limits:
    """What the guard checks in a model before the algorithm sees it, by comparison with the round's other models."""

    max_length: float = 6.0
    """Shorten an update that is longer than this multiple of the round's median length; inf: never."""
    statistics: bool = True
    """Whether running statistics are checked (guard/statistics.py); off if every site keeps its own."""


STANDARD = Limits()
SCORES_NOTHING = "it scores no models on its images"
"""A site that does not want to score others' models answers with no score."""


def weights_before(replies: Sequence[Reply], tasks: Mapping[str, Task]) -> dict[str, float]:
    """The sites' weights in the last round's model, scaled to a sum of 1; a site without a weight counts as average."""
    weights = {reply.site: tasks[reply.site].rho or 0.0 for reply in replies}
    known = [weight for weight in weights.values() if weight > 0]
    average = sum(known) / len(known) if known else 1.0
    return normalise({site: weight or average for site, weight in weights.items()})


def problem_of(reply: Reply, task: Task | None, needs_model: bool = True, layout: Layout | None = None) -> str | None:
    """Why a reply can't be used, or None (D11)."""
    if task is None:
        return "was not asked"
    if reply.round_no != task.round_no:
        return f"replied for round {reply.round_no} in round {task.round_no}"
    if not isinstance(reply.n_train, int) or reply.n_train not in TRAIN_IMAGES:
        return f"claims {reply.n_train} training images"
    if task.action == "train" and needs_model and reply.params is None:
        return "sent no model"
    if task.action == "train" and reply.score is None:
        return "sent no validation score"
    for name, value, allowed in (
        ("score", reply.score, SCORE),
        ("error", reply.error_without, SCORE),
        ("novelty", reply.novelty, NOVELTY),
        ("loss", reply.loss, LOSS),
        ("loss", reply.loss_before, LOSS),
        ("score of its own model", reply.score_local, SCORE),
        ("number of seconds", reply.seconds, SECONDS),
        *(("score", score, SCORE) for score in reply.scores),
        *(("error", error, SCORE) for error in reply.error_replicates),
        *(("Dice", value, SCORE) for value in _dice_of(reply)),
    ):
        if value is not None and value not in allowed:
            return f"{name} {value} is not in {allowed}"
    if any(low > high for low, high in _intervals_of(reply)):
        return "sent an interval whose low end is above its high end"
    if len(reply.error_replicates) not in (0, N_REPLICATES):
        return f"sent {len(reply.error_replicates)} replicates of its error, and {N_REPLICATES} were asked for"
    if task.action == "evaluate" and (reply.evaluation is None or not reply.evaluation.test_dice_by_class):
        return "sent no evaluation"
    if reply.evaluation is not None and (problem := _problem_of_metrics(reply.evaluation)):
        return problem
    if reply.evaluation is not None and (problem := _problem_of_gain(reply.evaluation)):
        return problem
    if task.models and not reply.scores:
        return SCORES_NOTHING
    if len(reply.scores) != len(task.models):
        return f"sent {len(reply.scores)} scores for {len(task.models)} models"
    return _problem_of_model(reply.params, layout or task.params.layout) if reply.params is not None else None


def replicates_missing(reply: Reply, n_cases: int) -> str | None:
    """Why an error is not supported: replicates hide nothing only if a site can't choose to leave them out."""
    if reply.error_without is None or reply.error_replicates or n_cases < MIN_CASES:
        return None
    return f"sent no replicates of its error; with {n_cases} validation cases it has {N_REPLICATES}"


def _problem_of_model(params: Params, layout: Layout) -> str | None:
    if params.layout != layout:
        return "its model has another layout; build it from the same [model] table as the server's"
    if not np.isfinite(params.vector).all():
        return "its model holds values that are not finite"
    if any((params.vector[at_variance] < 0).any() for _, at_variance in layout.running_statistics):
        return "its model holds a negative variance"
    counts = params.vector[layout.n_averaged :]
    if ((counts < 0) | (counts > MAX_EXACT_COUNT) | (counts != np.floor(counts))).any():
        return f"its model counts batches in other than whole numbers up to {MAX_EXACT_COUNT}"
    return None


def outliers_of(replies: Sequence[Reply], tasks: Mapping[str, Task], most: float) -> dict[str, str]:
    """Models whose counts or statistics are too far from the round's median; fewer than three have no median."""
    if len(trained := trained_of(replies, tasks)) < 3 or isinf(most):
        return {}
    layout = next(iter(tasks.values())).params.layout
    # Running statistics differ more from site to site than trained values.
    limit, statistics = FURTHER * most, slice(layout.n_trainable, layout.n_averaged)
    reason = f"its change of statistics is more than {limit:g} times as long as the median"
    far = dict.fromkeys(_too_long(trained, tasks, statistics, limit), reason)
    endless = {
        reply.site: "its update is too long for its length to be measured"
        for reply in trained
        if isinf(_length(reply, tasks[reply.site], slice(0, layout.n_trainable)))
    }
    return _odd_counts(trained, tasks) | far | endless


def shortened(replies: Sequence[Reply], tasks: Mapping[str, Task], most: float) -> dict[str, Params]:
    """Sites whose update is longer than `most` medians, with their models at this length.

    More images are more steps and a longer update, so a large honest site may come here. Nothing that a site says of
    itself makes its update's limit longer.
    """
    if len(trained := trained_of(replies, tasks)) < 3 or isinf(most):
        return {}
    part = slice(0, next(iter(tasks.values())).params.layout.n_trainable)
    models = {reply.site: reply.params for reply in trained if reply.params is not None}
    found = {}
    for site, factor in _too_long(trained, tasks, part, most).items():
        vector, start = models[site].vector.copy(), tasks[site].params.vector[part]
        vector[part] = start + np.float32(factor) * (vector[part] - start)
        found[site] = Params(models[site].layout, vector)
    return found


def trained_of(replies: Sequence[Reply], tasks: Mapping[str, Task]) -> list[Reply]:
    return [reply for reply in replies if reply.params is not None and tasks[reply.site].action == "train"]


def _odd_counts(trained: Sequence[Reply], tasks: Mapping[str, Task]) -> dict[str, str]:
    """Counters take their maximum, so one site's counter would become that of all sites."""
    n_averaged = models_of(trained)[0].layout.n_averaged
    steps = {
        reply.site: float((model.vector[n_averaged:] - tasks[reply.site].params.vector[n_averaged:]).max(initial=0))
        for reply, model in zip(trained, models_of(trained), strict=True)
    }
    allowed = MAX_STEPS * max(median(steps.values()), 1.0)
    reason = f"its model counts more than {MAX_STEPS:g} times as many new batches as the median"
    return {site: reason for site, count in steps.items() if count > allowed}


def _too_long(trained: Sequence[Reply], tasks: Mapping[str, Task], part: slice, limit: float) -> dict[str, float]:
    """Sites whose change of this part is too long, and the factor that brings it to the limit."""
    lengths = {reply.site: _length(reply, tasks[reply.site], part) for reply in trained}
    allowed = limit * median(lengths.values())
    return {site: allowed / length for site, length in lengths.items() if length > allowed > 0}


def _length(reply: Reply, task: Task, part: slice) -> float:
    assert reply.params is not None
    with np.errstate(over="ignore"):  # A length that overflows is too long.
        return float(np.linalg.norm(reply.params.vector[part] - task.params.vector[part]))


def _dice_of(reply: Reply) -> Iterator[float | None]:
    if reply.evaluation is not None:
        yield reply.evaluation.validation_dice
        yield reply.evaluation.test_dice_without
        yield from reply.evaluation.test_dice_by_class.values()
        if (beside := reply.evaluation.beside) is not None:
            yield from (beside.common, beside.personal, beside.alone)
    for interval in _intervals_of(reply):
        yield from interval


def _problem_of_metrics(told: Evaluation) -> str | None:
    """Why the metrics can't be used, or None; every metric is checked alike."""
    if len(told.metrics) > MAX_METRICS:
        return f"sent {len(told.metrics)} metrics, at most {MAX_METRICS} are taken"
    for name, found in told.metrics.items():
        if not found.by_class.keys() == found.undefined.keys() == told.test_dice_by_class.keys():
            return f"{name} is not of the classes that its Dice is of"
        for value in found.by_class.values():
            if value is not None and value not in METRIC:
                return f"{name} {value} is not in {METRIC}"
        if any(not isinstance(n, int) or n not in IMAGES for n in found.undefined.values()):
            return f"{name} is undefined in a number of images that is not in {IMAGES}"
        if found.unit not in ("", "mm", "px"):
            return f"{name} has the unit {found.unit!r}, expected mm, px or nothing"
    return None


def _intervals_of(reply: Reply) -> list[tuple[float, float]]:
    """The intervals of Dice."""
    told = reply.evaluation
    if told is None:
        return []
    alone = told.beside.alone_interval if told.beside else None
    return [interval for interval in (told.validation_interval, told.test_interval, alone) if interval]


def _problem_of_gain(told: Evaluation) -> str | None:
    interval = told.beside.gain_interval if told.beside else None
    if interval and not (interval[0] in GAIN and interval[1] in GAIN and interval[0] <= interval[1]):
        return f"sent the interval {interval} of a gain, which is not in {GAIN} or ends before it begins"
    return None


def flags_of(reply: Reply, task: Task) -> tuple[Flag, ...]:
    """Flags for readers of the ledger."""
    if reply.params is not None and np.array_equal(reply.params.trainable, task.params.trainable):
        return (ZERO_UPDATE,)
    return ()
