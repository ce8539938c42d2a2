"""How an experiment names a tracker: NAME, NAME:TARGET, or an import path with or without a target."""

from typing import NamedTuple
from urllib.parse import urlsplit

from fedce.base.errors import nearest
from fedce.base.registry import full_name

BUILT_IN = ("csv", "mlflow", "tensorboard")
GROUP = "fedce.trackers"


class Named(NamedTuple):
    """A tracker's built-in name or import path, and where it writes to."""

    path: str
    target: str

    @property
    def text(self) -> str:
        """The tracker as an experiment names it."""
        return f"{self.path}:{self.target}" if self.target else self.path


def named(text: str) -> Named:
    """The parts of a tracker's name; a ValueError if nothing can be meant by it.

    >>> named("tensorboard:logs"), named("ours.trackers:BOARD:https://board.example.org")
    (Named(path='tensorboard', target='logs'), Named(path='ours.trackers:BOARD', target='https://board.example.org'))
    """
    first, _, rest = text.partition(":")
    path = full_name(first, BUILT_IN, GROUP)
    if path in BUILT_IN or ":" in path:
        return Named(path, rest)
    name, _, target = rest.partition(":")
    hint = nearest(first, BUILT_IN)
    if hint or not (first and name):
        known = ", ".join(map(repr, BUILT_IN))
        raise ValueError(f"input should be {known}, with its target after a colon, or package.module:NAME{hint}")
    return Named(f"{first}:{name}", target)


def checked(text: str) -> str:
    """A tracker as an experiment may name it, with the import path of a tracker that an installed package registers."""
    found = named(text)
    if _has_password(found.target):
        # Every site gets the experiment, and the run folder keeps it.
        raise ValueError(
            "leave the password out of the address, because the experiment is kept and sent to the sites; for MLflow, "
            "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        )
    return found.text


def _has_password(target: str) -> bool:
    try:
        return urlsplit(target).password is not None
    except ValueError:  # Not an address.
        return False
