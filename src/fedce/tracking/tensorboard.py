"""TensorBoard: curves in DIR/<name of the run>, so that runs with one DIR are compared on one page."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedce.tracking.tracker import RoundValues, TrackedRun, Tracker, absolute_path


class TensorBoardLog:
    """Event files are only ever added. A resumed run writes all its rounds again, and hides those of earlier files."""

    n_rounds = 0

    def __init__(self, run: TrackedRun, target: str) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(Path(target) / run.name), purge_step=0, filename_suffix=".fedce")
        self._folder, self._last = run.folder, 0
        rows = "\n".join(f"| {key} | {value} |" for key, value in run.settings.items())
        self._writer.add_text("experiment", f"| key | value |\n|---|---|\n{rows}", 0)

    def round(self, values: RoundValues) -> None:
        self._last = values.number
        for name, value in values.named.items():
            self._writer.add_scalar(name, value, values.number, walltime=values.time)
        for site, words in values.flags.items():
            self._writer.add_text(f"flags/{site}", "; ".join(words), values.number, walltime=values.time)
        self._writer.flush()

    def finish(self, results: Mapping[str, Any], files: Mapping[str, Path]) -> None:
        """TensorBoard shows no files, so it says where they are."""
        for site, dice in results["dice"].items():
            self._writer.add_scalar(f"test_dice/{site}", dice, self._last)
        places = "\n".join(f"- `{self._folder / name}`" for name in files)
        self._writer.add_text("files", places, self._last)
        self._writer.flush()

    def close(self, *, stopped: bool) -> None:
        self._writer.close()


TENSORBOARD = Tracker(TensorBoardLog, target="DIR", absolute=absolute_path, package="tensorboard")
