"""How a run stands now, for the terminal: its round, which of its sites are there, and which are late."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import localtime, strftime
from typing import Any, Literal

from rich.console import RenderableType
from rich.table import Table

from fedce.algorithms.titles import printed_name
from fedce.base.words import cell_text, duration
from fedce.present.pages.live import Record, resume_command, status_line
from fedce.present.terminal import Cells, tables_that_fit
from fedce.questions.runs import State, Summary, reason_of, state_of
from fedce.record.folder import RunFolder

Standing = Literal["answered", "working", "late", "connected", "not connected", "unknown"]
USUAL_TIMES = 3.0
LEAST_SECONDS = 60.0
"""A site is late after this multiple of its usual time for a round, but not before this many seconds."""


@dataclass(frozen=True)
class SiteStatus:
    """One site of a run."""

    site: str
    standing: Standing
    seconds: float | None
    """How long it has been awaited; None if it is not."""
    usual_seconds: float | None
    """Its median time for a round; None before its first round."""
    last_round: int | None
    """The last round, counted from 1, in which it took part."""

    @property
    def words(self) -> str:
        if self.seconds is None:
            return self.standing
        usual = f", usually {duration(self.usual_seconds)}" if self.usual_seconds is not None else ""
        return f"{self.standing}, awaited for {duration(self.seconds)}{usual}"


@dataclass(frozen=True)
class RunStatus:
    """A run and its sites."""

    run: str
    title: str
    state: State
    round: int
    rounds: int
    line: str
    waits: str
    hint: str
    """What to do, or why the run failed; empty if it goes on or is finished."""
    sites: tuple[SiteStatus, ...]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def status_of(run: RunFolder, now: float) -> RunStatus:
    record = Record.read(run)
    state = state_of(run, record.ledger)
    hint = f"{reason_of(run)}; " if state == "failed" else ""
    if state in ("failed", "unfinished"):
        hint += f"continue with '{resume_command(record, run.path)}'"
    return RunStatus(
        run=str(run.path),
        title=f"{printed_name(record.config.algorithm)} on {Path(record.config.data.source).name}",
        state=state,
        round=record.n_done,
        rounds=record.config.n_rounds,
        line=status_line(record, now),
        waits=record.waits(now),
        hint=hint,
        sites=_sites(record, now),
    )


def _sites(record: Record, now: float) -> tuple[SiteStatus, ...]:
    seconds: dict[str, list[float]] = {}
    last: dict[str, int] = {}
    for done in record.rounds:
        for site, facts in done.sites.items():
            seconds.setdefault(site, []).append(facts.seconds)
            last[site] = done.round_no + 1
    usual = {site: median(times) for site, times in seconds.items()}
    named = {*record.started, *record.config.engine.members, *last}
    standings = {site: _standing(record, site, usual.get(site), now) for site in sorted(named)}
    return tuple(
        SiteStatus(site, standing, waited, usual.get(site), last.get(site))
        for site, (standing, waited) in standings.items()
    )


def _standing(record: Record, site: str, usual: float | None, now: float) -> tuple[Standing, float | None]:
    """How a site stands, and for how long it has been awaited."""
    connections = record.connections
    if connections is None or not connections.is_fresh(now):
        return "unknown", None
    if site not in connections.waiting_for:
        if site not in connections.here:
            return "not connected", None
        return ("connected" if connections.round_no is None else "answered"), None
    waited = now - connections.since
    if site not in connections.here:
        return "not connected", waited
    is_late = usual is not None and waited > max(LEAST_SECONDS, USUAL_TIMES * usual)
    return ("late" if is_late else "working"), waited


def status_lines(found: RunStatus, width: int) -> list[RenderableType]:
    """The status for a terminal."""
    lines: list[RenderableType] = [f"{found.run}: {found.title}, {found.state}", found.line]
    lines += [text for text in (found.waits, found.hint) if text]
    if any(site.standing != "unknown" for site in found.sites):
        cells = [(site.site, site.words, _round(site.last_round)) for site in found.sites]
        lines += tables_that_fit(Cells(("site", "now", "last round"), cells), width, "Sites")
    return lines


def _round(number: int | None) -> str:
    return "-" if number is None else str(number)


def runs_tables(found: Sequence[Summary], width: int) -> list[Table]:
    """Runs for a terminal, one in a row."""
    header = ("run", "state", "round", "algorithm", "data", "Dice", "when")
    return tables_that_fit(Cells(header, [_cells(one) for one in found]), width, "")


def _cells(one: Summary) -> tuple[str, ...]:
    when = strftime("%Y-%m-%d %H:%M", localtime(one.time)) if one.time is not None else "-"
    rounds = f"{one.round}/{one.rounds}" if one.rounds else "-"
    return one.name, one.state, rounds, one.algorithm or "-", one.data or "-", cell_text(one.dice, 3), when
