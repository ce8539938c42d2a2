"""A tracker of your own: one line a round in a text file, which a chat robot or a script could follow.

From the repository's root:

    fedce run --scale tiny --track examples.own_tracker:LINES:rounds.txt

An installed package may give the tracker a shorter name, by an entry point of the group fedce.trackers.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedce.tracking.tracker import RoundValues, TrackedRun, Tracker, absolute_path


class LinesLog:
    """Written anew when it is opened: the ledger holds all rounds, and a resumed run sends all of them again."""

    n_rounds = 0

    def __init__(self, run: TrackedRun, target: str) -> None:
        self.path = Path(target)
        self.path.write_text(f"{run.name}\n", "utf-8")

    def _add(self, line: str) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    def round(self, values: RoundValues) -> None:
        shares = ", ".join(f"{site} {100 * share:.0f} %" for site, share in values.by_site["share"].items())
        self._add(f"round {values.number}: Dice {values.mean_dice:.3f}, {shares}")

    def finish(self, results: Mapping[str, Any], files: Mapping[str, Path]) -> None:
        self._add(f"done: mean test Dice {results['fairness']['mean']:.3f}")

    def close(self, *, stopped: bool) -> None:
        if stopped:
            self._add("stopped")


LINES = Tracker(LinesLog, target="FILE", absolute=absolute_path)
