"""From a configuration to a run folder: what the command line, the studies and a notebook all call."""

import platform
import secrets
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from time import monotonic, time
from typing import Any, Protocol

import numpy as np
from pydantic import TypeAdapter

from fedce import __version__, algorithms, attacks, federation, models
from fedce.algorithms.reconstruction import reconstructed_values
from fedce.config import BUILT_IN, Config, Guard, load_recorded, parse
from fedce.core.algorithm import Algorithm, State
from fedce.core.site import Memory
from fedce.core.site import Site as LocalSite
from fedce.data import Sites, load_sites
from fedce.data.splits import NAMES
from fedce.engines.local import LocalEngine
from fedce.engines.remote import Courier, Event, Known, RemoteEngine, Rules
from fedce.engines.shared import Shelf
from fedce.errors import ConfigError, ReplyError, RunError, nearest
from fedce.federation import Round
from fedce.files import digest_of, write_json, write_tensors
from fedce.guard import PROBATION
from fedce.guard.signs import Signs
from fedce.identity import coordinator
from fedce.learn import Learner
from fedce.messages import Member, Reply, Task
from fedce.params import Layout, Params, to_named
from fedce.pictures.examples import Example, example, write_examples
from fedce.record import FORMAT, RunFolder, format_of
from fedce.results import results_of
from fedce.site import member_of, perform

MEMBER = TypeAdapter(Member)
"""From what a ledger holds, where tuples have become lists."""


class RoundSeen(Protocol):
    """What an observer is told of a round."""

    @property
    def round_no(self) -> int: ...
    @property
    def mean_score(self) -> float: ...
    @property
    def shares(self) -> Mapping[str, float]: ...


@dataclass(frozen=True)
class Observer:
    """Who wants to know how a run goes."""

    notice: Callable[[str], None] = lambda message: None
    start: Callable[[Config, Mapping[str, Member], int], None] = lambda config, members, first_round: None
    round: Callable[[RoundSeen], None] = lambda done: None


@dataclass(frozen=True)
class Result:
    """A finished run."""

    folder: Path
    values: Mapping[str, Any]
    """Everything in results.json."""

    @property
    def contributions(self) -> dict[str, float]:
        """Each site's share; they sum to 1."""
        return dict(self.values["contributions"])

    @property
    def dice(self) -> dict[str, float]:
        """Test Dice of the model at each site."""
        return dict(self.values["dice"])

    @property
    def fairness(self) -> dict[str, float]:
        return dict(self.values["fairness"])

    def plot(self, path: str | Path) -> Path:
        """Save a picture of the contributions over the rounds (PNG, SVG or PDF by the ending)."""
        from fedce.pictures.plots import save_contributions

        return save_contributions(RunFolder.open(self.folder).rounds(), Path(path))


class Plan:
    """What the server knows: the experiment, and what the sites told of themselves."""

    def __init__(self, config: Config, members: Mapping[str, Member]) -> None:
        self.config = config
        self.members = dict(members)
        self.algorithm: Algorithm = algorithms.made_for(config)
        if config.engine.min_sites > len(members):
            raise ConfigError(f"engine.min_sites is {config.engine.min_sites}, but there are only {len(members)} sites")
        if config.sites_per_round is not None:
            _check_draw(config, self.algorithm)
        for site in (*config.leave_out, *config.freerider.plant):
            if site not in members:
                known = f"{nearest(site, members)}; there are: {', '.join(members)}"
                raise ConfigError(f"no site is called {site!r}{known}")

    @property
    def first(self) -> Member:
        """All have the same size of images and the same classes."""
        return next(iter(self.members.values()))

    @cached_property
    def n_channels(self) -> int:
        """What the network takes; grey sites among colour ones repeat their channel."""
        return max(member.shape[0] for member in self.members.values())

    @cached_property
    def learner(self) -> Learner:
        """Built once in the parent; forked workers inherit it warm."""
        n_classes, (height, width) = len(self.first.classes), self.first.shape[1:]
        network = models.build(self.config.model, self.n_channels, n_classes, self.config.seed)
        models.check_fits(network, self.n_channels, n_classes, height, width)
        device = models.choose_device(self.config.engine.device)
        return Learner(network, self.config.train, self.config.data.normalize, device)

    @property
    def layout(self) -> Layout:
        return self.learner.layout

    @property
    def keeps(self) -> type | None:
        return self.algorithm.keeps

    @property
    def detects(self) -> bool:
        """Whether free riders are looked for; where nothing is exchanged there is nothing to ride on."""
        return self.config.freerider.detect and self.algorithm.traits.exchanges

    @property
    def limits(self) -> federation.Limits | None:
        """What the guard asks of the models that come, if it is on."""
        if self.config.guard == "off":
            return None
        # Where every site ends with a model of its own, nobody uses the common running statistics.
        return federation.Limits(self.config.max_length, statistics=not self.algorithm.traits.personal)

    def initial_state(self) -> State:
        members = sorted(self.members.keys() - set(self.config.leave_out))
        return self.algorithm.begin(members, self.learner.params)


def _check_draw(config: Config, algorithm: Algorithm) -> None:
    assert config.sites_per_round is not None
    if algorithm.traits.sites_claim_novelty:
        raise ConfigError(
            "sites_per_round: with estimate='site' a site measures its own novelty by the model of the next round, "
            "which it does not get if it is not drawn; use estimate='server'"
        )
    if config.freerider.detect:
        raise ConfigError(
            "sites_per_round: freerider.detect compares what a site says in one round and in the next; use one of them"
        )
    if config.sites_per_round < config.engine.min_sites:
        raise ConfigError(
            f"sites_per_round is {config.sites_per_round}, and engine.min_sites {config.engine.min_sites}"
        )


@dataclass(frozen=True)
class Played:
    """What a site did with a task."""

    task: Task
    reply: Reply
    memory: Memory | None

    def is_of(self, task: Task) -> bool:
        """Whether this is what the site would do with another task."""
        same = replace(self.task, params=task.params, persist=task.persist, shares=task.shares)
        return task == same and np.array_equal(task.params.vector, self.task.params.vector)


FirstRound = dict[str, Played]


class Participants(Plan):
    """All sites of an experiment on this machine, ready to work in any process."""

    def __init__(self, config: Config, sites: Sites, first_round: FirstRound | None = None) -> None:
        super().__init__(config, {data.name: member_of(data, sites.classes) for data in sites})
        self.sites = sites
        self.first_round = first_round or {}
        self.work_by_site = {data.name: len(data.images) for data in sites}
        self._hospitals: dict[str, LocalSite] = {}

    def hospital(self, site: str) -> LocalSite:
        if site not in self._hospitals:
            config, classes = self.config, tuple(self.sites.classes)
            self._hospitals[site] = attacks.hospital(
                self.sites, site, self.learner, classes, config.seed, config.freerider.plant
            )
        return self._hospitals[site]

    def perform(self, task: Task, memory: Memory | None) -> tuple[Reply, Memory | None]:
        """What the site that the task is for does with it."""
        if known := self.first_round.get(task.site):
            if known.is_of(task):
                return known.reply, known.memory
            del self.first_round[task.site]
        reply, memory = perform(self.algorithm, self.hospital(task.site), task, memory)
        return attacks.said(reply, self.config.freerider.plant.get(task.site)), memory

    def play_first_round(self) -> FirstRound:
        """What each site does in the first round: the same whoever else takes part."""
        tasks = [replace(task, score_local=self.detects) for task in self._first_tasks()]
        return {task.site: Played(task, *self.perform(task, None)) for task in tasks}

    def _first_tasks(self) -> list[Task]:
        state = self.initial_state()
        return [self.algorithm.task(state, site) for site in state.sites]

    def __getstate__(self) -> dict[str, Any]:
        """For spawned workers, which build their own network."""
        kept = {key: value for key, value in self.__dict__.items() if key != "learner"}
        return {**kept, "_hospitals": {}}


class _Checkpoints:
    """When to save: by the clock, so that quick rounds don't pay for it each time, and always at the end."""

    def __init__(self, seconds: float, n_rounds: int) -> None:
        self.seconds, self.n_rounds = seconds, n_rounds
        self.last = self.round_began = monotonic()
        self.due = False

    def persist(self, round_no: int) -> bool:
        now = monotonic()
        duration, self.round_began = now - self.round_began, now
        # Decided before the round, because the sites save during it: so by when it will have ended.
        self.due = now - self.last + duration >= self.seconds or round_no == self.n_rounds - 1
        return self.due

    def save(self, path: Path, state: State, entry: Mapping[str, Any]) -> None:
        if self.due:
            federation.save_state(path, state, entry)
            self.last = monotonic()


def run(
    sites: Sites | str = "fundus6",
    algorithm: Algorithm | str = "fedce",
    *,
    out: str | Path,
    rounds: int | None = None,
    seed: int = 0,
    guard: Guard = "standard",
    workers: int = 0,
    replace: bool = False,
    settings: Mapping[str, Any] | None = None,
    observer: Observer | None = None,
) -> Result:
    """Train one model across the sites; the record goes to the folder `out`.

    `settings` are further tables of the experiment file, for example {"train": {"lr": 3e-4}}.
    """
    for table in ("data", "algorithm", "seed", "rounds", "guard"):
        if table in (settings or {}):
            raise ConfigError(f"settings: {table!r} is given by sites, algorithm, seed, rounds or guard, not here")
    members = sites if isinstance(sites, Sites) else load_sites(sites)
    if isinstance(algorithm, str):
        name, options = algorithm, {}
    else:
        name, options = algorithms.name_of(algorithm), algorithms.settings_of(algorithm)
    config = parse(
        {
            "seed": seed,
            "rounds": rounds,
            "guard": guard,
            "data": members.config.model_dump(),
            **(settings or {}),
            "algorithm": {"name": name, **options},
            "engine": {"workers": workers, **(settings or {}).get("engine", {})},
        }
    )
    return execute(config, Path(out), sites=members, replace=replace, observer=observer, command="fedce.run(...)")


def resolve(config: Config) -> Config:
    """The configuration with the algorithm's own defaults filled in; an unknown option is refused."""
    algorithm = algorithms.make(config.algorithm.name, config.algorithm.options)
    if isinstance(algorithm, algorithms.QFedAvg) and algorithm.local_lr is None:
        algorithm = algorithms.make(config.algorithm.name, {**config.algorithm.options, "local_lr": config.train.lr})
    table = config.algorithm.model_validate({"name": config.algorithm.name, **algorithms.settings_of(algorithm)})
    data = config.data
    if data.source not in BUILT_IN:  # So that the run can be resumed from any folder.
        root = str(Path(data.root).resolve()) if data.root else None
        data = data.model_copy(update={"source": str(Path(data.source).resolve()), "root": root})
    return config.model_copy(update={"algorithm": table, "data": data})


def execute(
    config: Config,
    out: Path,
    *,
    sites: Sites | None = None,
    first_round: FirstRound | None = None,
    replace: bool = False,
    report: bool = True,
    observer: Observer | None = None,
    command: str = "",
) -> Result:
    """Run an experiment from its beginning; the first round may have been played before, for several of them.

    With `report`, the run records what only its report shows: the examples, and how the intervals narrowed. The page
    itself is for whoever called this to write (`present.reported`).
    """
    observer = observer or Observer()
    # Everything that can be refused is refused before the folder is made.
    resolved = resolve(config)
    participants = Participants(resolved, sites or load_sites(config.data, notify=observer.notice), first_round)
    state = participants.initial_state()
    run_folder = RunFolder.create(out, resolved, replace=replace)
    with run_folder.lock():
        about = {**_about(participants, run_folder), **_signing(run_folder, observer)}
        splits = _write_splits(run_folder, participants.sites)
        run_folder.append({"kind": "start", "time": time(), "command": command, **about, **splits})
        with LocalEngine(participants, run_folder.memory_folder, config.engine.workers) as engine:
            return _finish(run_folder, participants, state, engine, observer, report)


def resume(
    out: Path,
    *,
    workers: int | None = None,
    sites: Sites | None = None,
    report: bool = True,
    observer: Observer | None = None,
    command: str = "",
) -> Result:
    """Continue a run after a stop or a kill, to the same bits as if it had never stopped."""
    observer = observer or Observer()
    run_folder = RunFolder.open(out)
    if run_folder.results_file.exists():
        run_folder.check_chain()
        observer.notice(f"{out} is finished; nothing to do")
        return Result(out, run_folder.results)
    with run_folder.lock():
        return _resume(run_folder, workers, sites, report, observer, command)


def _resume(
    run_folder: RunFolder, workers: int | None, sites: Sites | None, report: bool, observer: Observer, command: str
) -> Result:
    run_folder.mend_ledger()
    run_folder.check_chain()
    config = run_folder.config
    if workers is not None:
        config = load_recorded(run_folder.config_file, {"engine.workers": workers})
    participants = Participants(config, sites or load_sites(config.data, notify=observer.notice))
    about = {**_about(participants, run_folder), **_signing(run_folder, observer)}
    start = next((entry for entry in run_folder.ledger() if entry["kind"] == "start"), None)
    if start is None:
        about |= _write_splits(run_folder, participants.sites)
    else:
        _check_unchanged(run_folder, start, about)
    state = _where_it_was(run_folder, participants)
    kind = "resume" if start else "start"
    run_folder.append({"kind": kind, "time": time(), "command": command, "round": state.round_no, **about})
    with LocalEngine(participants, run_folder.memory_folder, config.engine.workers) as engine:
        return _finish(run_folder, participants, state, engine, observer, report)


def _signing(run_folder: RunFolder, observer: Observer) -> dict[str, str]:
    """Have the ledger's lines signed, and tell by whom; where no key can be kept, nothing is signed."""
    try:
        identity = coordinator()
    except RunError as error:
        observer.notice(f"the ledger is not signed: {error}; set FEDCE_KEY to a file that can be written")
        return {}
    run_folder.sign = identity.sign
    return {"coordinator": identity.public}


def _where_it_was(run_folder: RunFolder, plan: Plan) -> State:
    """The state to go on from; what it knows of its last round and the ledger does not is added there."""
    if not run_folder.state_file.exists():
        return plan.initial_state()
    state, entry = federation.load_saved(run_folder.state_file, plan.initial_state())
    if entry is not None and entry["round"] not in {done["round"] for done in run_folder.rounds()}:
        run_folder.append(entry)
    return state


def coordinate(
    config: Config, out: Path, courier: Courier, *, observer: Observer | None = None, command: str = ""
) -> Result:
    """Run an experiment whose sites are elsewhere: from its beginning, or from where it was left."""
    observer = observer or Observer()
    run_folder = RunFolder(out)
    if run_folder.results_file.exists():
        return Result(out, run_folder.results)
    resolved = resolve(config)
    if not run_folder.config_file.exists():
        run_folder = RunFolder.create(out, resolved)
    with run_folder.lock(), Shelf(out) as shelf:
        run_folder.mend_ledger()
        if not run_folder.lines():  # Nothing has begun, so the experiment may still be another one.
            run_folder.write_config(resolved)
        run_folder.check_chain()
        record = _RemoteRecord(run_folder, _signing(run_folder, observer))
        engine = RemoteEngine(courier, record.rules(resolved), record.note, record.known, observer.notice, shelf)
        plan = record.plan = Plan(resolved, engine.gather())
        engine.bind(plan.layout, plan.n_channels)
        state = record.start(command)
        return _finish(run_folder, plan, state, engine, observer, report=True)


class _RemoteRecord:
    """The ledger of a run whose sites come and go."""

    def __init__(self, run_folder: RunFolder, coordinator: Mapping[str, str]) -> None:
        self.run_folder, self.coordinator = run_folder, coordinator
        ledger = run_folder.ledger()
        self.begun = next((entry for entry in ledger if entry["kind"] == "start"), None)
        if self.begun is not None and "run" not in self.begun:
            raise RunError(f"{run_folder.path} holds a run of the local engine; choose another folder")
        self.run: str = self.begun["run"] if self.begun else secrets.token_hex(8)
        self.known = {
            entry["site"]: Known(entry["key"], MEMBER.validate_python(entry["member"]))
            for entry in ledger
            if entry["kind"] == "join"
        }
        self.plan: Plan | None = None
        self._early: list[Event] = []

    def rules(self, config: Config) -> Rules:
        engine = config.engine
        stated = config.data.classes
        return Rules(
            run=self.run,
            members=engine.members,
            min_sites=engine.min_sites,
            join_seconds=engine.join_seconds,
            deadline_seconds=engine.deadline_seconds,
            version=__version__,
            classes=None if stated is None else {name: tuple(values) for name, values in stated.items()},
            size=config.data.size,
        )

    def start(self, command: str) -> State:
        """Write down that the run begins, or goes on; returns the state that it begins with."""
        assert self.plan is not None
        about = {"run": self.run, **_about(self.plan, self.run_folder), **self.coordinator}
        if self.begun is not None:
            _check_config(self.run_folder, self.begun, about)
        state = _where_it_was(self.run_folder, self.plan)
        kind = "resume" if self.begun else "start"
        self.run_folder.append({"kind": kind, "time": time(), "command": command, "round": state.round_no, **about})
        early, self._early = self._early, []
        self.begun = self.begun or about
        for event in early:
            self.note(event)
        return state

    def note(self, event: Event) -> None:
        if self.begun is None or self.plan is None:  # The ledger begins with the start.
            self._early.append(event)
            return
        about = {"time": time(), "round": event.round_no, "site": event.site}
        if event.joined is None:
            self.run_folder.append({"kind": "event", **about, "what": event.what})
            return
        member = event.joined.member
        self.plan.members.setdefault(member.name, member)
        self.run_folder.append({"kind": "join", **about, "key": event.joined.key, "member": asdict(member)})


def _check_unchanged(run_folder: RunFolder, start: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    """A run is continued with what it was started with, or not at all."""
    for site in sorted(start["sites"].keys() | about["sites"].keys()):
        before, now = (sites.get(site, {}).get("fingerprint") for sites in (start["sites"], about["sites"]))
        if before != now:
            what = "was added" if before is None else "is gone" if now is None else "has other data"
            raise RunError(
                f"site {site!r} {what} since {run_folder.path} was started; restore it as it was, or start a new run"
            )
    _check_config(run_folder, start, about)


def _check_config(run_folder: RunFolder, start: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    if (begun := format_of([start])) != FORMAT:
        raise RunError(
            f"{run_folder.ledger_file} has format {begun}, and this version of fedce writes format {FORMAT}; "
            "finish the run with the version that began it, or start a new run"
        )
    if start["config"] != about["config"]:
        raise RunError(
            f"{run_folder.config_file} was changed since the run was started; restore it, or start a new run"
        )


def _finish(
    run_folder: RunFolder,
    plan: Plan,
    state: State,
    engine: federation.Engine,
    observer: Observer,
    report: bool,
) -> Result:
    """Run the rounds that are left, evaluate, and write the results."""
    config = plan.config
    recorded = {entry["round"]: entry for entry in run_folder.rounds()}
    remote, tell_all = config.engine.name != "local", config.engine.tell == "all"
    # A site that is not drawn when the others save would lose what it learned since.
    every_round = remote or config.sites_per_round is not None
    checkpoints = _Checkpoints(0.0 if every_round else config.engine.checkpoint_seconds, config.n_rounds)
    min_sites = min(config.engine.min_sites, len(state.sites))
    n_rounds = config.n_rounds if state.sites else 0
    observer.start(config, plan.members, state.round_no)
    if config.sites_per_round and n_rounds * config.sites_per_round < PROBATION * len(state.sites):
        observer.notice(
            f"{n_rounds} rounds with {config.sites_per_round} of {len(state.sites)} sites measure some of them in "
            f"fewer than {PROBATION} rounds: their shares will say little; set rounds higher"
        )
    for done in federation.rounds(
        plan.algorithm,
        state,
        engine,
        n_rounds,
        min_sites,
        checkpoints.persist,
        plan.detects,
        config.leave_out,
        tell_all,
        plan.limits,
        federation.Draw(config.sites_per_round, config.seed) if config.sites_per_round else None,
    ):
        entry = _ledger_entry(done, plan.members, config.leave_out)
        run_folder.check_entry(entry)
        # The state first: a round that was saved and not yet written down is written down on resume.
        checkpoints.save(run_folder.state_file, done.state, entry)
        if done.round_no in recorded:
            _check_same(run_folder, recorded[done.round_no], entry)
        else:
            run_folder.append(entry)
        state = done.state
        observer.round(done)
    replies, rejected = federation.evaluate(plan.algorithm, state, engine, sorted(plan.members), tell_all)
    if not replies:
        raise ReplyError(f"no site could evaluate the model ({rejected or 'no replies'})")
    _write_models(run_folder, plan, state, replies)
    # What was written down before a kill counts, also where a site did not answer a second time.
    if run_folder.end is None:
        end = _end_entry(plan, state, replies, rejected)
        if report and isinstance(plan, Participants):
            examples = _examples(plan, state, replies)
            write_examples(run_folder.examples_file, examples)
            end["example_dice"] = {site: found.dice for site, found in examples.items()}
        run_folder.append({**end, "files": _digests(run_folder, replies)})
    # A page that is there would be of earlier results, and whoever started this run would take it for its report.
    run_folder.report_file.unlink(missing_ok=True)
    run_folder.write_results(results_of(config, run_folder.ledger(), over_rounds=report))
    return Result(run_folder.path, run_folder.results)


def _ledger_entry(done: Round, members: Iterable[str], leave_out: Sequence[str]) -> dict[str, Any]:
    state = done.state
    sites = {
        site: {
            "n_train": reply.n_train,
            "weight": state.rho.get(site, 0.0),
            "share": state.shares.get(site, 0.0),
            "score": reply.score,
            "loss": reply.loss,
            **_own_words(reply),
            **_detector_facts(done, reply),
            "cos": None,
            "err": reply.error_without,
            **state.measured.get(site, {}),
            # Rounded, because an interval needs no more; the terms themselves are kept to the last bit.
            "err_replicates": [round(error, 5) for error in reply.error_replicates],
            "flags": _faults(done, site),
            **({"statistics_harm": done.harms[site]} if site in done.harms else {}),
            **({"statistics_distance": done.far[site]} if site in done.far else {}),
            "seconds": round(reply.seconds, 3),
            **({"signed": dict(reply.signed)} if reply.signed else {}),
        }
        for site, reply in done.replies.items()
    }
    return {
        "kind": "round",
        "round": done.round_no,
        "time": time(),
        "seconds": round(done.seconds, 3),
        "mean_score": done.mean_score,
        "n_models": done.n_models,
        "asked": list(done.asked),
        **({"absent": list(done.absent)} if done.state.draws else {}),
        **({"sketch": done.sketches[""]} if done.sketches else {}),
        "sites": sites,
        "rejected": dict(done.rejected),
        "missing": federation.missing_of(done, members, leave_out),
        "notes": list(state.notes),
    }


def _digests(run_folder: RunFolder, replies: Mapping[str, Reply]) -> dict[str, str]:
    """Of the files that belong to the end: models, and the examples."""
    files = [run_folder.model_file, *map(run_folder.site_model_file, replies), run_folder.examples_file]
    return {str(file.relative_to(run_folder.path)): digest_of(file) for file in files if file.exists()}


def _end_entry(plan: Plan, state: State, replies: Mapping[str, Reply], rejected: Mapping[str, str]) -> dict[str, Any]:
    """What the sites said of the final model, and what else the results follow from."""
    return {
        "kind": "end",
        "time": time(),
        "model": _model_digest(plan, state, replies),
        "shares": dict(state.shares),
        "evaluations": {
            site: {**asdict(reply.evaluation), **({"signed": dict(reply.signed)} if reply.signed else {})}
            for site, reply in replies.items()
            if reply.evaluation
        },
        "rejected": dict(rejected),
        "missing": dict.fromkeys(sorted(plan.members.keys() - replies.keys() - rejected.keys()), federation.NO_REPLY),
        "reconstruction": reconstructed_values(state),
        "exchanges": plan.algorithm.traits.exchanges,
        "n_parameters": plan.layout.n_trainable,
        "n_values": plan.layout.size,
        "device": str(plan.learner.device),
    }


def _faults(done: Round, site: str) -> list[str]:
    """What a reader should look at: found at the border, or by the guard; each once."""
    signs = done.state.measured.get(site, {}).get("signs")
    by_guard = Signs(**signs).faults if signs else []
    return list(dict.fromkeys([*done.flags.get(site, ()), *by_guard]))


def _own_words(reply: Reply) -> dict[str, Any]:
    """What only some methods ask of a site."""
    told = {"score_local": reply.score_local, "loss_before": reply.loss_before}
    return {name: value for name, value in told.items() if value is not None}


def _detector_facts(done: Round, reply: Reply) -> dict[str, Any]:
    """What the free-rider detector needs of a site; nothing if it is off."""
    if reply.site not in done.similarity:
        return {}
    return {
        "score_local": reply.score_local,
        "similarity": done.similarity[reply.site],
        "sketch": done.sketches[reply.site],
    }


def _check_same(run_folder: RunFolder, recorded: Mapping[str, Any], entry: Mapping[str, Any]) -> None:
    """A round that is run again after a resume must give what the ledger says."""
    for site, facts in entry["sites"].items():
        before = recorded["sites"].get(site, {})
        for key in ("weight", "score", "loss", "cos", "err"):
            if before.get(key) != facts[key]:
                raise RunError(
                    f"{run_folder.path}: round {entry['round'] + 1}, run again, gives site {site!r} another {key} than "
                    "the ledger; was it started on another machine, on another device or with other versions?"
                )


def _write_splits(run_folder: RunFolder, sites: Sites) -> dict[str, str]:
    """Write splits.json; its digest is for the start's line."""
    write_json(run_folder.splits_file, _splits(sites))
    return {"splits": digest_of(run_folder.splits_file)}


def _splits(sites: Sites) -> dict[str, dict[str, list[str]]]:
    return {data.name: {part: [data.files[i] for i in getattr(data.split, part)] for part in NAMES} for data in sites}


def _about(plan: Plan, run_folder: RunFolder) -> dict[str, Any]:
    sites = {
        name: {
            "n_train": member.n_train,
            "n_validation": member.n_validation,
            "n_test": member.n_test,
            "n_train_cases": member.n_train_cases,
            "n_validation_cases": member.n_validation_cases,
            "n_test_cases": member.n_test_cases,
            "fingerprint": member.fingerprint,
        }
        for name, member in plan.members.items()
    }
    # The engine may change between a start and a resume; nothing else may.
    decisive = plan.config.model_dump_json(exclude={"engine"})
    return {
        "format": FORMAT,
        "versions": versions(),
        "config": sha256(decisive.encode()).hexdigest(),
        # Whoever checks the ledger later reads the experiment from there.
        "config_file": digest_of(run_folder.config_file),
        "sites": sites,
    }


def versions() -> dict[str, str]:
    packages = {name: version(name) for name in ("fedce", "torch", "monai", "numpy")}
    return {**packages, "python": platform.python_version(), "platform": f"{sys.platform} {platform.machine()}"}


def _write_models(run_folder: RunFolder, plan: Plan, state: State, replies: Mapping[str, Reply]) -> None:
    about = {
        "classes": {name: list(values) for name, values in plan.first.classes.items()},
        "shape": (plan.n_channels, *plan.first.shape[1:]),
    }

    def write(path: Path, params: Params) -> None:
        write_tensors(path, to_named(params), about)

    if not plan.algorithm.traits.personal:
        write(run_folder.model_file, state.params)
    for site, reply in replies.items():
        if reply.params is not None and plan.algorithm.traits.personal:
            write(run_folder.site_model_file(site), reply.params)


def _examples(participants: Participants, state: State, replies: Mapping[str, Reply]) -> dict[str, Example]:
    """What the model that each site would use finds in the site's first test case; only where all images are here."""
    learner, found = participants.learner, {}
    for data in participants.sites:
        own = replies[data.name].params if data.name in replies else None
        learner.load(own if own is not None else state.params)
        found[data.name] = example(data, learner.predict)
    return found


def _model_digest(plan: Plan, state: State, replies: Mapping[str, Reply]) -> str:
    """Of the common model, or of all sites' own models together."""
    if not plan.algorithm.traits.personal:
        return state.params.digest
    own = "".join(reply.params.digest for _, reply in sorted(replies.items()) if reply.params is not None)
    return sha256(own.encode()).hexdigest()
