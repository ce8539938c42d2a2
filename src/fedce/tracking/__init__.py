"""Trackers that show a run elsewhere. They read the ledger, and nothing in a run depends on them."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec

from fedce.base.errors import ConfigError
from fedce.base.registry import find
from fedce.base.trackers import GROUP, named
from fedce.base.words import install_command
from fedce.tracking.csv import CSV
from fedce.tracking.mlflow import MLFLOW
from fedce.tracking.tensorboard import TENSORBOARD
from fedce.tracking.tracker import Tracker

TRACKERS: Mapping[str, Tracker] = {"csv": CSV, "mlflow": MLFLOW, "tensorboard": TENSORBOARD}


def tracker_of(text: str) -> tuple[Tracker, str]:
    """The tracker that an experiment names, and its target."""
    path, target = named(text)
    tracker = find(path, TRACKERS, Tracker, GROUP, "tracking")
    if tracker.target and not target:
        raise ConfigError(f"tracking: expected {path}:{tracker.target}, got {text!r}")
    return tracker, target


def absolute(texts: Sequence[str]) -> tuple[str, ...]:
    """Trackers with absolute paths, so that a run can be resumed from any folder; an unknown tracker is refused."""
    return tuple(map(_absolute, texts))


def _absolute(text: str) -> str:
    tracker, target = tracker_of(text)
    return named(text)._replace(target=tracker.absolute(target)).text if target else text


def check_installed(texts: Sequence[str]) -> None:
    """Raise unless the packages of these trackers are installed."""
    for text in texts:
        package = tracker_of(text)[0].package
        if package and find_spec(package) is None:
            raise ConfigError(f"tracking: {text} needs {package}; install it with {install_command('tracking')}")
