"""The round loop: ask the sites, check what they answer, let the algorithm aggregate. The only one there is."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from math import isinf, sqrt
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from fedce.core.algorithm import Algorithm, State, models_of
from fedce.core.codec import decode, encode
from fedce.core.weights import normalise
from fedce.errors import ReplyError, RunError
from fedce.files import read_tensors, write_tensors
from fedce.guard.statistics import Trial, is_harmful, trial_of, without_statistics
from fedce.messages import Reply, Task
from fedce.params import MAX_EXACT_COUNT, Layout, Params, Vector, inner_products, sketch
from fedce.ranges import LOSS, MAX_REPLICATES, NOVELTY, SCORE, SECONDS, TRAIN_IMAGES

ZERO_UPDATE = "zero update"
MAX_STEPS = 1000.0
"""Times the round's median that a site's new batches may be."""
FAR_STATISTICS = "its running statistics are beyond what images give: they were not used"
HARMFUL_STATISTICS = "with its running statistics the model does worse at the other sites: they were not used"
SEEN_AT_THE_BORDER = (
    ZERO_UPDATE,
    FAR_STATISTICS,
    HARMFUL_STATISTICS,
    "running statistics far from the others', not used",
)
"""Flags of a round; the last is what earlier versions wrote."""

LEFT_OUT = "left out by the experiment"
EXPELLED = "expelled"
ABSENT = "absent"
NOT_DRAWN = "not drawn"
NOT_THERE = "not there when the round began"
NO_REPLY = "no reply"
"""Why a site whose reply was not rejected has no part in a round."""


@dataclass(frozen=True)
class Limits:
    """What the guard asks of a model before the algorithm sees it: it is compared with the round's others."""

    max_length: float = 8.0
    """Reject an update longer than this multiple of the round's median length; inf: never reject."""
    statistics: bool = True
    """Whether running statistics are checked (guard/statistics.py); not where every site keeps its own."""


STANDARD = Limits()


class Engine(Protocol):
    """Carries tasks to sites and replies back; no mathematics and no defaults."""

    def sites(self, known: Sequence[str]) -> tuple[str, ...]:
        """Who is to be asked in the next round: those known so far, and whoever has joined since."""

    def here(self, sites: Sequence[str]) -> tuple[str, ...]:
        """Who of these can be reached now; only they are drawn where not all take part."""

    def ask(self, tasks: Sequence[Task]) -> list[Reply]:
        """Replies in any order, perhaps fewer than tasks. A reply's model is valid until the next training is asked."""


@dataclass(frozen=True)
class Round:
    """What happened in one round."""

    round_no: int
    state: State
    """After the round."""
    asked: tuple[str, ...]
    """Who was to take part."""
    absent: tuple[str, ...]
    """Who could not be drawn."""
    replies: Mapping[str, Reply]
    """Without the models."""
    rejected: Mapping[str, str]
    """Site to reason."""
    flags: Mapping[str, tuple[str, ...]]
    harms: Mapping[str, float]
    """By how much a site's running statistics lower the model's score at the other sites, where that was asked."""
    far: Mapping[str, float]
    """Sites whose running statistics come from no images, and how far they are from the others'."""
    similarity: Mapping[str, float | None]
    """Cosine of each site's update with the others' together, if the free-rider detector is on; None if undefined."""
    sketches: Mapping[str, list[float]]
    """Sketches of the sites' updates, and under "" of the model that they started from, if the detector is on."""
    n_models: int
    """Models that were carried to the sites and back."""
    seconds: float

    @property
    def shares(self) -> Mapping[str, float]:
        return self.state.shares

    @property
    def mean_score(self) -> float:
        """Mean validation score of the model that this round started from."""
        scores = [reply.score for reply in self.replies.values() if reply.score is not None]
        return sum(scores) / len(scores)


@dataclass
class _CheckedAsk:
    """The algorithm's `ask` for one round: passes on what can be used, and notes the rest."""

    engine: Engine
    min_sites: int
    needs_model: bool
    persist: bool
    detect: bool
    shares: Mapping[str, float]
    """Contributions so far."""
    tell_all: bool
    limits: Limits | None
    replies: dict[str, Reply] = field(default_factory=dict)
    rejected: dict[str, str] = field(default_factory=dict)
    flags: dict[str, tuple[str, ...]] = field(default_factory=dict)
    updates: dict[str, Vector] = field(default_factory=dict)
    harms: dict[str, float] = field(default_factory=dict)
    far: Mapping[str, float] = field(default_factory=dict)
    strangers: tuple[str, ...] = ()
    """Sites whose running statistics are not used."""
    n_models: int = 0

    def ask(self, tasks: Sequence[Task]) -> list[Reply]:
        by_site = {
            task.site: replace(
                task,
                persist=self.persist,
                score_local=task.score_local or self.detect,
                shares=told(self.shares, task.site, self.tell_all),
            )
            for task in tasks
        }
        sound: list[Reply] = []
        # Sorted, because floating-point sums depend on order and networks do not keep it.
        for reply in sorted(self.engine.ask(list(by_site.values())), key=lambda reply: reply.site):
            reason = problem_of(reply, by_site.get(reply.site), self.needs_model)
            if reason is None and sound and reply.site == sound[-1].site:
                reason = "replied twice"
            if reason is None:
                sound.append(reply)
            else:
                self.rejected[reply.site] = reason
        outliers = outliers_of(sound, by_site, self.limits.max_length) if self.limits else {}
        self.rejected |= outliers
        usable = [reply for reply in sound if reply.site not in outliers]
        if tasks[0].action == "train":
            usable = self._with_useful_statistics(usable, by_site)
            for reply in usable:
                task = by_site[reply.site]
                if flags := flags_of(reply, task) + self._about_statistics(reply.site):
                    self.flags[reply.site] = flags
                self.replies[reply.site] = replace(reply, params=None)
                if self.detect and reply.params is not None:
                    self.updates[reply.site] = reply.params.trainable - task.params.trainable
        returned = sum(reply.params is not None for reply in usable)
        # Where no model comes back, as in Standalone, none needs to go out either.
        self.n_models += len(tasks) + returned if returned else len(tasks) * len(tasks[0].models)
        if len(usable) < min(self.min_sites, len(tasks)):
            silent = by_site.keys() - self.rejected.keys() - {reply.site for reply in usable}
            reasons = "; ".join(
                f"{site}: {reason}"
                for site, reason in {**self.rejected, **dict.fromkeys(sorted(silent), "no reply")}.items()
            )
            raise ReplyError(
                f"round {tasks[0].round_no + 1}: {len(usable)} usable replies, "
                f"at least {self.min_sites} needed ({reasons})"
            )
        return usable

    def _with_useful_statistics(self, usable: list[Reply], tasks: Mapping[str, Task]) -> list[Reply]:
        """The replies, those whose running statistics harm the others with the round's median ones instead."""
        trained = _trained(usable, tasks)
        if self.limits is None or not self.limits.statistics or not trained:
            return usable
        starts = {site: task.params for site, task in tasks.items()}
        trial = trial_of(trained, starts, weights_before(trained, tasks))
        if trial is None:
            return usable
        self.far = trial.far
        self.harms = trial.harms(self._scores(trial, [tasks[reply.site] for reply in trained]))
        harmful = [site for site, harm in self.harms.items() if is_harmful(harm, not tasks[site].has_its_statistics)]
        self.strangers = (*trial.far, *harmful)
        tamed = without_statistics(trained, self.strangers)
        return [replace(reply, params=tamed.get(reply.site, reply.params)) for reply in usable]

    def _scores(self, trial: Trial, tasks: Sequence[Task]) -> dict[str, tuple[float, ...]]:
        """What the sites of the round score the models of a trial with; a site that does not answer has no vote."""
        if not trial.models:
            return {}
        asked = [replace(task, action="score", models=trial.models, persist=False) for task in tasks]
        self.n_models += len(asked) * len(trial.models)
        answers = {reply.site: reply for reply in self.engine.ask(asked)}
        return {
            task.site: answers[task.site].scores
            for task in asked
            if task.site in answers and problem_of(answers[task.site], task) is None
        }

    def _about_statistics(self, site: str) -> tuple[str, ...]:
        if site in self.far:
            return (FAR_STATISTICS,)
        return (HARMFUL_STATISTICS,) if site in self.strangers else ()


def weights_before(replies: Sequence[Reply], tasks: Mapping[str, Task]) -> dict[str, float]:
    """The sites' weights in the last round's model, to a sum of 1; a site without one counts as an average member."""
    weights = {reply.site: tasks[reply.site].rho or 0.0 for reply in replies}
    known = [weight for weight in weights.values() if weight > 0]
    average = sum(known) / len(known) if known else 1.0
    return normalise({site: weight or average for site, weight in weights.items()})


def told(shares: Mapping[str, float], site: str, tell_all: bool) -> dict[str, float]:
    """What a site learns of the contributions."""
    return dict(shares) if tell_all else {site: shares[site]} if site in shares else {}


def problem_of(reply: Reply, task: Task | None, needs_model: bool = True) -> str | None:
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
    if len(reply.error_replicates) > MAX_REPLICATES:
        return f"sent {len(reply.error_replicates)} replicates of its error, at most {MAX_REPLICATES} are taken"
    if task.action == "evaluate" and (reply.evaluation is None or not reply.evaluation.test_dice_by_class):
        return "sent no evaluation"
    if len(reply.scores) != len(task.models):
        return f"sent {len(reply.scores)} scores for {len(task.models)} models"
    return _problem_of_model(reply.params, task.params.layout) if reply.params is not None else None


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
    """Models that are too far from the round's median, which fewer than three have not."""
    if len(trained := _trained(replies, tasks)) < 3 or isinf(most):
        return {}
    return _odd_counts(trained, tasks) | _too_long(trained, tasks, most)


def _trained(replies: Sequence[Reply], tasks: Mapping[str, Task]) -> list[Reply]:
    return [reply for reply in replies if reply.params is not None and tasks[reply.site].action == "train"]


def _odd_counts(trained: Sequence[Reply], tasks: Mapping[str, Task]) -> dict[str, str]:
    """Counters take their maximum, so that one site's would be everybody's."""
    n_averaged = models_of(trained)[0].layout.n_averaged
    steps = {
        reply.site: float((model.vector[n_averaged:] - tasks[reply.site].params.vector[n_averaged:]).max(initial=0))
        for reply, model in zip(trained, models_of(trained), strict=True)
    }
    allowed = MAX_STEPS * max(median(steps.values()), 1.0)
    reason = f"its model counts more than {MAX_STEPS:g} times as many new batches as the median"
    return {site: reason for site, count in steps.items() if count > allowed}


def _too_long(trained: Sequence[Reply], tasks: Mapping[str, Task], most: float) -> dict[str, str]:
    """More images are more steps: lengths grow about with the root of their number, which is allowed for within limits,
    because the number is the site's own word.
    """
    layout = next(iter(tasks.values())).params.layout
    images = median(reply.n_train for reply in trained)
    rejected = {}
    # Statistics of images differ more from site to site than what is trained.
    for what, part, limit in (
        ("update", slice(0, layout.n_trainable), most),
        ("change of statistics", slice(layout.n_trainable, layout.n_averaged), 20 * most),
    ):
        lengths = {
            reply.site: _length(reply, tasks[reply.site], part) / min(max(sqrt(reply.n_train / images), 0.5), 4.0)
            for reply in trained
        }
        allowed = limit * median(lengths.values())
        for site, length in lengths.items():
            if length > allowed > 0:
                rejected[site] = f"its {what} is more than {limit:g} times as long as the median"
    return rejected


def _length(reply: Reply, task: Task, part: slice) -> float:
    assert reply.params is not None
    with np.errstate(over="ignore"):  # Too long for a number is too long.
        return float(np.linalg.norm(reply.params.vector[part] - task.params.vector[part]))


def _dice_of(reply: Reply) -> Iterator[float | None]:
    if reply.evaluation is not None:
        yield reply.evaluation.validation_dice
        yield reply.evaluation.test_dice_without
        yield from reply.evaluation.test_dice_by_class.values()
    for interval in _intervals_of(reply):
        yield from interval


def _intervals_of(reply: Reply) -> list[tuple[float, float]]:
    told = reply.evaluation
    return [interval for interval in (told.validation_interval, told.test_interval) if interval] if told else []


def flags_of(reply: Reply, task: Task) -> tuple[str, ...]:
    """What a reader of the ledger should look at."""
    if reply.params is not None and np.array_equal(reply.params.trainable, task.params.trainable):
        return (ZERO_UPDATE,)
    return ()


@dataclass(frozen=True)
class Draw:
    """Who takes part in a round where not all do: those who were drawn least often, among equals by lot.

    So all are measured equally often, and anybody who knows the seed can draw again.
    """

    n_sites: int
    seed: int

    def sites(self, draws: Mapping[str, int], round_no: int) -> tuple[str, ...]:
        def place(site: str) -> tuple[int, str]:
            return draws[site], sha256(f"{self.seed}/{round_no}/{site}".encode()).hexdigest()

        return tuple(sorted(sorted(draws, key=place)[: self.n_sites]))


def draws_of(everybody: Iterable[str], draws: Mapping[str, int]) -> dict[str, int]:
    """How often each was drawn; a newcomer counts as one who was drawn least, or it would be in every round."""
    least = min(draws.values(), default=0)
    return {site: draws.get(site, least) for site in everybody}


def rounds(
    algorithm: Algorithm,
    state: State,
    engine: Engine,
    n_rounds: int,
    min_sites: int = 2,
    persist: Callable[[int], bool] = lambda round_no: False,
    detect: bool = False,
    leave_out: Sequence[str] = (),
    tell_all: bool = False,
    limits: Limits | None = STANDARD,
    draw: Draw | None = None,
) -> Iterator[Round]:
    """Run the rounds that are left; `persist` says before which rounds' end the sites save their memory."""
    while state.round_no < n_rounds:
        start = perf_counter()
        everybody = tuple(site for site in engine.sites(state.sites) if site not in (*leave_out, *state.expelled))
        draws = draws_of(everybody, state.draws)
        # A round that is too small without those who are away waits for them, as it does where nobody is drawn.
        here = engine.here(everybody) if draw else everybody
        here = here if len(here) >= min_sites else everybody
        asked = draw.sites({site: draws[site] for site in here}, state.round_no) if draw else everybody
        checked = _CheckedAsk(
            engine,
            min_sites,
            algorithm.traits.exchanges,
            persist(state.round_no),
            detect,
            state.shares,
            tell_all,
            limits,
        )
        before = {"": sketch(state.params.trainable)} if detect else {}
        after = algorithm.round(replace(state, sites=asked), checked.ask)
        expelled = (*state.expelled, *(site for site in asked if site not in after.sites))
        sites = tuple(site for site in everybody if site not in expelled)
        round_no, state = state.round_no, replace(after, sites=sites, expelled=expelled, strangers=checked.strangers)
        if draw:
            state = replace(state, draws={**draws, **{site: draws[site] + 1 for site in asked}})
        similarity = similarity_to_others(checked.updates, state.rho)
        yield Round(
            round_no=round_no,
            state=state,
            asked=asked,
            absent=tuple(site for site in everybody if site not in here),
            replies=checked.replies,
            rejected=checked.rejected,
            flags=checked.flags,
            harms=checked.harms,
            far=checked.far,
            similarity=similarity,
            sketches={site: sketch(update) for site, update in checked.updates.items()} | before,
            n_models=checked.n_models,
            seconds=perf_counter() - start,
        )


def missing_of(done: Round, members: Iterable[str], leave_out: Sequence[str]) -> dict[str, str]:
    """Members who have no part in a round, and the reason; those whose reply was rejected have theirs already."""
    reasons = {
        LEFT_OUT: leave_out,
        NO_REPLY: done.asked,
        EXPELLED: done.state.expelled,
        ABSENT: done.absent,
        NOT_DRAWN: done.state.draws,
    }
    return {
        site: next((reason for reason, sites in reasons.items() if site in sites), NOT_THERE)
        for site in members
        if site not in (*done.replies, *done.rejected)
    }


def similarity_to_others(updates: Mapping[str, Vector], rho: Mapping[str, float]) -> dict[str, float | None]:
    """cos(delta_i, sum of rho_j delta_j over the others); None where either has no direction."""
    if not updates:
        return {}
    products = inner_products(list(updates.values()))
    c = np.array([rho.get(site, 0.0) for site in updates])
    result: dict[str, float | None] = {}
    for i, site in enumerate(updates):
        others = np.where(np.arange(len(c)) == i, 0.0, c)
        norms = np.sqrt(products[i, i] * max(float(others @ products @ others), 0.0))
        result[site] = float(products[i] @ others / norms) if norms > 0 else None
    return result


def evaluate(
    algorithm: Algorithm, state: State, engine: Engine, sites: Iterable[str], tell_all: bool = False
) -> tuple[dict[str, Reply], dict[str, str]]:
    """These sites' validation and test Dice of the model that each would use; they also learn their final share.

    What can't be used comes second, with the reason.
    """
    tasks = [
        replace(algorithm.task(state, site), action="evaluate", shares=told(state.shares, site, tell_all))
        for site in sites
    ]
    by_site, usable, rejected = {task.site: task for task in tasks}, {}, {}
    for reply in sorted(engine.ask(tasks), key=lambda reply: reply.site):
        if (reason := problem_of(reply, by_site.get(reply.site))) is None:
            usable[reply.site] = reply
        else:
            rejected[reply.site] = reason
    return usable, rejected


def save_state(path: Path, state: State, entry: Mapping[str, Any] | None = None) -> None:
    """The server between two rounds, and the line that the ledger gets for the round before."""
    about, arrays = encode(state)
    write_tensors(path, arrays, {"state": about, "entry": entry, "layout": state.params.layout.digest})


def run_again(checkpoint: Path) -> str:
    """What to do about a checkpoint that can't be read."""
    return f"; delete {checkpoint} and resume: the rounds are run again, and checked against the ledger"


def load_state(path: Path, like: State) -> State:
    return load_saved(path, like)[0]


def load_saved(path: Path, like: State) -> tuple[State, dict[str, Any] | None]:
    """The state, of the same kind as the initial one, and the ledger's line of its last round."""
    arrays, about = read_tensors(path, run_again(path.parent))
    layout = like.params.layout
    if about.get("layout") != layout.digest:
        raise RunError(f"{path} holds another network than [model] in the run's config.toml describes; was it edited?")
    try:
        state = decode(like, about.get("state"), arrays, layout)
    except ValueError as error:
        raise RunError(f"{path} is no checkpoint that can be used ({error}){run_again(path.parent)}") from None
    return state, about.get("entry")
