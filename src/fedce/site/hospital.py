"""A hospital: its data behind the Site protocol, and the memory that it keeps between rounds."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from fedce.base.errors import RunError
from fedce.base.files import Arrays, read_tensors, write_bytes, write_tensors
from fedce.base.ranges import N_REPLICATES, SCORE
from fedce.base.tables import Pack
from fedce.core.algorithm import Algorithm
from fedce.core.codec import decode, encode
from fedce.core.messages import CaseScores, Evaluation, Measured, Member, Reply, Task, Unit
from fedce.core.packing import rounded
from fedce.core.params import Layout, Params, Vector, completed, part_of
from fedce.core.scoring import MIN_CASES, Floats, Grouping, dice_interval
from fedce.core.site import Compared, Memory, Moments, Pull, Site, Trained, round_seed
from fedce.data import SiteData
from fedce.learning.batches import Images
from fedce.learning.learner import Learner, check_finite
from fedce.learning.metrics import DICE, DICE_ALONE, Masks, Measures
from fedce.site.own import ForItself, step_alone, with_own_models

NOTHING_MORE = ForItself()
"""Bootstrap samples of the validation cases: a few more numbers per round, for honest intervals."""


def member_of(data: SiteData, classes: Mapping[str, Sequence[int]]) -> Member:
    """What a site says of its data."""
    return Member(
        name=data.name,
        **{f"n_{part}": n for part, n in data.n_by_part.items()},
        shape=data.shape,
        classes={name: tuple(values) for name, values in classes.items()},
        labelled=() if data.labelled is None else tuple(list(classes)[i] for i in data.labelled),
        fingerprint=data.fingerprint,
        mask_values=data.train_values,
        volumes=data.has_volumes,
        modalities=data.modalities,
        **{f"n_{part}_cases": n for part, n in data.n_cases_by_part.items()},
    )


def images_of(data: SiteData, rows: NDArray[np.int64], learner: Learner) -> Images:
    """Some of a site's images, or all slices of some of its volumes, as the network sees them."""
    if data.patch:
        return learner.volumes(data.images, data.masks, data.stacks(rows), data.labelled)
    return learner.batch(data.images[rows], data.masks[rows], data.labelled)


class Hospital:
    """One site's images, and a network to use."""

    def __init__(
        self,
        data: SiteData,
        learner: Learner,
        class_names: tuple[str, ...],
        seed: int,
        measures: Measures = DICE_ALONE,
    ) -> None:
        self.data = data
        self.learner = learner
        self.labelled = tuple(range(len(class_names))) if data.labelled is None else data.labelled
        self.class_names = tuple(class_names[i] for i in self.labelled)
        """The classes that the site labels; scores leave the others out."""
        self.seed = seed
        self.measures = measures
        self._validated: list[tuple[ref[Params], Floats]] = []

    @property
    def name(self) -> str:
        return self.data.name

    @property
    def n_train(self) -> int:
        return self.data.n_by_part["train"]

    # Each split becomes tensors at its first use, in the process that uses it.
    @cached_property
    def _train(self) -> Images:
        return self._batch(self.data.split.train)

    @cached_property
    def _validation(self) -> "_Scored":
        return self._scored(self.data.split.validation)

    @cached_property
    def _test(self) -> "_Scored":
        return self._scored(self.data.split.test)

    def _batch(self, rows: NDArray[np.int64]) -> Images:
        return images_of(self.data, rows, self.learner)

    def _scored(self, rows: NDArray[np.int64]) -> "_Scored":
        items, cases = self.data.items, self.data.cases
        return _Scored(self._batch(rows), Grouping.of([items[row] for row in rows], [cases[row] for row in rows]))

    def _dice(self, models: Sequence[Params], part: "_Scored") -> list[Floats]:
        """For each model, Dice by (case, labelled class)."""
        found = self.learner.counts(models, part.batch)
        return [part.grouping.dice(counts)[:, list(self.labelled)] for counts in found]

    def train(self, params: Params, round_no: int, moments: Moments, pull: Pull | None = None) -> Trained:
        seed, rate = round_seed(self.seed, self.name, round_no), self.learner.schedule.rate(round_no)
        trained = self.learner.train(params, self._train, seed, moments, pull, rate)
        check_finite(self.name, trained)
        return trained

    def loss(self, params: Params) -> float:
        return self.learner.mean_loss(params, self._train)

    def gradient(self, params: Params) -> tuple[float, Vector]:
        """Mean loss on the training split as training sees it, and its gradient."""
        return self.learner.gradient(params, self._train)

    def score(self, params: Params) -> float:
        return self.scores([params])[0]

    def scores(self, models: Sequence[Params]) -> tuple[float, ...]:
        return tuple(float(dice.mean()) for dice in self._validate(models))

    def score_replicates(self, params: Params) -> tuple[float, ...]:
        if self._validation.grouping.n_cases < MIN_CASES:
            return ()
        # The fractions of a sample sum to 1 only up to rounding.
        return tuple(SCORE.nearest(score) for score in (self._resampling @ self._validate([params])[0]).tolist())

    def _validate(self, models: Sequence[Params]) -> list[Floats]:
        """For each model, Dice of each validation case. Kept for the last models, without keeping the models alive."""
        known = {id(model): dice for kept, dice in self._validated if (model := kept()) is not None}
        if new := list({id(model): model for model in models if id(model) not in known}.values()):
            dice = [by_class.mean(axis=1) for by_class in self._dice(new, self._validation)]
            self._validated = [(ref(model), found) for model, found in zip(new, dice, strict=True)]
            known |= dict(zip(map(id, new), dice, strict=True))
        return [known[id(model)] for model in models]

    @cached_property
    def _resampling(self) -> Floats:
        """How often each case is in each bootstrap sample, as a fraction of the sample."""
        n = self._validation.grouping.n_cases
        rng = np.random.default_rng(round_seed(0, self.name, 0))
        fractions: Floats = rng.multinomial(n, np.full(n, 1 / n), size=N_REPLICATES) / n
        return fractions

    def evaluate(self, params: Params, without: Params | None) -> Evaluation:
        tested, seed = self.test(params), round_seed(0, self.name, 0)
        return Evaluation(
            validation_dice=self.score(params),
            test_dice_by_class=tested.dice_by_class,
            test_dice_without=float(self._dice([without], self._test)[0].mean()) if without else None,
            validation_interval=dice_interval(self._validate([params])[0], seed),
            test_interval=tested.dice_interval,
            metrics=tested.metrics,
            cases=tested.cases,
        )

    def test(self, params: Params) -> "Tested":
        """Dice and the other metrics on the test cases."""
        (dice,), seed = self._dice([params], self._test), round_seed(0, self.name, 0)
        measured = self._measured(params, seed) if self.measures.metrics else {}
        metrics = {name: found for name, (found, _) in measured.items()}
        by_case = {DICE: dice, **{name: values for name, (_, values) in measured.items()}}
        unit: Unit = next((found.unit for found in metrics.values() if found.unit), "")
        cases = list(dict.fromkeys(self.data.cases[row] for row in self.data.split.test))
        return Tested(
            dice_by_class=dict(zip(self.class_names, dice.mean(axis=0).tolist(), strict=True)),
            dice_interval=dice_interval(dice.mean(axis=1), seed),
            metrics=metrics,
            cases=tuple(
                CaseScores(case, name, {metric: _known(values[i, k]) for metric, values in by_case.items()}, unit)
                for i, case in enumerate(cases)
                for k, name in enumerate(self.class_names)
            ),
        )

    def test_dice(self, params: Params) -> float:
        return float(self._tested(params)[0].mean())

    def compare(self, params: Params, other: Params | None) -> Compared:
        if other is None:
            return Compared()
        here, there = self._tested(params, other)
        seed = round_seed(0, self.name, 0)
        return Compared(float(there.mean()), dice_interval(there, seed), dice_interval(here - there, seed))

    def _tested(self, *models: Params) -> list[Floats]:
        """For each model, Dice of each test case."""
        return [dice.mean(axis=1) for dice in self._dice(models, self._test)]

    def adapted(self, params: Params) -> Params:
        return self.learner.adapted(params, self._train)

    def _measured(self, params: Params, seed: int) -> dict[str, tuple[Measured, Floats]]:
        """The metrics other than Dice, on the test cases: their means, and their values by (case, class)."""
        own = list(self.labelled)
        predicted = self.learner.masks(params, self._test.batch)[:, own]
        truth = self._test.batch.masks[:, own].cpu()
        masks = [Masks.of(predicted[rows], truth[rows], self._voxel(rows[0])) for rows in self._test.grouping.members]
        return self.measures.measure(masks, self._test.grouping, self.class_names, seed)

    def _voxel(self, place: np.int64) -> tuple[float, float, float] | None:
        """Millimetres between the voxels of the image or volume at this place of the test split."""
        origins = self.data.origins
        return origins[self.data.split.test[place]].voxel if origins else None


@dataclass(frozen=True)
class Tested:
    """How well a model does on a site's test cases."""

    dice_by_class: dict[str, float]
    dice_interval: tuple[float, float] | None
    metrics: dict[str, Measured]
    """Metrics other than Dice, by name."""
    cases: tuple[CaseScores, ...]


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


@dataclass(frozen=True)
class _Scored:
    """A split on which models are scored."""

    batch: Images
    grouping: Grouping


def perform(
    algorithm: Algorithm,
    hospital: Site,
    task: Task,
    memory: Memory | None,
    initial: Params | None = None,
    wanted: ForItself = NOTHING_MORE,
    pack: Pack = "none",
) -> tuple[Reply, Memory | None]:
    """What a site does with a task, on any engine.

    `initial` is the network as it was built. If some of its entries stay at the site, tasks come without them, and the
    algorithm sees models that are completed with the site's own entries; so no algorithm needs to know of this. Nor
    does it know what the site does for itself (`wanted`).
    """
    start, before = perf_counter(), memory
    initial = initial or task.params
    exchanged = task.params.layout
    whole = task if exchanged == initial.layout else _completed(hospital, task, memory, initial)
    reply, memory = _performed(algorithm, hospital, whole, memory)
    if task.action == "evaluate":
        if whole is not task:  # At the end, a site sends the model that it uses.
            reply = replace(reply, params=reply.params or whole.params)
        if wanted:
            reply = with_own_models(hospital, whole, memory, reply, wanted)
    elif task.action == "train":
        if reply.params is not None:
            reply = replace(reply, params=part_of(reply.params, exchanged))
            if pack == "fp16":
                reply, memory = _in_halves(hospital, task, reply, memory, before)
        if wanted.alone and memory is not None:
            memory = replace(memory, solo=step_alone(hospital, whole, before, initial))
    return replace(reply, seconds=perf_counter() - start), memory


def _in_halves(
    hospital: Site, task: Task, reply: Reply, memory: Memory | None, before: Memory | None
) -> tuple[Reply, Memory | None]:
    """The reply with an update of 16-bit numbers; all that the site keeps and says is about the model that it sends."""
    assert reply.params is not None
    sent, rest = rounded(task.params, reply.params, before.rest if before else None)
    if memory is None:
        return replace(reply, params=sent), None
    memory = replace(memory, params=completed(sent, memory.params), rest=rest)
    score = reply.score_local if reply.score_local is None else hospital.score(memory.params)
    return replace(reply, params=sent, score_local=score), memory


def _completed(hospital: Site, task: Task, memory: Memory | None, initial: Params) -> Task:
    """The task with whole models: missing entries are the site's own."""
    own = memory.params if memory else initial
    if memory is None and task.round_no > 0:
        # The model is no longer the initial one, so statistics of the initial one would not fit it.
        own = hospital.adapted(completed(task.params, initial))
    models = tuple(completed(model, own) for model in task.models)
    return replace(task, params=completed(task.params, own), models=models)


def _performed(algorithm: Algorithm, hospital: Site, task: Task, memory: Memory | None) -> tuple[Reply, Memory | None]:
    if task.action == "evaluate":
        reply = algorithm.evaluate(hospital, task, memory)
    elif task.action == "score":
        scores = hospital.scores(task.models)
        reply = Reply(hospital.name, task.round_no, hospital.n_train, scores=scores)
    else:
        reply, memory = algorithm.local(hospital, task, memory)
    return reply, memory


def memory_arrays(memory: Memory) -> tuple[Arrays, dict[str, Any]]:
    """A memory as arrays and a JSON value."""
    about, arrays = encode(memory)
    return arrays, {"memory": about, "layout": memory.params.layout.digest}


def memory_from(arrays: Arrays, about: dict[str, Any], layout: Layout, keeps: Any) -> Memory:
    """The inverse of `memory_arrays`; `keeps` is `Algorithm.keeps`."""
    like = Memory(0, Params(layout, arrays["/params"]), own=keeps if about["memory"]["own"] is not None else None)
    # Earlier versions wrote no rest.
    return decode(like, {"rest": None, **about["memory"]}, arrays, layout)


class MemoryFiles:
    """A site's memory on its own disk: the last two that were saved, so that a resumed server finds its round.

    `drawn` is the folder for memories from before rounds that are drawn for an audit.
    """

    def __init__(
        self, folder: Path, layout: Layout, keeps: Any = None, hint: str = "", drawn: Path | None = None
    ) -> None:
        self.folder = folder
        self.drawn = drawn or folder / "drawn"
        self.layout = layout
        self.keeps = keeps
        self.hint = hint or f"; delete {folder}: the site's next error is then not measured"

    def load(self, before: int) -> Memory | None:
        """The newest memory of a round before `before`, or None.

        Later memories are of rounds that a kill undid: the server never learned of them. They must not count among the
        last two.
        """
        for undone in [path for path in self._files() if path >= self._path(before)]:
            undone.unlink()
        return self.newest()

    def newest(self) -> Memory | None:
        """The newest memory, or None."""
        return self._read(files[-1]) if (files := self._files()) else None

    def before(self, round_no: int) -> Memory | None:
        """The memory from before a drawn round; None if none was kept."""
        return self._read(path) if (path := self.drawn / _name_of(round_no)).exists() else None

    def _read(self, path: Path) -> Memory:
        arrays, about = read_tensors(path, self.hint)
        if about.get("layout") != self.layout.digest:
            raise RunError(f"{path} is of another network; was [model] changed?")
        try:
            return memory_from(arrays, about, self.layout, self.keeps)
        except (LookupError, ValueError, TypeError) as error:
            raise RunError(f"{path} can't be used as a memory ({error}){self.hint}") from None

    def keep(self, drawn: Collection[int], last: Memory | None) -> None:
        """Keep the memory from before the site's last round, if that round was drawn; `last` is the memory after it."""
        if last is None or last.round_no not in drawn or (kept := self.drawn / _name_of(last.round_no)).exists():
            return
        if before := [path for path in self._files() if path < self._path(last.round_no)]:
            write_bytes(kept, before[-1].read_bytes())

    def save(self, memory: Memory) -> None:
        write_tensors(self._path(memory.round_no), *memory_arrays(memory))
        for old in self._files()[:-2]:
            old.unlink()

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("round-*.safetensors"))

    def _path(self, round_no: int) -> Path:
        return self.folder / _name_of(round_no)


def _name_of(round_no: int) -> str:
    return f"round-{round_no:06d}.safetensors"
