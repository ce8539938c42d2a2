"""Every way to start a run, from Python, the command line or an engine's server."""

import secrets
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from time import time
from typing import Any

from pydantic import TypeAdapter

from fedce import __version__
from fedce.base.config import Config, load_recorded, parse
from fedce.base.errors import ConfigError, RunError, short
from fedce.base.files import digest_of
from fedce.base.recipes import PLAN
from fedce.base.registry import load_object
from fedce.core.algorithm import State
from fedce.core.messages import Member
from fedce.data import Sites, load_sites
from fedce.data.cache import Notify
from fedce.data.fingerprint import fingerprints_of
from fedce.engines.courier import Courier
from fedce.engines.joining import Event, Known, Reports, Rules
from fedce.engines.local import LocalEngine
from fedce.engines.planning import Collecting, planned_by_sites
from fedce.engines.prolonging import is_finished, prolong
from fedce.engines.remote import RemoteEngine
from fedce.engines.shared import Shelf
from fedce.federation.boundary import Boundary
from fedce.federation.challenge import challenge_of
from fedce.federation.lines import about_run, config_digest, write_splits
from fedce.federation.plan import FirstRound, Participants, Plan, resolve
from fedce.federation.session import (
    Observer,
    Result,
    check_config,
    check_data,
    check_unchanged,
    finish,
    record_saved_round,
    signing,
    where_it_was,
)
from fedce.learning.planning import Planned, completed_by, plan_of, planned
from fedce.record.entries import Join
from fedce.record.folder import RunFolder
from fedce.record.notices import take_waiting
from fedce.record.standing import Standings
from fedce.tracking import check_installed

CARRIERS = {name: f"fedce.engines.{name}:run_here" for name in ("flower", "nvflare")}
"""Functions that run an experiment on this machine with an engine that is made for many machines."""
PATIENCE = 60.0
"""Seconds that a coordinator waits for the one before it to end."""
MEMBER = TypeAdapter(Member)
"""Reads a member from a ledger, where tuples have become lists."""


def experiment_of(
    tree: Mapping[str, Any], sites: Sites | str | Path, notify: Notify = lambda message: None
) -> tuple[Config, Sites]:
    """The experiment that these keys state, completed by a plan if their recipe is "plan", and its sites."""
    if not isinstance(sites, Sites):
        found = planned({**tree, "data": {"source": str(sites), **tree.get("data", {})}}, notify=notify)
        _tell(found, notify)
        return found.config, load_sites(found.config.data, notify=notify)
    if refused := tree.get("data", {}).keys() - {"normalize"}:
        key = min(refused)
        raise ConfigError(f"settings: the sites are loaded, so data.{key} can't change; use load_sites(..., {key}=...)")
    tree = {**tree, "data": {**sites.config.model_dump(exclude_unset=True), **tree.get("data", {})}}
    if tree.get("recipe") == PLAN:
        found = completed_by(tree, plan_of(fingerprints_of(sites), tree))
        _tell(found, notify)
    else:
        found = Planned(parse(tree))
    # Loading does not depend on how training normalises grey values.
    data = sites.config.model_copy(update={"normalize": found.config.data.normalize})
    return found.config.model_copy(update={"data": data}), sites


def _tell(found: Planned, notify: Notify) -> None:
    if found.chosen:
        notify(found.line)


def check_same(run_folder: RunFolder, config: Config, sites: Sites) -> None:
    """Raise a RunError unless the folder holds a run of this experiment on these data, finished or not."""
    here, asked = run_folder.config, resolve(config)
    if config_digest(here) != config_digest(asked):
        key, there, wanted = _first_difference(here.model_dump(mode="json"), asked.model_dump(mode="json"))
        how = f", or 'fedce run --resume {run_folder.path} --rounds {wanted}' to train it further"
        raise RunError(
            f"{run_folder.path} holds another run: there {key} is {short(there)}, here {short(wanted)}; choose another "
            f"out, or start anew with replace=True{how if key == 'rounds' and wanted > there else ''}"
        )
    # Sites of other engines state their data when they join.
    if here.engine.name == "local" and run_folder.ledger().part is not None:
        check_data(run_folder, {site.name: site.fingerprint for site in sites})


def _first_difference(here: Mapping[str, Any], asked: Mapping[str, Any], table: str = "") -> tuple[str, Any, Any]:
    """The first key whose values differ, and both values; the engine may differ."""
    different = [key for key in dict.fromkeys([*asked, *here]) if here.get(key) != asked.get(key)]
    key = next(key for key in different if (table, key) != ("", "engine"))
    there, wanted = here.get(key), asked.get(key)
    if not table and isinstance(there, Mapping) and isinstance(wanted, Mapping):
        return _first_difference(there, wanted, f"{key}.")
    return f"{table}{key}", there, wanted


def conduct(
    config: Config | None,
    out: Path,
    *,
    sites: Sites | None = None,
    workers: int | None = None,
    replace: bool = False,
    observer: Observer | None = None,
    command: str = "",
    more: Mapping[str, Any] | None = None,
) -> Result:
    """Run an experiment with the engine that it names or, without an experiment, continue the run in `out`.

    `more` are changes with which a finished run goes on: rounds, and perhaps data.sites.
    """
    observer = observer or Observer()
    if config is None and more:
        prolong(out, more, sites=sites, observer=observer, command=command)
    wanted = config or RunFolder.open(out).config
    if wanted.engine.name != "local":
        carry = load_object(CARRIERS.get(wanted.engine.name, wanted.engine.name), "engine.name")
        carried: Result = carry(wanted, out, observer, command, resume=config is None, replace=replace)
        return carried
    if config is None:
        return resume(out, workers=workers, sites=sites, observer=observer, command=command)
    return execute(config, out, sites=sites, replace=replace, observer=observer, command=command)


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
    """Run an experiment from its beginning; `first_round` may hold a first round that several experiments share.

    With `report`, the run records what only its report shows: the examples, and how the intervals narrowed. The caller
    writes the page itself (`present.reported`).
    """
    observer = observer or Observer()
    # Everything that can be refused is refused before the folder is made.
    resolved = resolve(config)
    check_installed(resolved.tracking)
    participants = Participants(resolved, sites or load_sites(config.data, notify=observer.notice), first_round)
    state = participants.initial_state()
    run_folder = RunFolder.create(out, resolved, replace=replace)
    with run_folder.lock():
        about = {**about_run(participants, run_folder), **signing(run_folder, observer)}
        if report:  # Nobody audits the trainings of a study.
            about |= challenge_of(run_folder, resolved)
        splits = write_splits(run_folder.splits_file, participants.sites)
        run_folder.append({"kind": "start", "time": time(), "command": command, **about, **splits})
        return _finish_here(run_folder, participants, state, observer, report)


def _finish_here(
    run_folder: RunFolder, participants: Participants, state: State, observer: Observer, report: bool
) -> Result:
    workers = participants.config.engine.workers
    with LocalEngine(participants, run_folder.memory_folder, workers, run_folder.drawn_memory_folder) as engine:
        return finish(run_folder, participants, state, engine, observer, report)


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
    if is_finished(run_folder):
        run_folder.check_chain()
        observer.notice(f"{out} is finished; nothing to do")
        return Result(out, run_folder.results)
    with run_folder.lock():
        return _resume(run_folder, workers, sites, report, observer, command)


def _resume(
    run_folder: RunFolder, workers: int | None, sites: Sites | None, report: bool, observer: Observer, command: str
) -> Result:
    run_folder.mend_ledger()
    run_folder.settle()
    run_folder.check_chain()
    config = run_folder.config
    if workers is not None:
        config = load_recorded(run_folder.config_file, {"engine.workers": workers})
    participants = Participants(config, sites or load_sites(config.data, notify=observer.notice))
    about = {**about_run(participants, run_folder), **signing(run_folder, observer)}
    part = run_folder.ledger().part
    if part is None:
        about |= write_splits(run_folder.splits_file, participants.sites) | challenge_of(run_folder, config)
    else:
        check_unchanged(run_folder, part, about)
    state = where_it_was(run_folder, participants)
    kind = "resume" if part else "start"
    run_folder.append({"kind": kind, "time": time(), "command": command, "round": state.round_no, **about})
    return _finish_here(run_folder, participants, state, observer, report)


def coordinate(
    config: Config, out: Path, courier: Courier, *, observer: Observer | None = None, command: str = ""
) -> Result:
    """Run an experiment whose sites are on other machines: from its beginning, or from where it stopped."""
    observer = observer or Observer()
    run_folder = RunFolder(out)
    if is_finished(run_folder):
        return Result(out, run_folder.results)
    resolved = resolve(config)
    check_installed(resolved.tracking)
    if not run_folder.config_file.exists():
        run_folder = RunFolder.create(out, resolved)
    # A coordinator that is started again may find the one before still losing its engine, and with it the run.
    with run_folder.lock(PATIENCE), Shelf(out) as shelf, run_folder.connections_shown():
        run_folder.mend_ledger()
        run_folder.settle()
        if not run_folder.lines():  # Before the first line, the experiment may still change.
            run_folder.write_config(resolved)
        run_folder.check_chain()
        key = signing(run_folder, observer)
        if run_folder.lines():  # What has come since the stop counts from here on, also for who may join.
            record_saved_round(run_folder)
            take_waiting(run_folder, observer.notice)
        record = _RemoteRecord(run_folder, key)
        reports = Reports(record.note, observer.notice, run_folder.write_connections)
        rules = record.rules(resolved)
        found = planned_by_sites(resolved, run_folder, Collecting(courier, rules, reports))
        if found.values and not run_folder.lines():
            run_folder.write_config(found.config)
        engine = RemoteEngine(courier, found.rules(rules), reports, record.known, shelf)
        plan = record.plan = Plan(found.config, engine.gather())
        record.planned = found.values
        engine.bind(plan.layout, plan.n_channels, plan.whole_layout)
        state = record.start(command)
        boundary = Boundary(run_folder, observer.notice, lambda site, now: engine.change(site, now.key, now.gone))
        return finish(run_folder, plan, state, engine, observer, report=True, boundary=boundary)


class _RemoteRecord:
    """The ledger of a run whose sites come and go."""

    def __init__(self, run_folder: RunFolder, coordinator: Mapping[str, str]) -> None:
        self.run_folder, self.coordinator = run_folder, coordinator
        ledger = run_folder.ledger()
        self.start_line = ledger.start
        if self.start_line is not None and self.start_line.run is None:
            raise RunError(f"{run_folder.path} holds a run of the local engine; choose another folder")
        self.run = (self.start_line.run if self.start_line else None) or secrets.token_hex(8)
        self.has_begun = self.start_line is not None
        now = Standings.of(ledger).by_site if self.has_begun else {}
        self.known = {
            line.site: Known(now[line.site].key, MEMBER.validate_python(line.content["member"]), now[line.site].gone)
            for line in ledger.of(Join)
        }
        self.plan: Plan | None = None
        self.planned: Mapping[str, Any] = {}
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
            pack=config.pack,
        )

    def start(self, command: str) -> State:
        """Record that the run begins or continues; returns the state that it begins with."""
        assert self.plan is not None
        about = {"run": self.run, **about_run(self.plan, self.run_folder), **self.coordinator}
        if (part := self.run_folder.ledger().part) is not None:
            check_config(self.run_folder, part, about)
        else:
            about |= challenge_of(self.run_folder, self.plan.config)
            if self.planned:
                sent = digest_of(self.run_folder.fingerprints_file)
                about |= {"planned": dict(self.planned), "fingerprints": sent}
        state = where_it_was(self.run_folder, self.plan)
        kind = "resume" if self.start_line else "start"
        self.run_folder.append({"kind": kind, "time": time(), "command": command, "round": state.round_no, **about})
        early, self._early = self._early, []
        self.has_begun = True
        for event in early:
            self.note(event)
        return state

    def note(self, event: Event) -> None:
        if not self.has_begun or self.plan is None:  # The ledger begins with the start.
            self._early.append(event)
            return
        about = {"time": time(), "round": event.round_no, "site": event.site}
        if event.joined is None:
            self.run_folder.append({"kind": "event", **about, "what": event.what})
            return
        member = event.joined.member
        self.plan.members.setdefault(member.name, member)
        self.run_folder.append({"kind": "join", **about, "key": event.joined.key, "member": asdict(member)})
