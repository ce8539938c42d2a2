"""Finds what an experiment file names: a built-in thing, one of an installed package, or one at an import path."""

import sys
from collections.abc import Container, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar

from fedce.base.errors import ConfigError, nearest

T = TypeVar("T")


def full_name(name: str, known: Container[str], group: str) -> str:
    """A built-in name or an import path as it is; a name that an installed package registers, as its import path.

    So a check of an experiment's code sees the path, however the code was named. Built-in names come first.
    """
    if name in known or ":" in name:
        return name
    return next((point.value for point in entry_points(group=group, name=name)), name)


def find(name: str, known: Mapping[str, T], kind: type[T], group: str, key: str) -> T:
    """A value of a family: a built-in one, one that an installed package registers, or one at package.module:NAME.

    `key` is the key of the experiment that names it.
    """
    path = full_name(name, known, group)
    if path in known:
        return known[path]
    if ":" not in path:
        hint = f"{nearest(name, known)}; known: {', '.join(known)}, or your own at package.module:NAME"
        raise ConfigError(f"{key}: unknown {kind.__name__.lower()} {name!r}{hint}")
    found = load_object(path, key)
    if not isinstance(found, kind):
        raise ConfigError(f"{key}: expected {path} to be of class {kind.__name__}, got {type(found).__name__}")
    return found


def load_object(path: str, key: str) -> Any:
    """The object at "package.module:Name"."""
    module, _, name = path.partition(":")
    if not (module and name and not module.startswith(".")):
        raise ConfigError(f"{key}: expected package.module:Name, got {path!r}")
    if (here := str(Path.cwd())) not in sys.path:  # A console script does not search the current folder for modules.
        sys.path.append(here)
    try:
        return getattr(import_module(module), name)
    except Exception as error:  # noqa: BLE001 (importing runs the user's code, which may raise anything)
        what = f"{type(error).__name__}: {error}"
        raise ConfigError(f"{key}: can't import {path!r} ({what}); expected package.module:Name") from None
