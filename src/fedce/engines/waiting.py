"""How a federation that waits says for whom: in the run folder at every change, and in words when it takes long."""

from collections.abc import Callable, Iterable
from time import time

from fedce.engines.joining import Reports
from fedce.record.connections import Connections

SHOW_SECONDS = 1.0
"""The run folder is written at most this often, because each write waits for the disk."""
SOON_SECONDS = 5.0
REMIND_SECONDS = 60.0
"""The coordinator names a site that is not connected after the shorter time, and all awaited sites after the longer."""


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
