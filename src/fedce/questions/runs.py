"""The state of a run (it goes on, is finished, has failed, or was stopped before its end), and a folder's runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fedce.base.errors import FedceError, RunError
from fedce.base.files import read_json
from fedce.record.folder import OUTCOME, RunFolder
from fedce.record.ledger import Ledger

State = Literal["running", "finished", "failed", "unfinished", "unreadable"]


@dataclass(frozen=True)
class Summary:
    """A run in one row."""

    name: str
    state: State
    round: int = 0
    rounds: int = 0
    algorithm: str = ""
    data: str = ""
    dice: float | None = None
    """Mean test Dice of a finished run, otherwise mean validation Dice of the last round."""
    time: float | None = None
    """When something was last recorded."""
    reason: str = ""
    """Why the run failed, or can't be read."""


def state_of(run: RunFolder, ledger: Ledger) -> State:
    """The state of a run that can be read."""
    if run.results_file.exists():
        return "finished"
    if run.is_locked:
        return "running"
    return "failed" if _failed_at(run) > (ledger.lines[-1].time if ledger else 0.0) else "unfinished"


def reason_of(run: RunFolder) -> str:
    """Why a run failed, as far as its coordinator recorded it."""
    outcome = run.engine_folder / OUTCOME
    error = read_json(outcome).get("error") if outcome.exists() else None
    return str(error) if error else f"{run.log_file} says what happened"


def _failed_at(run: RunFolder) -> float:
    """When a failure was last recorded; 0 if none was."""
    outcome = run.engine_folder / OUTCOME
    files = [run.log_file, *([outcome] if outcome.exists() and read_json(outcome).get("error") else [])]
    return max((file.stat().st_mtime for file in files if file.exists()), default=0.0)


def summaries(folder: Path) -> list[Summary]:
    """The runs in a folder, those with the latest news last; a run that can't be read does not hide the others."""
    if not folder.is_dir():
        raise RunError(f"there is no folder {folder}; 'fedce run' makes its runs in the folder runs")
    found = [_summary(run) for path in (folder, *folder.iterdir()) if (run := RunFolder(path)).is_one]
    return sorted(found, key=lambda one: (one.time or 0.0, one.name))


def _summary(run: RunFolder) -> Summary:
    name = run.path.resolve().name
    try:
        ledger, config = run.ledger(), run.config
        state, rounds = state_of(run, ledger), ledger.rounds
        dice = run.results["fairness"].get("mean") if state == "finished" else rounds[-1].mean_score if rounds else None
        return Summary(
            name=name,
            state=state,
            round=rounds[-1].round_no + 1 if rounds else 0,
            rounds=config.n_rounds,
            algorithm=config.algorithm.name,
            data=Path(config.data.source).name,
            dice=dice,
            time=ledger.lines[-1].time if ledger else run.config_file.stat().st_mtime,
            reason=reason_of(run) if state == "failed" else "",
        )
    except FedceError as error:
        return Summary(name, "unreadable", reason=str(error))
