"""A trial of an engine on one machine: its programs start and end with the run, and an observer follows the run."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Self

from fedce.base.config import Config
from fedce.base.errors import ConfigError, EngineError
from fedce.base.files import append_line, read_json
from fedce.base.words import install_command
from fedce.core.messages import Member
from fedce.data.sites import site_names
from fedce.engines.shared import die_with_parent
from fedce.federation.plan import resolve
from fedce.federation.session import Observer, Result, RoundSeen
from fedce.record.connections import listed
from fedce.record.entries import DataFacts, Event, Line, Round, Session
from fedce.record.folder import OUTCOME, RunFolder

STOP_SECONDS = 5.0
NOTICES = "notices.txt"
"""File in the engine's folder with the coordinator's notices; most come before there is a ledger."""


def need(package: str, extra: str) -> None:
    """Raise unless the engine's package is installed, which is an extra of fedce."""
    if find_spec(package) is None:
        raise ConfigError(f"the engine {extra!r} needs {package}; in fedce's repository, run: {install_command(extra)}")


@dataclass(frozen=True)
class Trial:
    """A run on one machine over an engine that is made for many machines."""

    config: Config
    """The experiment, with all sites as members."""
    sites: list[str]
    run_folder: RunFolder
    folder: Path
    """The engine's own files, beside the run folder."""

    @property
    def result(self) -> Result:
        return Result(self.run_folder.path, self.run_folder.results)

    @property
    def is_finished(self) -> bool:
        return self.run_folder.results_file.exists()

    def follower(self, observer: Observer) -> "Follower":
        return Follower(self.run_folder, self.config, observer, self.folder / NOTICES)

    def fresh(self, name: str) -> Path:
        """An empty folder for the engine."""
        path = self.folder / name
        shutil.rmtree(path, ignore_errors=True)
        return path

    def raise_any(self) -> None:
        """Raise the error that ended the coordinator, if there was one."""
        if (error := read_json(self.folder / OUTCOME)["error"]) is not None:
            raise EngineError(error)


def begun(config: Config, out: Path, observer: Observer, *, resume: bool, replace: bool) -> Trial:
    """A new run folder, or one that continues; if that run is finished, the observer gets a notice."""
    config = resolve(config)
    sites = site_names(config.data)
    members = config.engine.members or dict.fromkeys(sites, "")
    config = config.model_copy(update={"engine": config.engine.model_copy(update={"members": members})})
    trial = Trial(config, sites, RunFolder(out), RunFolder(out).engine_folder)
    if not resume:
        RunFolder.create(out, config, replace=replace)
        shutil.rmtree(trial.folder, ignore_errors=True)
    elif trial.is_finished:
        observer.notice(f"{out} is finished; nothing to do")
    (trial.folder / OUTCOME).unlink(missing_ok=True)
    return trial


def free_ports(n: int) -> list[int]:
    """Ports of this machine that are free now."""
    sockets = [socket.socket() for _ in range(n)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


def program(name: str) -> str:
    """A command that was installed with this Python."""
    return str(Path(sys.executable).with_name(name))


def stream(run_folder: RunFolder, say: Callable[[str], None]) -> Observer:
    """What the coordinator's program says while the run goes on: `say` puts a line into its log, which engines stream.

    Notices are kept in a file too, because a follower in another program can't read the log.
    """

    def notice(message: str) -> None:
        append_line(run_folder.engine_folder / NOTICES, message)
        say(message)

    def start(config: Config, members: Mapping[str, Member], first_round: int) -> None:
        say(f"{len(members)} sites ({listed(list(members))}); round {first_round + 1} of {config.n_rounds} begins")

    def round_done(done: RoundSeen) -> None:
        say(f"round {done.round_no + 1} is done, mean validation Dice {done.mean_score:.3f}")

    return Observer(notice, start, round_done)


class Programs:
    """Started programs, each in its own process group with a log; all end with the block, or with this process."""

    def __init__(self, logs: Path, environment: Mapping[str, str]) -> None:
        self.logs = logs
        # An engine starts its commands by name: they must be found beside this Python, even if that is not on the path.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        self.environment = {**os.environ, "PATH": path, **environment}
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.running.values():
            _signal(process, signal.SIGTERM)
        until = monotonic() + STOP_SECONDS
        for process in self.running.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - monotonic()))
            _signal(process, signal.SIGKILL)
            process.wait()

    def start(self, name: str, command: Sequence[str]) -> None:
        self.logs.mkdir(parents=True, exist_ok=True)
        with (self.logs / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=self.environment,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    def check(self) -> None:
        """Raise if a program has ended before the run."""
        for name, process in self.running.items():
            if (code := process.poll()) is not None:
                raise EngineError(f"{name} ended with code {code}", self.tail(name))

    def tail(self, name: str) -> str:
        """The end of a program's log."""
        path = self.logs / f"{name}.log"
        return path.read_text("utf-8", errors="replace")[-4000:] if path.exists() else ""


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to the program and to all processes that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


class Follower:
    """Reports to an observer what another process writes into a run folder."""

    def __init__(self, run_folder: RunFolder, config: Config, observer: Observer, notices: Path) -> None:
        self.run_folder, self.config, self.observer, self.notices = run_folder, config, observer, notices
        # Earlier lines are not reported again, except the rounds from which a resumed run starts.
        self.n_seen, self.n_noticed = len(run_folder.ledger()), len(self._notices())

    def _notices(self) -> list[str]:
        return self.notices.read_text("utf-8").splitlines() if self.notices.exists() else []

    def look(self) -> None:
        notices = self._notices()
        for notice in notices[self.n_noticed :]:
            self.observer.notice(notice)
        self.n_noticed = len(notices)
        ledger = self.run_folder.ledger()
        for line in ledger.lines[self.n_seen :]:
            self._tell(line)
        self.n_seen = len(ledger)

    def _tell(self, line: Line) -> None:
        if isinstance(line, Session):
            members = {name: _member(name, facts) for name, facts in line.sites.items()}
            self.observer.start(self.config, members, line.round_no)
        elif isinstance(line, Round):
            self.observer.round(line)
        elif isinstance(line, Event):
            self.observer.notice(f"{line.site}: {line.what}")


def _member(name: str, facts: DataFacts) -> Member:
    return Member(name, facts.n_train, facts.n_validation, facts.n_test, (0, 0, 0), {}, facts.fingerprint)


def until(deadline: float, seconds: float = 0.2) -> Iterator[None]:
    """Yield again and again until the deadline."""
    end = monotonic() + deadline
    while monotonic() < end:
        yield
        sleep(seconds)
