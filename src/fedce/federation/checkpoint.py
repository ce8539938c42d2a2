"""The server's state between two rounds, on disk."""

from collections.abc import Collection, Mapping
from pathlib import Path
from time import monotonic
from typing import Any

from fedce.base.errors import RunError
from fedce.base.files import read_tensors, write_tensors
from fedce.core.algorithm import State
from fedce.core.codec import decode, encode


def save_state(path: Path, state: State, entry: Mapping[str, Any] | None = None) -> None:
    """Save the server's state between two rounds, and the ledger's line of the round before."""
    about, arrays = encode(state)
    write_tensors(path, arrays, {"state": about, "entry": entry, "layout": state.params.layout.digest})


def run_again(checkpoint: Path) -> str:
    """What to do about a checkpoint that can't be read."""
    return f"; delete {checkpoint} and resume: the rounds are run again, and checked against the ledger"


def load_state(path: Path, like: State) -> State:
    return load_saved(path, like)[0]


def load_saved(path: Path, like: State) -> tuple[State, dict[str, Any] | None]:
    """The state, of the same kind as the initial one, and the ledger's line of its last round."""
    arrays, about = read_tensors(path, run_again(path.parent))
    layout = like.params.layout
    if about.get("layout") != layout.digest:
        raise RunError(f"{path} holds another network than [model] in the run's config.toml describes; was it edited?")
    try:
        # Earlier versions wrote neither of these two.
        state = decode(like, {"rest": None, "cleared": {}, **about["state"]}, arrays, layout)
    except (ValueError, TypeError, KeyError) as error:
        raise RunError(f"{path} can't be used as a checkpoint ({error}){run_again(path.parent)}") from None
    return state, about.get("entry")


def saved_line(path: Path) -> dict[str, Any] | None:
    """The ledger's line of a saved state's last round."""
    entry: dict[str, Any] | None = read_tensors(path, run_again(path.parent))[1].get("entry")
    return entry


class Checkpoints:
    """Decides when to save: by the clock, so that not every quick round pays for it, and always at the end.

    Before a drawn round everything is saved too: the sites may have to keep the memory that they had then.
    """

    def __init__(self, seconds: float, n_rounds: int, drawn: Collection[int] = ()) -> None:
        self.seconds, self.n_rounds, self.drawn = seconds, n_rounds, drawn
        self.last = self.round_began = monotonic()
        self.due = False

    def persist(self, round_no: int) -> bool:
        now = monotonic()
        duration, self.round_began = now - self.round_began, now
        # Decided before the round, because the sites save during it; so the round's expected end counts.
        by_the_clock = now - self.last + duration >= self.seconds
        self.due = by_the_clock or round_no == self.n_rounds - 1 or round_no + 1 in self.drawn
        return self.due

    def save(self, path: Path, state: State, entry: Mapping[str, Any]) -> None:
        if self.due:
            save_state(path, state, entry)
            self.last = monotonic()
