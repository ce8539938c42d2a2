"""What a tracker is: something outside the run folder that shows a run's rounds, fed from the ledger alone."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True)
class TrackedRun:
    """The run that is tracked."""

    name: str
    """The run folder's name."""
    folder: Path
    identity: str
    """Hash of the ledger's first line: a resumed run has the same one, and no other run has it."""
    settings: Mapping[str, str]
    """Keys of the experiment with their values. Paths of this machine and the sites' keys are left out."""


@dataclass(frozen=True)
class RoundValues:
    """What a tracker gets of a round.

    >>> RoundValues(1, 0.0, 0.5, 2.0, {"dice": {"north": 0.5}}, {}).named
    {'dice/mean': 0.5, 'seconds/round': 2.0, 'dice/north': 0.5}
    """

    number: int
    """From 1, as in the report."""
    time: float
    """When the round was recorded, in seconds since 1970."""
    mean_dice: float
    seconds: float
    by_site: Mapping[str, Mapping[str, float]]
    """dice, share, worth, loss, seconds and flags (their number), each by site; a site without a value is left out."""
    flags: Mapping[str, tuple[str, ...]]
    """The words of the round's flags, by site."""

    @property
    def named(self) -> dict[str, float]:
        """All numbers, each by one name."""
        whole = {"dice/mean": self.mean_dice, "seconds/round": self.seconds}
        return whole | {f"{what}/{site}": value for what, of in self.by_site.items() for site, value in of.items()}


class Log(Protocol):
    """One run in a tracker. Whatever a method raises is reported once; the run goes on without the tracker."""

    n_rounds: int
    """Rounds that the tracker holds already. The next round that it gets is the one after them."""

    def round(self, values: RoundValues) -> None: ...

    def finish(self, results: Mapping[str, Any], files: Mapping[str, Path]) -> None:
        """The run has ended with these results (those of results.json); `files` are its report and its models."""

    def close(self, *, stopped: bool) -> None:
        """The process stops writing; `stopped`: because the run was stopped by a person or by an error."""


def absolute_path(target: str) -> str:
    return str(Path(target).expanduser().resolve())


@dataclass(frozen=True)
class Tracker:
    """A kind of tracker.

    A new one is one more file with an entry in `TRACKERS`, or a `Tracker` of your own that the experiment names by its
    import path.
    """

    open: Callable[[TrackedRun, str], Log]
    """Begins a run or goes on with it, at a target."""
    target: str = ""
    """What has to stand after the colon, for messages, such as DIR; empty: nothing has to."""
    absolute: Callable[[str], str] = str
    """The target as it is recorded: with an absolute path, so that a run can be resumed from any folder."""
    package: str = ""
    """The package that the tracker needs, from fedce's extra "tracking"."""
