"""The values of the page that follows a run, from the run's record and the time of day alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from shlex import quote
from statistics import median
from time import localtime, strftime
from typing import Any

from fedce.algorithms.titles import printed_name
from fedce.base.config import Config
from fedce.base.words import duration
from fedce.data.shape import counted_as
from fedce.present.columns import COUNTED, sites_table
from fedce.present.glance import glance
from fedce.present.meanings import meanings
from fedce.present.worth import shares_given
from fedce.record.connections import Connections
from fedce.record.entries import DataFacts, Round
from fedce.record.folder import RunFolder
from fedce.record.ledger import Ledger, flags_by_site
from fedce.record.results import worth_so_far

ROUNDS_TIMED = 20
"""The time of a round is estimated from this many last rounds."""
ROUNDS_OF_PATIENCE = 5
SECONDS_OF_PATIENCE = 60
SECONDS_TO_FIRST_ROUND = 300
"""Seconds without news that are allowed before the first round: its length is unknown, and workers are starting."""
SHOWN_NOTES = 8
START_AGAIN = {
    "flower": "flwr run APP SUPERLINK",
    "nvflare": "python -m fedce.engines.nvflare.keeping JOB --kit ADMIN_KIT",
}
"""Commands that continue a run whose coordinator an engine's server has started."""


@dataclass(frozen=True)
class Record:
    """The content of the run folder when it was read."""

    config: Config
    ledger: Ledger
    results: Mapping[str, Any] | None
    has_report: bool
    connections: Connections | None = None
    """Which sites on other machines are there; None on the local engine, and after the end."""

    @classmethod
    def read(cls, run: RunFolder) -> "Record":
        results = run.results if run.results_file.exists() else None
        connections = run.connections if results is None else None
        return cls(run.config, run.ledger(), results, run.report_file.exists(), connections)

    @property
    def rounds(self) -> list[Round]:
        return self.ledger.rounds

    @property
    def started(self) -> Mapping[str, DataFacts]:
        """The sites' data facts, recorded at the start."""
        return self.ledger.part.sites if self.ledger.part else {}

    @property
    def n_done(self) -> int:
        return self.rounds[-1].round_no + 1 if self.rounds else 0

    @cached_property
    def round_seconds(self) -> float | None:
        """Median seconds from one round to the next; the median, because a run may have been stopped in between."""
        last = self.rounds[-ROUNDS_TIMED - 1 :]
        gaps = [after.time - before.time for before, after in pairwise(last)]
        return median(gaps or [done.seconds for done in last]) if last else None

    def stands_still(self, now: float) -> bool:
        """Whether nothing was recorded for much longer than a round takes."""
        if self.results is not None or not (self.ledger or self.connections):
            return False
        if self.connections is not None:
            # While it waits, the coordinator says so once a minute, however long a round takes.
            return not self.connections.is_fresh(now) and now - self.last_news > SECONDS_OF_PATIENCE
        patience = (
            SECONDS_TO_FIRST_ROUND
            if self.round_seconds is None
            else max(SECONDS_OF_PATIENCE, ROUNDS_OF_PATIENCE * self.round_seconds)
        )
        # After a resume, the rounds since the last checkpoint are repeated, and not recorded twice.
        return now - self.last_news > patience + self.config.engine.checkpoint_seconds

    @property
    def last_news(self) -> float:
        """When something was last recorded."""
        times = [self.ledger.lines[-1].time] if self.ledger else []
        return max([*times, *([self.connections.time] if self.connections else [])], default=0.0)

    def waits(self, now: float) -> str:
        """For which sites the coordinator waits now; empty if this is not known, or not a federation of machines."""
        if self.connections is None or not self.connections.is_fresh(now):
            return ""
        return f"{self.connections.sentence} This wait began {duration(now - self.connections.since)} ago."


def values_of(record: Record, run: Path, now: float) -> dict[str, Any]:
    """The page's values, without the figures."""
    config, results = record.config, record.results
    known = known_so_far(record)
    return {
        "name": run.resolve().name,
        "algorithm": printed_name(config.algorithm),
        # Only the folder's name, as in the report.
        "data_name": Path(config.data.source).name,
        "seed": config.seed,
        "drawn": config.sites_per_round is not None,
        "n_done": record.n_done,
        "n_rounds": config.n_rounds,
        "status": status_line(record, now),
        "waits": record.waits(now),
        "warning": _warning(record, run, now),
        "finished": results is not None,
        "has_report": record.has_report,
        "report_command": f"fedce report {quote(str(run))}",
        "glance": glance(dict(results), config) if results is not None else None,
        "sites": sites_table(known, "live", list(record.started)),
        "metrics": sites_table(known, "metrics", list(record.started)),
        "meanings": meanings(known, gives=bool(shares_given(known)), beside=["alone"]),
        "notes": _notes(record.rounds),
    }


def status_line(record: Record, now: float) -> str:
    """How far the run is, in one line."""
    n_rounds = record.config.n_rounds
    if record.results is not None:
        took, mean = duration(record.results["seconds"]), record.results["fairness"]["mean"]
        return f"Finished: {n_rounds} rounds in {took} of training, mean test Dice {mean:.3f}."
    if record.round_seconds is None:
        return f"Starting: no round of {n_rounds} is done yet."
    reached = f"mean validation Dice {record.rounds[-1].mean_score:.3f}"
    if record.n_done >= n_rounds:
        return f"All {n_rounds} rounds are done, {reached}; the model is now tested on the test cases."
    # If a run stands still, the time left is unknown.
    left = f", about {duration(record.round_seconds * (n_rounds - record.n_done))} left"
    return f"Round {record.n_done} of {n_rounds}, {reached}{'' if record.stands_still(now) else left}."


def _warning(record: Record, run: Path, now: float) -> dict[str, str] | None:
    """A warning that the run stands still, and how to continue it; None if it does not."""
    if not record.stands_still(now):
        return None
    since = strftime("%Y-%m-%d %H:%M:%S", localtime(record.last_news))
    usual = f", although a round takes {record.round_seconds:.1f} s" if record.round_seconds is not None else ""
    return {
        "text": f"The run is not advancing: no news since {since}{usual}. It has stalled, or was stopped or killed.",
        "command": resume_command(record, run),
    }


def resume_command(record: Record, run: Path) -> str:
    """The command that continues a run: for a federation of machines, the one that starts its coordinator."""
    started = record.ledger.start.command if record.ledger.start else ""
    by_engine = START_AGAIN.get(record.config.engine.name)
    return by_engine if by_engine and not started.startswith("fedce") else f"fedce run --resume {quote(str(run))}"


def known_so_far(record: Record) -> dict[str, Any]:
    """The values that each site last sent, under the keys that the columns use; for a finished run also its results."""
    # If only some sites take part in each round, most are not in the last one. Later entries win.
    last = {site: facts for done in record.rounds for site, facts in done.sites.items()}

    def last_of(name: str) -> dict[str, Any]:
        return {site: getattr(facts, name) for site, facts in last.items()}

    return {
        COUNTED: counted_as(record.config.data),
        "train_images": {site: facts.n_train for site, facts in record.started.items()},
        **{f"last_{key}": last_of(key) for key in ("score", "weight", "loss", "seconds")},
        "algorithm": record.config.algorithm.name,
        "contributions": last_of("share"),
        **(worth_so_far(record.config, record.ledger) if record.ledger.start else {}),
        "flags": flags_by_site(record.rounds),
        # A site's share also changes in rounds in which the site takes no part.
        **(record.results or {}),
    }


def _notes(rounds: Sequence[Round]) -> list[str]:
    """The last notes of the rounds, newest first."""
    notes = [
        f"Round {done.round_no + 1}: {text}"
        for done in reversed(rounds)
        for text in (
            *(f"reply of {site} rejected ({reason})" for site, reason in done.rejected.items()),
            *done.notes,
        )
    ]
    more = [f"and {len(notes) - SHOWN_NOTES} earlier notes"] if len(notes) > SHOWN_NOTES else []
    return notes[:SHOWN_NOTES] + more
