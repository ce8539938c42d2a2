"""Many trainings: each is done once, kept by content, and resumable; several run at a time.

A training's folder in the store is named by what decides its results: the resolved configuration, the fingerprints of
the data, and the code that computes. A training that is asked for again is taken from there.
"""

import json
import multiprocessing
import multiprocessing.connection
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from fedce import __version__
from fedce.base.config import Config
from fedce.base.errors import EngineError, FedceError, RunError
from fedce.base.files import digest_of, write_bytes
from fedce.base.places import run_name
from fedce.base.tables import DataConfig
from fedce.data import Sites, load_sites
from fedce.engines.local import can_fork, default_workers
from fedce.engines.shared import serve_parent
from fedce.engines.starting import execute, resume
from fedce.federation.lines import versions
from fedce.federation.plan import FirstRound, Participants, resolve
from fedce.federation.session import Observer, Result
from fedce.learning.networks import choose_device
from fedce.learning.pretrained import file_of
from fedce.questions.results_file import Kept, ResultsFile
from fedce.record.entries import Round
from fedce.record.folder import RunFolder

Notify = Callable[[str], None]
# Files whose change may change a result; a study must not mix results of two versions of them.
DECISIVE = ("core", "algorithms", "guard", "valuation", "data", "learning", "site", "federation", "record")
"""Folders of code that decides numbers."""


@dataclass(frozen=True)
class Progress:
    """How far a set of trainings is."""

    n_done: int
    n_jobs: int
    rounds_done: int
    n_rounds: int


class Store:
    """Finished and half-finished trainings by content.

    >>> from tempfile import TemporaryDirectory
    >>> from fedce.base.config import parse
    >>> config = parse({"data": {"source": "fundus6", "scale": "tiny"}})
    >>> with TemporaryDirectory() as folder:
    ...     store = Store(Path(folder))
    ...     print(len(store.missing([config, config])), store.finished(config))
    1 None
    """

    def __init__(self, folder: Path, notify: Notify = lambda message: None, results: ResultsFile | None = None) -> None:
        self.folder = folder
        self.notify = notify
        self.results = results
        """Also keeps the results of each training, and spares those whose results it has."""
        self._loaded: dict[str, Sites] = {}
        self._read_in_full: set[Path] = set()

    def read_in_full(self, configs: Iterable[Config]) -> None:
        """Train these here even if their results are kept, because their ledgers or models will be read."""
        self._read_in_full.update(map(self.path, configs))

    def sites(self, config: DataConfig) -> Sites:
        key = config.model_dump_json()
        if key not in self._loaded:
            self._loaded[key] = load_sites(config, notify=self.notify)
        return self._loaded[key]

    def add(self, config: DataConfig, sites: Sites) -> None:
        """Use sites that are in memory already."""
        self._loaded[config.model_dump_json()] = sites

    def path(self, config: Config) -> Path:
        """The folder of this training, whether or not it exists yet."""
        text = json.dumps([_code_version(), versions(), self._key(config)], sort_keys=True)
        return self.folder / f"{run_name(config)}-{sha256(text.encode()).hexdigest()[:16]}"

    def _key(self, config: Config) -> str:
        """Digest of what decides a training's results, except for the code."""
        resolved = resolve(config)
        # It does not depend on the data's path, because the fingerprints identify the data.
        what = resolved.model_dump(mode="json", exclude={"engine": True, "tracking": True, "data": {"source"}})
        fingerprints = [site.fingerprint for site in self.sites(config.data)]
        device = str(choose_device(config.engine.device))
        weights = [digest_of(file_of(Path(resolved.model.start)))] if resolved.model.start else []
        text = json.dumps([device, what, fingerprints, *weights], sort_keys=True)
        return sha256(text.encode()).hexdigest()

    def finished(self, config: Config) -> Result | None:
        path = self.path(config)
        if _is_finished(path):
            return _result(path)
        kept = self._kept(config) if path not in self._read_in_full else None
        return Result(path, kept.results) if kept is not None else None

    def _kept(self, config: Config) -> Kept | None:
        return self.results.find(self._key(config), _code_version()) if self.results is not None else None

    def n_by_other_code(self, configs: Sequence[Config]) -> int:
        """How many of these trainings are results alone that another version of fedce, or of a library, left."""
        elsewhere = [self._kept(config) for config in configs if not _is_finished(self.path(config))]
        here = (_code_version(), versions())
        return sum(kept is not None and (kept.code, kept.versions) != here for kept in elsewhere)

    def _keep(self, config: Config, path: Path) -> None:
        """Put a finished training into the file of results, if there is one and it lacks the training."""
        if self.results is None or not _is_finished(path):
            return
        key, code = self._key(config), _code_version()
        if (kept := self.results.find(key, code)) is None or kept.code != code:
            self.results.add(Kept(key, run_name(config), code, versions(), _result(path).values))

    def rounds(self, config: Config) -> list[Round]:
        """The ledger's rounds of a training that is done."""
        path = self.path(config)
        with _naming(path):
            RunFolder(path).check_chain()
            return RunFolder(path).rounds()

    def missing(self, configs: Sequence[Config]) -> list[Config]:
        """The trainings that are not yet in the store, each once."""
        by_path = {self.path(config): config for config in configs}
        return [config for config in by_path.values() if self.finished(config) is None]

    def seconds_a_round(self, configs: Sequence[Config]) -> float | None:
        """Mean seconds of a round in those trainings that the store holds; None if it holds none of them."""
        known = [result.values for config in configs if (result := self.finished(config)) is not None]
        n_rounds = sum(values["rounds"] for values in known)
        return sum(values["seconds"] for values in known) / n_rounds if n_rounds else None

    def run(
        self, configs: Sequence[Config], workers: int = 0, progress: Callable[[Progress], None] = lambda now: None
    ) -> list[Result]:
        """The results of all these trainings; those that are missing are trained, each in its own process."""
        # Computed once: a study has hundreds of trainings, and each path takes a millisecond.
        paths = [self.path(config) for config in configs]
        by_path = dict(zip(paths, configs, strict=True))
        n_rounds = {path: config.n_rounds for path, config in by_path.items()}
        missing = {path: config for path, config in by_path.items() if self.finished(config) is None}
        wanted = list(missing.values())
        # The longest trainings start first, so that none of them is left alone at the end.
        wanted.sort(key=lambda config: -config.n_rounds * (10 if config.reconstruction else 1))
        done = {path: n for path, n in n_rounds.items() if path not in missing}

        def tell() -> None:
            finished = sum(done[path] >= n_rounds[path] for path in done)
            progress(Progress(finished, len(n_rounds), sum(done.values()), sum(n_rounds.values())))

        tell()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in n_rounds.keys() - missing.keys():
            self._keep(by_path[path], path)
        for path, round_no in _train_all(self, wanted, workers or default_workers(len(wanted) or 1)):
            done[path] = round_no
            self._keep(by_path[path], path)
            tell()
        found = {path: result for path, config in by_path.items() if (result := self.finished(config)) is not None}
        return [found[path] for path in paths]


def _result(path: Path) -> Result:
    with _naming(path):
        return Result(path, RunFolder(path).results)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Add advice to the error about a training in the store that was changed."""
    try:
        yield
    except RunError as error:
        raise RunError(f"{error}; delete {path} and call the same command again to repeat this training") from None


def _is_finished(path: Path) -> bool:
    return RunFolder(path).results_file.exists()


def _train_all(store: Store, wanted: Sequence[Config], n_workers: int) -> Iterator[tuple[Path, int]]:
    """Train in at most `n_workers` processes at a time; yields each folder with its number of finished rounds."""
    if not wanted:
        return
    fork = can_fork()
    context: Any = multiprocessing.get_context("fork" if fork else "spawn")
    _warm_up(wanted[0], store)
    waiting = list(wanted)
    shared = _SharedRounds(store, wanted)
    running: dict[Connection, tuple[Any, Path]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < n_workers:
                config = waiting.pop(0)
                ours, theirs = context.Pipe(duplex=False)
                path = store.path(config)
                sites = store.sites(config.data) if fork else None
                first_round = shared.first(config) if fork else None
                process = context.Process(target=_train, args=(theirs, config, path, sites, first_round), daemon=True)
                process.start()
                theirs.close()
                running[ours] = (process, path)
            for ready in multiprocessing.connection.wait(list(running)):
                assert isinstance(ready, Connection)
                process, path = running[ready]
                try:
                    message = ready.recv()
                except EOFError:
                    process.join()
                    if process.exitcode != 0:
                        raise EngineError(
                            f"the training in {path} ended with code {process.exitcode}; start again"
                        ) from None
                    ready.close()
                    del running[ready]
                    continue
                if isinstance(message, Exception):
                    raise message
                yield path, message
    finally:
        for pipe, (process, _) in running.items():
            process.terminate()
            process.join()
            pipe.close()


def _warm_up(config: Config, store: Store) -> None:
    """Import and build what every training needs, once, before processes are forked."""
    _ = Participants(resolve(config), store.sites(config.data)).learner


class _SharedRounds:
    """First rounds of trainings that differ only in which sites take part, as in leave-one-out and Shapley values.

    A site starts from the same model in all of them, so its first round is the same, and forked processes inherit it.
    """

    def __init__(self, store: Store, wanted: Sequence[Config]) -> None:
        self.store = store
        self.n_left = Counter(_kin(config) for config in wanted if not RunFolder(store.path(config)).path.exists())
        self.played: dict[str, FirstRound] = {}

    def first(self, config: Config) -> FirstRound | None:
        kin = _kin(config)
        if self.n_left[kin] > 1 and kin not in self.played:
            self.played[kin] = self._play(config)
        self.n_left[kin] -= 1
        return self.played.get(kin) if self.n_left[kin] > 0 else self.played.pop(kin, None)

    def _play(self, config: Config) -> FirstRound:
        everybody = resolve(config.model_copy(update={"leave_out": ()}))
        n_threads = torch.get_num_threads()
        torch.set_num_threads(1)  # As in the trainings; otherwise bits might differ.
        try:
            return Participants(everybody, self.store.sites(config.data)).play_first_round()
        finally:
            torch.set_num_threads(n_threads)


def _kin(config: Config) -> str:
    # Nobody votes before the end of a round, so that ballots change nothing in what the sites do first.
    return config.model_dump_json(exclude={"leave_out", "engine", "tracking", "worth"})


def _train(pipe: Connection, config: Config, path: Path, sites: Sites | None, first_round: FirstRound | None) -> None:
    """One training in a process of its own, from its beginning or from where it stopped."""
    serve_parent()
    # Before any other call of torch: a forked process must not use the thread pool of its parent.
    torch.set_num_threads(1)
    # Nobody follows one of many trainings, and its folder may be used by a study that names other trackers.
    single = config.model_copy(update={"engine": config.engine.model_copy(update={"workers": 1}), "tracking": ()})
    observer = Observer(round=lambda done: pipe.send(done.round_no + 1))
    try:
        if RunFolder(path).lines():
            with _naming(path):
                resume(path, workers=1, sites=sites, observer=observer, report=False)
        else:  # A training that was killed before its first line starts anew.
            execute(single, path, sites=sites, first_round=first_round, replace=True, observer=observer, report=False)
        pipe.send(config.n_rounds)
    except FedceError as error:
        pipe.send(error)
    except Exception as error:  # noqa: BLE001 (the parent must learn of any error)
        write_bytes(RunFolder(path).log_file, traceback.format_exc().encode())
        details = f"details in {RunFolder(path).log_file}"
        pipe.send(EngineError(f"the training in {path} failed: {type(error).__name__}: {error} ({details})"))


@cache
def _code_version() -> str:
    """Digest that changes with any file that may change a result."""
    root = Path(__file__).parents[1]
    files = sorted(file for folder in DECISIVE for file in root.glob(f"{folder}/**/*.py"))
    return f"{__version__} {sha256(b''.join(file.read_bytes() for file in files)).hexdigest()}"
