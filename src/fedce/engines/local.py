"""The local engine: all sites on this machine, in worker processes with one torch thread each.

One process with two torch threads is several times slower than two processes with one each, hence processes. Models
and memories lie in shared memory; the pipes carry only small values. A free worker takes the largest site that is left.
With one worker everything runs in this process; the results are the same, bit for bit.
"""

import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import torch

from fedce.base.errors import EngineError, FedceError
from fedce.core.messages import MAX_MODELS, Reply, Task
from fedce.core.params import Layout, Params, Vector
from fedce.core.site import Memory
from fedce.engines.shared import Block, serve_parent
from fedce.federation.checkpoint import run_again
from fedce.site.hospital import MemoryFiles, memory_arrays, memory_from

MODELS_A_MEMORY_MAY_HOLD = 12


class Participants(Protocol):
    """Everything that a process needs to be any of the sites."""

    @property
    def layout(self) -> Layout:
        """The part of the network that is exchanged."""

    @property
    def whole_layout(self) -> Layout:
        """The whole network of a site, which it hands over at the end if each site has its own model."""

    @property
    def keeps(self) -> type | None:
        """The type of what the algorithm keeps at a site: `Algorithm.keeps`."""

    @property
    def work_by_site(self) -> Mapping[str, int]:
        """Relative cost of a round at each site, so that the largest site starts first."""

    device: str | None
    """The device of this process; None: the experiment's."""

    def device_of(self, worker: int, n_workers: int) -> str:
        """The device of one of several worker processes."""

    def is_there(self, task: Task) -> bool:
        """Whether the task's site answers it."""

    def perform(self, task: Task, memory: Memory | None) -> tuple[Reply, Memory | None]:
        """Do the task as the site that it is for; returns the reply and the site's new memory."""


def can_fork() -> bool:
    """Whether workers can be forked: they start warm and share the images. CUDA and some platforms do not allow it."""
    return sys.platform == "linux" and not torch.cuda.is_available()


def default_workers(n_sites: int) -> int:
    """One worker for each core that this process may use, at most one for each site; one if forking is impossible.

    A spawned process runs the caller's script again, which only scripts with a __main__ guard survive.
    """
    if not can_fork():
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, n_sites)


class LocalEngine:
    """Runs tasks in this process or in workers. Use it as a context manager.

    >>> from tempfile import TemporaryDirectory
    >>> from fedce.base.config import parse
    >>> from fedce.data import load_sites
    >>> from fedce.federation.plan import Participants
    >>> config = parse({"data": {"source": "fundus6", "scale": "tiny"}})
    >>> participants = Participants(config, load_sites(config.data))
    >>> task = participants.algorithm.task(participants.initial_state(), "site1")
    >>> with TemporaryDirectory() as folder, LocalEngine(participants, Path(folder), workers=1) as engine:
    ...     replies = engine.ask([task])
    >>> [(reply.site, reply.n_train) for reply in replies]
    [('site1', 4)]
    """

    def __init__(
        self, participants: Participants, memory_folder: Path, workers: int = 0, drawn_folder: Path | None = None
    ) -> None:
        self.participants = participants
        hint = run_again(memory_folder.parent)
        drawn = drawn_folder or memory_folder.parent / "drawn"
        self.files = {
            site: MemoryFiles(memory_folder / site, participants.whole_layout, participants.keeps, hint, drawn / site)
            for site in participants.work_by_site
        }
        n_workers = min(workers or default_workers(len(participants.work_by_site)), len(participants.work_by_site))
        self._n_threads_before = torch.get_num_threads()
        torch.set_num_threads(1)
        self._team = _Team(participants, self.files, n_workers) if n_workers > 1 else None
        self._memories: dict[str, Memory | None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._team:
            self._team.close()
        torch.set_num_threads(self._n_threads_before)

    def sites(self, known: Sequence[str]) -> tuple[str, ...]:
        return tuple(known)

    def here(self, sites: Sequence[str]) -> tuple[str, ...]:
        return tuple(sites)

    def ask(self, tasks: Sequence[Task]) -> list[Reply]:
        there = filter(self.participants.is_there, tasks)
        tasks = sorted(there, key=lambda task: -self.participants.work_by_site[task.site])
        if self._team:
            return self._team.ask(tasks)
        return [self._ask_here(task) for task in tasks]

    def _ask_here(self, task: Task) -> Reply:
        site = task.site
        if site not in self._memories:
            self._memories[site] = self.files[site].load(before=task.round_no)
        try:
            self.files[site].keep(task.drawn, self._memories[site])
            reply, memory = self.participants.perform(task, self._memories[site])
        except Exception as error:
            raise _located(error, task) from error
        self._memories[site] = memory
        if task.persist and task.action == "train" and memory is not None:
            self.files[site].save(memory)
        return reply


def _located(error: Exception, task: Task) -> EngineError:
    """An error of one line with site and round; unless it is the user's mistake, the run's log gets the trace."""
    what = str(error) if isinstance(error, FedceError) else f"{type(error).__name__}: {error}"
    trace = "" if isinstance(error, FedceError) else "".join(traceback.format_exception(error))
    return EngineError(f"round {task.round_no + 1}, site {task.site!r}: {what}", trace)


def _rows(shelf: Block, n_models: int, layout: Layout) -> Iterator[Vector]:
    """The shelf's models, one after another."""
    vector = shelf.vector(n_models * layout.size)
    return (vector[i * layout.size : (i + 1) * layout.size] for i in range(n_models))


class _Team:
    """Worker processes and what they share."""

    def __init__(self, participants: Participants, files: Mapping[str, MemoryFiles], n_workers: int) -> None:
        fork = can_fork()
        context: Any = multiprocessing.get_context("fork" if fork else "spawn")
        n_bytes = 4 * participants.whole_layout.size + 64
        self.layout, self.whole_layout = participants.layout, participants.whole_layout
        self.common = Block(n_bytes, inherited=fork)
        self.shelf = Block(MAX_MODELS * n_bytes, inherited=fork)
        self.inbox = {site: Block(n_bytes, inherited=fork) for site in files}
        self.outbox = {site: Block(n_bytes, inherited=fork) for site in files}
        self.memories = {site: Block(MODELS_A_MEMORY_MAY_HOLD * n_bytes + 65536, inherited=fork) for site in files}
        desk = _Worker(participants, dict(files), self.common, self.shelf, self.inbox, self.outbox, self.memories)
        self.pipes: list[Connection] = []
        self.processes = []
        for number in range(n_workers):
            ours, theirs = context.Pipe()
            # A worker closes the pipe ends that it inherits, so that it notices when this process dies.
            others = [*self.pipes, ours] if fork else []
            # A forked worker has the network of this process, and there is no GPU then.
            device = None if fork else participants.device_of(number, n_workers)
            process = context.Process(target=desk.work, args=(theirs, others, device), name=f"fedce-worker-{number}")
            process.daemon = True
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)

    def ask(self, tasks: Sequence[Task]) -> list[Reply]:
        first = tasks[0].params
        self.common.vector(self.layout.size)[:] = first.vector
        n_models = len(tasks[0].models)
        for row, model in zip(_rows(self.shelf, n_models, self.layout), tasks[0].models, strict=True):
            row[:] = model.vector
        waiting = list(tasks)
        busy: dict[Connection, Task] = {}
        replies: list[Reply] = []
        idle = list(self.pipes)
        while waiting or busy:
            while waiting and idle:
                pipe, task = idle.pop(), waiting.pop(0)
                own = task.params is not first
                if own:
                    self.inbox[task.site].vector(self.layout.size)[:] = task.params.vector
                busy[pipe] = task
                try:
                    pipe.send((replace(task, params=None, models=()), own, n_models))  # type: ignore[arg-type]
                except OSError:
                    raise self._died(pipe, task) from None
            for ready in multiprocessing.connection.wait(list(busy)):
                assert isinstance(ready, Connection)
                replies.append(self._receive(ready, busy.pop(ready)))
                idle.append(ready)
        return replies

    def _receive(self, pipe: Connection, task: Task) -> Reply:
        try:
            reply, has_model, error = pipe.recv()
        except (EOFError, OSError):
            raise self._died(pipe, task) from None
        if error is not None:
            raise error
        assert isinstance(reply, Reply)
        if has_model:
            layout = self.whole_layout if task.action == "evaluate" else self.layout
            reply = replace(reply, params=Params(layout, self.outbox[task.site].vector(layout.size)))
        return reply

    def _died(self, pipe: Connection, task: Task) -> EngineError:
        process = self.processes[self.pipes.index(pipe)]
        process.join(timeout=5)
        code = process.exitcode
        how = (
            f"was ended by signal {-code} ({signal.Signals(-code).name})"
            if code and code < 0
            else f"exited with {code}"
        )
        hint = "; the machine may be out of memory" if code == -signal.SIGKILL else ""
        return EngineError(f"round {task.round_no + 1}, site {task.site!r}: its worker process {how}{hint}")

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.close()
        for process in self.processes:
            process.join(timeout=2)
            if process.is_alive():
                process.terminate()
                process.join()
        for block in (self.common, self.shelf, *self.inbox.values(), *self.outbox.values(), *self.memories.values()):
            block.close()


class _Worker:
    """What a worker holds: the participants, and the shared blocks."""

    def __init__(
        self,
        participants: Participants,
        files: dict[str, MemoryFiles],
        common: Block,
        shelf: Block,
        inbox: dict[str, Block],
        outbox: dict[str, Block],
        memories: dict[str, Block],
    ) -> None:
        self.participants, self.files = participants, files
        self.common, self.shelf = common, shelf
        self.inbox, self.outbox, self.memories = inbox, outbox, memories

    def work(self, pipe: Connection, close: Sequence[Connection], device: str | None = None) -> None:
        """Serve tasks until the other end of the pipe is closed."""
        serve_parent()
        self.participants.device = device
        for other in close:
            other.close()
        torch.set_num_threads(1)
        while True:
            try:
                task, own, n_models = pipe.recv()
            except (EOFError, OSError):
                return
            answer = self._answer(task, own, n_models)
            try:
                pipe.send(answer)
            except OSError:  # The parent is gone.
                return

    def _answer(self, task: Task, own: bool, n_models: int) -> tuple[Reply | None, bool, EngineError | None]:
        layout, site = self.participants.layout, task.site
        model = (self.inbox[site] if own else self.common).vector(layout.size)
        models = tuple(Params(layout, row) for row in _rows(self.shelf, n_models, layout))
        task = replace(task, params=Params(layout, model), models=models)
        try:
            before = self._recall(task)
            self.files[site].keep(task.drawn, before)
            reply, memory = self.participants.perform(task, before)
            if memory is not None and task.action == "train":
                self.memories[site].put(*memory_arrays(memory))
                if task.persist:
                    self.files[site].save(memory)
        except Exception as error:  # noqa: BLE001 (whatever it was, the parent must learn of it)
            return None, False, _located(error, task)
        if reply.params is None:
            return reply, False, None
        self.outbox[site].vector(reply.params.layout.size)[:] = reply.params.vector
        return replace(reply, params=None), True, None

    def _recall(self, task: Task) -> Memory | None:
        if (kept := self.memories[task.site].get()) is not None:
            return memory_from(*kept, self.participants.whole_layout, self.participants.keeps)
        return self.files[task.site].load(before=task.round_no)
