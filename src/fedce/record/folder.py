"""A run folder: the record of a run that people keep, check and resume from.

config.toml      the resolved experiment; config-until-round-N.toml the one before a continuation
splits.json      which file is in which split
ledger.jsonl     one line for the start, each round and the end, each with the hash of the line before
checkpoint/      the server's state and the sites' memories
results.json     contributions, Dice, fairness, versions
model.safetensors, models/<site>.safetensors where each site has its own
rounds.csv       the rounds as a table, if the experiment asks for it
cases.csv        the metrics of every test case, if the sites are on this machine
fingerprints.json   what sites on other machines sent before round 1, if the experiment was planned from it
audit/           of rounds drawn for an audit: the models that were sent, and the secret seed of the draw
connections.json    while sites on other machines work: which are connected, and whose answer is awaited
examples.png     an image of each site's first test case with what the model finds in it
report.html
notices/         signed notices of members that wait for the next round boundary
attestation-N.json, attestation-N.tsr   the ledger's first N lines, attested; the time stamp of that
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from fedce.base import config as configs
from fedce.base.errors import RunError
from fedce.base.files import (
    append_line,
    digest_of,
    locked,
    read_json,
    read_sealed,
    write_bytes,
    write_json,
    write_sealed,
)
from fedce.record.connections import Connections
from fedce.record.entries import Continued, Line, Round, line_of
from fedce.record.forms import Results, check
from fedce.record.ledger import NO_LINE, Ledger, check_format, content_of, signed_text

OUTCOME = "outcome.json"
"""File in the engine's folder that says how the coordinator ended."""


class RunFolder:
    """The files of one run, and the only place where they are written.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     run = RunFolder.create(Path(folder) / "run", configs.Config(rounds=5))
    ...     run.config.rounds, len(run.ledger())
    (5, 0)
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.toml"
        self.ledger_file = path / "ledger.jsonl"
        self.results_file = path / "results.json"
        self.model_file = path / "model.safetensors"
        self.best_file = path / "best.safetensors"
        self.report_file = path / "report.html"
        self.examples_file = path / "examples.png"
        self.cases_file = path / "cases.csv"
        self.rounds_file = path / "rounds.csv"
        self.splits_file = path / "splits.json"
        self.log_file = path / "error.log"
        self.connections_file = path / "connections.json"
        self.lock_file = path / ".lock"
        self.next_folder = path / ".next"
        self.state_file = path / "checkpoint" / "state.safetensors"
        self.notices_folder = path / "notices"
        self.memory_folder = path / "checkpoint" / "sites"
        self.audit_folder = path / "audit"
        self.fingerprints_file = path / "fingerprints.json"
        self.sign: Callable[[str], str] | None = None
        """Signs the ledger's lines; set by the coordinator."""
        self._last_line: str | None = None
        self._lines_read: list[str] = []
        self._ledger = Ledger()

    @property
    def attestation_files(self) -> list[Path]:
        """The attestations of the ledger, by their number of lines."""
        return sorted(self.path.glob("attestation-*.json"), key=lambda path: (len(path.name), path.name))

    @property
    def engine_folder(self) -> Path:
        """Beside the run folder: files of the engine that carries the run, unless that is the local engine."""
        path = self.path.resolve()
        return path.with_name(f"{path.name}.engine")

    def site_model_file(self, site: str) -> Path:
        return self.path / "models" / f"{site}.safetensors"

    def seed_file(self, first: int) -> Path:
        """The secret seed that draws rounds for an audit, of the part of the run that began with round `first`."""
        return self.audit_folder / f"seed-{first:06d}.json"

    def start_file(self, round_no: int) -> Path:
        """The common model that a drawn round started from."""
        return self.audit_folder / f"round-{round_no:06d}" / "start.safetensors"

    def sent_file(self, round_no: int, site: str) -> Path:
        """What a site was asked in a drawn round, and the model that it sent."""
        return self.audit_folder / f"round-{round_no:06d}" / "sites" / f"{site}.safetensors"

    @property
    def drawn_memory_folder(self) -> Path:
        """Memories that sites on this machine had before drawn rounds."""
        return self.audit_folder / "memories"

    @classmethod
    def create(cls, path: Path, config: configs.Config, *, replace: bool = False) -> "RunFolder":
        """A new run folder; a folder that already holds a run is an error, unless `replace` is set."""
        run = cls(path)
        if replace and run.is_one:
            with run.lock():
                run.remove()
        else:
            run.check_free()
        try:
            # Models and images of patients concern nobody else; an existing folder keeps its permissions.
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            # The lock file comes first, as the mark of a run: a folder with only a config.toml does not hold a run.
            with run.lock():
                run.write_config(config)
        except OSError as error:
            raise RunError(f"can't write to {path}: {error.strerror}; choose another --out") from None
        return run

    def check_free(self) -> None:
        """Raise a RunError unless a new run may begin here."""
        path = self.path
        above = next((folder for folder in (path, *path.absolute().parents) if folder.exists()), path)
        if not above.is_dir():
            raise RunError(f"{above} is a file; give --out a folder")
        if self.is_one:
            raise RunError(
                f"{path} already holds a run; continue it with 'fedce run --resume {path}', "
                "choose another --out, or add --replace (in Python: replace=True)"
            )
        if path.is_dir():
            self._sweep()
            if any(inside != self.lock_file for inside in path.iterdir()):
                raise RunError(f"{path} is not empty and holds no run; choose another --out")

    def _sweep(self) -> None:
        """Remove an unfinished configuration that a killed creation left behind."""
        if self.lock_file.exists():
            with self.lock():  # A process that creates a run holds the lock, so these files belong to none.
                for left in self.path.glob(f".{self.config_file.name}.*.tmp"):
                    left.unlink(missing_ok=True)

    def write_config(self, config: configs.Config) -> None:
        write_bytes(self.config_file, configs.dumps(config).encode())

    def config_until(self, n_rounds: int) -> Path:
        """The experiment of the first rounds, if the run was continued after them."""
        return self.path / f"config-until-round-{n_rounds}.toml"

    def prepare(self, config: configs.Config) -> Path:
        """Write the experiment of a continuation aside; `settle` puts it in place once the ledger has its line."""
        shutil.rmtree(self.next_folder, ignore_errors=True)
        self.next_folder.mkdir()
        write_bytes(self.next_folder / self.config_file.name, configs.dumps(config).encode())
        return self.next_folder

    def settle(self) -> None:
        """Complete a continuation that the ledger holds, or drop one that it does not hold: a kill may come between."""
        prepared = self.next_folder / self.config_file.name
        if prepared.exists():
            part = self.ledger().part
            if isinstance(part, Continued) and part.config_file == digest_of(prepared):
                write_bytes(self.config_until(part.round_no), self.config_file.read_bytes())
                if (splits := self.next_folder / self.splits_file.name).exists():
                    splits.replace(self.splits_file)
                for stale in (self.results_file, self.report_file):
                    stale.unlink(missing_ok=True)
                prepared.replace(self.config_file)  # Last: as long as it is there, this can be repeated.
        shutil.rmtree(self.next_folder, ignore_errors=True)

    def remove(self) -> None:
        """Delete the files that a run has written, and nothing else in the folder."""
        # Configuration and lock last: while they exist, an interrupted removal can be repeated.
        own_folders = (self.path / "checkpoint", self.path / "models", self.audit_folder)
        for own in (*own_folders, self.notices_folder, self.next_folder):
            shutil.rmtree(own, ignore_errors=True)
        pages = (self.report_file, self.examples_file, self.cases_file, self.rounds_file)
        files = (
            self.results_file,
            self.model_file,
            self.best_file,
            *pages,
            self.splits_file,
            self.log_file,
            self.connections_file,
            self.fingerprints_file,
        )
        extra = (
            *self.path.glob("config-until-round-*.toml"),
            *self.path.glob("value-*.json"),
            *self.path.glob("member-*.html"),
            *self.path.glob("allocation.*"),
            *self.path.glob("attestation-*.*"),
        )
        for file in (*files, *extra, self.ledger_file, self.config_file, self.lock_file):
            file.unlink(missing_ok=True)

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        run = cls(path)
        if not path.exists():
            raise RunError(f"there is no folder {path}")
        if not run.config_file.exists():
            raise RunError(f"{path} holds no run (no config.toml)")
        return run

    @property
    def is_one(self) -> bool:
        """Whether this folder holds a run. A config.toml alone does not make it one."""
        return self.config_file.is_file() and (self.lock_file.exists() or self.ledger_file.exists())

    @contextmanager
    def lock(self, patience: float = 0.0) -> Iterator[None]:
        """Keep other processes from working on this run; the lock ends with this process, however it ends.

        `patience`: seconds in which a process that holds the lock may end.
        """
        end = monotonic() + patience
        with self.lock_file.open("w") as file:
            while not locked(file):
                if monotonic() >= end:
                    raise RunError(f"another process is working on {self.path}; wait for it, or stop it")
                sleep(0.1)
            yield

    @property
    def is_locked(self) -> bool:
        """Whether another process is working on this run; not to be asked by the process that holds the lock."""
        try:
            with self.lock():
                return False
        except RunError:
            return True

    @property
    def config(self) -> configs.Config:
        return configs.load_recorded(self.config_file)

    @property
    def results(self) -> dict[str, Any]:
        if not self.results_file.exists():
            raise RunError(f"{self.path} has no results yet; continue it with 'fedce run --resume {self.path}'")
        results: dict[str, Any] = read_sealed(self.results_file)
        check(Results, results, str(self.results_file))
        return results

    def write_results(self, results: Mapping[str, Any]) -> None:
        write_sealed(self.results_file, results)

    @property
    def connections(self) -> Connections | None:
        """Which sites on other machines were there when the coordinator last looked; None unless the run goes on."""
        if not self.connections_file.exists():
            return None
        content = read_json(self.connections_file)
        check(Connections, content, str(self.connections_file))
        return Connections.model_validate(content)

    def write_connections(self, connections: Connections) -> None:
        write_json(self.connections_file, connections.model_dump())

    @contextmanager
    def connections_shown(self) -> Iterator[None]:
        """Connections may be written in this block; after it nobody waits for sites, however it ends."""
        try:
            yield
        finally:
            self.connections_file.unlink(missing_ok=True)

    def ledger(self) -> Ledger:
        """All whole lines, without a last line that a kill cut off. Lines that were read before are not read again."""
        lines = self.lines()
        if lines[: len(self._lines_read)] != self._lines_read:
            self._lines_read, self._ledger = [], Ledger()
        if len(lines) > len(self._lines_read):
            known = len(self._lines_read)
            new = (self._line(number, line) for number, line in enumerate(lines[known:], known + 1))
            self._ledger = Ledger((*self._ledger, *new))
            self._lines_read = lines
        return self._ledger

    def _line(self, number: int, line: str) -> Line:
        where = f"{self.ledger_file}, line {number},"
        try:
            content = content_of(line)
        except (ValueError, RecursionError) as error:
            raise RunError(f"{where} is not as fedce writes it ({error}); was it edited?") from None
        if number == 1:
            check_format(content, self.ledger_file)
        return line_of(content, where)

    def check_chain(self) -> None:
        """Raise a RunError unless the record is as it was written: every line of the ledger holds the hash of the line
        before, the last line is signed, and the configuration is the one that the run was started with."""
        previous, ledger = NO_LINE, self.ledger()
        for number, (text, line) in enumerate(zip(self.lines(), ledger, strict=True), 1):
            if line.previous != previous:
                raise RunError(
                    f"{self.ledger_file}, line {number}, does not follow from line {number - 1}: the ledger was changed"
                )
            previous = sha256(text.encode()).hexdigest()
        if not ledger.last_is_signed:
            raise RunError(
                f"{self.ledger_file}, line {len(ledger)}, is not what the coordinator signed: the ledger was changed"
            )
        started_with = ledger.part.config_file if ledger.part else None
        if started_with is not None and started_with != digest_of(self.config_file):
            raise RunError(f"{self.config_file} was changed since the run was started; restore it, or start a new run")

    def rounds(self) -> list[Round]:
        return self.ledger().rounds

    def append(self, content: Mapping[str, Any]) -> None:
        """Add a line to the ledger, chained to the line before; a line that could not be read back is not written."""
        self.checked(content)
        if self._last_line is None:
            self._last_line = (self.lines() or [""])[-1]
        previous = sha256(self._last_line.encode()).hexdigest() if self._last_line else NO_LINE
        value = {**content, "previous": previous}
        if self.sign is not None:
            value["signature"] = self.sign(signed_text(value))
        line = json.dumps(value, allow_nan=False)
        append_line(self.ledger_file, line)
        self._last_line = line

    def checked(self, content: Mapping[str, Any]) -> Line:
        """A new line as it will be read back; a RunError if the ledger could not be read with it."""
        where = f"a new line of {self.ledger_file}"
        try:
            text = json.dumps(content, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise RunError(f"{where} can't be written ({error}); nothing was written") from None
        return line_of(json.loads(text), where, "nothing was written")

    def mend_ledger(self) -> None:
        """Cut off a last line that a kill left incomplete."""
        if self.ledger_file.exists():
            content = self.ledger_file.read_bytes()
            if len(content) != (end := content.rfind(b"\n") + 1):
                os.truncate(self.ledger_file, end)

    def lines(self) -> list[str]:
        """The ledger's whole lines as they are on disk, without a last line that a kill cut off."""
        if not self.ledger_file.exists():
            return []
        # As bytes: with another line ending, the line and its hash would differ.
        *whole, _cut_off = self.ledger_file.read_bytes().decode("utf-8", errors="replace").split("\n")
        return whole
