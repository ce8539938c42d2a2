"""How a federation that waits says for whom: in the run folder at every change, and in words when it takes long."""

from collections.abc import Callable, Iterable, Sequence
from math import inf
from statistics import median
from time import time

from fedce.engines.joining import Reports
from fedce.record.connections import Connections

SHOW_SECONDS = 1.0
"""The run folder is written at most this often, because each write waits for the disk."""
SOON_SECONDS = 5.0
REMIND_SECONDS = 60.0
"""The coordinator names a site that is not connected after the shorter time, and all awaited sites after the longer."""


ROUNDS_KEPT = 20
"""The last rounds that show how long answers usually take."""
MANY_TIMES, LEAST_SECONDS = 10.0, 600.0
"""Without a stated deadline, a silent site is waited for this many times as long as the others usually take, and at
least so long: nobody can stall a federation."""


class Deadline:
    """How long answers are waited for; the first answers show what is usual.

    >>> deadline = Deadline(None)
    >>> deadline.seconds, deadline.after([100.0, 120.0, 5000.0]).seconds
    (inf, 1200.0)
    """

    def __init__(self, stated: float | None, usual: Sequence[float] = ()) -> None:
        self._stated, self._usual = stated, tuple(usual)

    @property
    def seconds(self) -> float:
        if self._stated is not None:
            return self._stated
        return max(MANY_TIMES * median(self._usual), LEAST_SECONDS) if self._usual else inf

    def after(self, arrivals: Sequence[float]) -> "Deadline":
        """The deadline when these answers came after so many seconds; of a round its median counts, which a few slow
        sites don't move."""
        return Deadline(self._stated, (*self._usual, median(arrivals))[-ROUNDS_KEPT:]) if arrivals else self


class Waiting:
    """The coordinator's waits, one after another: before the first round, and for the answers to each question."""

    def __init__(self, reports: Reports, clock: Callable[[], float]) -> None:
        self._reports, self._clock = reports, clock
        self._shown: Connections | None = None
        self._shown_at = 0.0
        self.begin(None)

    def begin(self, round_no: int | None) -> None:
        self._round_no = round_no
        self._began = self._clock()
        self._remind_at = self._began + REMIND_SECONDS
        self._named: list[str] = []
        """The absent sites that were named last."""

    @property
    def seconds(self) -> float:
        return self._clock() - self._began

    def look(self, here: Iterable[str], waiting_for: Iterable[str], unnamed: int = 0) -> None:
        """Take notice of how things stand; says so where this is news, or where nothing was said for a minute."""
        now, today, waited = self._clock(), time(), self.seconds
        found = Connections(
            time=today,
            since=today - waited,
            round_no=self._round_no,
            here=sorted(here),
            waiting_for=sorted(waiting_for),
            unnamed=unnamed,
        )
        is_due = now >= self._remind_at
        if is_due or self._is_news(found, now):
            self._shown, self._shown_at = found, now
            self._reports.connections(found)
        if is_due or (waited >= SOON_SECONDS and found.absent != self._named):
            self._remind_at = now + REMIND_SECONDS
            self._named = found.absent
            self._reports.notice(found.sentence)

    def _is_news(self, found: Connections, now: float) -> bool:
        before = self._shown
        if before is None:
            return True
        same = before.model_copy(update={"time": found.time, "since": found.since}) == found
        return not same and now - self._shown_at >= SHOW_SECONDS
