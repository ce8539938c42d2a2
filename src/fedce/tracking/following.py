"""Trackers follow the ledger of a run: each gets the rounds that it lacks, and none can stop the run."""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Self

from fedce.base.errors import RunError
from fedce.record.folder import RunFolder
from fedce.tracking import tracker_of
from fedce.tracking.tracker import Log, TrackedRun
from fedce.tracking.values import rounds_from, settings_of

RETRY_SECONDS = 60.0
"""A tracker that failed is not tried again before this time, because training waits for it."""
LONGEST_REASON = 160
Notify = Callable[[str], None]


class Following:
    """One tracker of a run. What it did not get, because it failed or was not reached, it gets later."""

    def __init__(self, run: RunFolder, name: str) -> None:
        self.run, self.name = run, name
        self._log: Log | None = None

    def log(self) -> Log:
        """The run in the tracker, opened at first use."""
        if self._log is None:
            tracker, target = tracker_of(self.name)
            self._log = tracker.open(_about(self.run), target)
        return self._log

    def send_rounds(self) -> None:
        log = self.log()
        for values in rounds_from(self.run.config, self.run.ledger(), log.n_rounds):
            log.round(values)
            log.n_rounds = values.number

    def forget(self) -> None:
        self._log = None

    def close(self, *, stopped: bool = False) -> None:
        log, self._log = self._log, None
        if log is not None:
            log.close(stopped=stopped)


class Tracking:
    """The trackers of a run while it trains. A tracker that fails is named once, and the run goes on."""

    def __init__(
        self, run: RunFolder, names: Sequence[str], notify: Notify, failed: frozenset[str] = frozenset()
    ) -> None:
        self.notify = notify
        self.followings = [Following(run, name) for name in names]
        self.failed = failed
        """Trackers that failed at some time, each of which a notice has named."""
        self._again_at: dict[str, float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for following in self.followings:
            self._tried(following, lambda one: one.close(stopped=error is not None))

    def look(self) -> None:
        """Send what the ledger holds by now."""
        for following in self.followings:
            if monotonic() >= self._again_at.get(following.name, 0.0):
                self._tried(following, Following.send_rounds)

    def finish(self, results: Mapping[str, Any], files: Mapping[str, Path]) -> None:
        """Send the rounds that are missing, the results and the files; also to trackers that failed before."""
        for following in self.followings:
            self._tried(following, lambda one: _send_all(one, results, files))

    def _tried(self, following: Following, action: Callable[[Following], None]) -> None:
        try:
            action(following)
        except Exception as error:  # noqa: BLE001 (whatever a tracker raises, training does not depend on it)
            if following.name not in self.failed:
                later = f"'fedce track {following.run.path}' sends what is missing"
                self.notify(f"{_reason(following, error)}; the run goes on without it, and {later}")
            self.failed |= {following.name}
            self._again_at[following.name] = monotonic() + RETRY_SECONDS
            # Opened again, the tracker is asked what it holds: nothing is sent twice, and nothing is left out.
            following.forget()


def send(run: RunFolder, name: str, results: Mapping[str, Any] | None, files: Mapping[str, Path]) -> int:
    """Send a run to a tracker as far as it has come; returns its number of rounds. A RunError if the tracker fails."""
    following = Following(run, name)
    try:
        if results is None:
            following.send_rounds()
        else:
            _send_all(following, results, files)
        n_rounds = following.log().n_rounds
        following.close(stopped=results is None)
    except Exception as error:  # noqa: BLE001 (a tracker may raise anything)
        raise RunError(_reason(following, error)) from None
    return n_rounds


def _send_all(following: Following, results: Mapping[str, Any], files: Mapping[str, Path]) -> None:
    following.send_rounds()
    following.log().finish(results, files)


def _reason(following: Following, error: Exception) -> str:
    """In one line: a tracker's errors may hold a whole page."""
    what = " ".join(str(error).split()) or type(error).__name__
    return f"tracking by {following.name} failed ({what[:LONGEST_REASON]})"


def _about(run: RunFolder) -> TrackedRun:
    (first, *_) = run.lines()
    folder = run.path.resolve()
    return TrackedRun(folder.name, folder, sha256(first.encode()).hexdigest(), settings_of(run.config))
