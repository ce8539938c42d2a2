"""Lets a site do again what it did in the rounds that were drawn for an audit, from its images and its own memory."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedce import algorithms
from fedce.base.config import Config
from fedce.base.errors import RunError
from fedce.base.files import digest_of, read_tensors
from fedce.core.messages import Reply, Task
from fedce.core.params import Layout, Params, Vector, part_of, shared_layout
from fedce.core.site import Memory
from fedce.data import SiteData
from fedce.data.site import with_n_channels
from fedce.learning.learner import Learner, learner_for
from fedce.questions.loading import Loaded
from fedce.record.drawn import Stretch, stretches
from fedce.record.entries import Round
from fedce.record.folder import RunFolder
from fedce.site.hospital import Hospital, MemoryFiles, perform
from fedce.site.wire import ReplyForm

TOLERANCES: Mapping[str, float] = {
    "score": 0.005,
    "error without it": 0.005,
    "replicates of the error": 0.01,
    "score after training": 0.02,
    "loss": 0.02,
    "loss before training": 0.02,
    "update": 0.2,
    "change of running statistics": 0.2,
}
"""By how much what a site said may differ from what its images give, because two machines round differently
(benchmarks/audit_tolerance.py). Updates and statistics: length of the difference as a part of their own length."""


@dataclass(frozen=True)
class Reproduced:
    """What a site said in one drawn round, and what its images give."""

    round_no: int
    said: Mapping[str, float | None]
    found: Mapping[str, float | None]
    away: Mapping[str, float]
    """How far apart the two are; infinite if one of them is missing."""
    problems: tuple[str, ...] = ()
    """Why the round can't be judged by these numbers."""
    has_memory: bool = True
    """Whether the site had kept the memory from before the round."""

    @property
    def wrong(self) -> list[str]:
        return [name for name, distance in self.away.items() if distance > TOLERANCES[name]]

    def values(self, name: str) -> tuple[float | None, float | None]:
        return self.said[name], self.found[name]


def reproduced(run: RunFolder, config: Config, data: SiteData, loaded: Loaded, memories: Path) -> Iterator[Reproduced]:
    """Do again the drawn rounds in which a site took part.

    `config` is the experiment as the site runs it, `loaded` the run's network, and `memories` the folder with what the
    site has kept.
    """
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # As in training: with more threads, sums are rounded differently.
    try:
        for stretch in stretches(run, run.ledger()):
            again: _Again | None = None
            for done in stretch.rounds:
                if done.drawn is not None and data.name in done.sites:
                    again = again or _Again(run, _config_of(config, stretch), data, loaded, memories)
                    yield again.round(done)
    finally:
        torch.set_num_threads(n_threads)


def _config_of(config: Config, stretch: Stretch) -> Config:
    """The experiment of these rounds: a continuation has more rounds, on which the learning rate may depend."""
    return config.model_copy(update={"rounds": stretch.n_rounds})


class _Again:
    """A site, ready to do its rounds again."""

    def __init__(self, run: RunFolder, config: Config, data: SiteData, loaded: Loaded, memories: Path) -> None:
        self.run, self.site = run, data.name
        classes, n_channels = tuple(loaded.classes), loaded.shape[0]
        self.learner: Learner = learner_for(config, n_channels, len(classes), torch.device("cpu"))
        self.layout = shared_layout(self.learner.layout, config.model.stays)
        self.algorithm, self.pack = algorithms.made_for(config), config.pack
        self.hospital = Hospital(with_n_channels(data, n_channels), self.learner, classes, config.seed)
        self.files = MemoryFiles(memories, self.learner.layout, self.algorithm.keeps, drawn=memories)

    def round(self, done: Round) -> Reproduced:
        try:
            task, sent = self._task(done)
            memory = self.files.before(done.round_no)
        except RunError as error:
            return Reproduced(done.round_no, {}, {}, {}, (str(error),))
        problems = self._bound(done, task, sent, memory)
        reply, _ = perform(self.algorithm, self.hospital, task, memory, self.learner.initial, pack=self.pack)
        said, found = _said(done, self.site), _found(reply)
        away = {name: _away(said[name], found[name]) for name in said}
        replicates = done.sites[self.site].err_replicates
        if replicates or reply.error_replicates:
            away["replicates of the error"] = _furthest(replicates, reply.error_replicates)
        if sent is not None and reply.params is not None:
            away |= _distances(task.params, sent, reply.params)
        return Reproduced(done.round_no, said, found, away, tuple(problems), memory is not None)

    def _task(self, done: Round) -> tuple[Task, Params | None]:
        """What the site was asked, and the model that it sent, as the coordinator kept them."""
        (common, _), (own, about) = (
            self._kept(done, file)
            for file in (self.run.start_file(done.round_no), self.run.sent_file(done.round_no, self.site))
        )
        start = own.get("start", common["start"])
        try:
            told = {name: about[name] for name in ("rho", "has_its_statistics", "score_local")}
            task = Task(self.site, done.round_no, Params(self.layout, start), **told)
            return task, Params(self.layout, own["sent"]) if "sent" in own else None
        except (LookupError, ValueError) as error:
            raise RunError(f"what was kept of round {done.round_no + 1} is of another network ({error})") from None

    def _kept(self, done: Round, file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
        name = str(file.relative_to(self.run.path))
        if not file.exists():
            raise RunError(f"{name} is not here: the coordinator has it")
        if digest_of(file) != (done.drawn or {}).get(name):
            raise RunError(f"{name} is not what the ledger says was kept")
        return read_tensors(file)

    def _bound(self, done: Round, task: Task, sent: Params | None, memory: Memory | None) -> Iterator[str]:
        """Where sites sign their answers: whether these are the models that the site signed for."""
        if (form := _signed(done, self.site)) is None:
            return
        if form.received and form.received != task.params.digest:
            yield "the model that the coordinator kept is not the one that the site was sent"
        if sent is not None and form.model != sent.digest:
            yield "the model that the coordinator kept is not the one that the site signed"
        earlier = [one for one in self.run.rounds() if one.round_no < done.round_no and self.site in one.sites]
        if memory is None:
            return
        if not earlier or memory.round_no != earlier[-1].round_no:
            last = f"of round {earlier[-1].round_no + 1}" if earlier else "missing"
            yield f"the site's memory is of round {memory.round_no + 1}, and its last answer that was used is {last}"
            return
        before = _signed(earlier[-1], self.site)
        if before is not None and before.model and part_of(memory.params, self.layout).digest != before.model:
            yield f"the site's memory does not hold the model that it signed in round {earlier[-1].round_no + 1}"


def _signed(done: Round, site: str) -> ReplyForm | None:
    signed = done.sites[site].signed
    return ReplyForm.read(signed.content) if signed else None


def _said(done: Round, site: str) -> dict[str, float | None]:
    facts = done.facts[site]
    said = {"score": facts["score"], "error without it": facts.get("err"), "loss": facts["loss"]}
    asked = {"score after training": "score_local", "loss before training": "loss_before"}
    return said | {name: facts[key] for name, key in asked.items() if facts.get(key) is not None}


def _found(reply: Reply) -> dict[str, float | None]:
    return {
        "score": reply.score,
        "error without it": reply.error_without,
        "loss": reply.loss,
        "score after training": reply.score_local,
        "loss before training": reply.loss_before,
    }


def _away(said: float | None, found: float | None) -> float:
    if said is None or found is None:
        return 0.0 if said is found else float("inf")
    return abs(said - found)


def _furthest(said: Any, found: Any) -> float:
    if len(said) != len(found):
        return float("inf")
    return float(np.abs(np.subtract(said, found)).max())


def _distances(start: Params, sent: Params, found: Params) -> dict[str, float]:
    """Distance of two models' changes from `start`, as a part of the length of the change that was sent."""
    layout: Layout = start.layout
    n_weights, n_floats = layout.n_trainable, layout.n_averaged
    parts = {"update": slice(0, n_weights), "change of running statistics": slice(n_weights, n_floats)}
    return {
        name: _part(start.vector[where], sent.vector[where], found.vector[where])
        for name, where in parts.items()
        if where.stop > where.start
    }


def _part(start: Vector, sent: Vector, found: Vector) -> float:
    length, apart = np.linalg.norm(found - start), np.linalg.norm(sent - found)
    return float(apart / length) if length > 0 else 0.0 if apart == 0 else float("inf")
