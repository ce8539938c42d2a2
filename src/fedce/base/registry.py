"""Things by the names that an experiment file gives them."""

import sys
from collections.abc import Container
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from fedce.base.errors import ConfigError


def full_name(name: str, known: Container[str], group: str) -> str:
    """Our own name or an import path as it is; a name that an installed package gives its own thing, as its path.

    So whoever asks which code an experiment names sees the path, however it was called. Our own names come first.
    """
    if name in known or ":" in name:
        return name
    return next((point.value for point in entry_points(group=group, name=name)), name)


def load_object(path: str, key: str) -> Any:
    """The object at "package.module:Name"."""
    module, _, name = path.partition(":")
    if not (module and name and not module.startswith(".")):
        raise ConfigError(f"{key}: expected package.module:Name, got {path!r}")
    if (here := str(Path.cwd())) not in sys.path:  # A console script does not look for modules where it is called.
        sys.path.append(here)
    try:
        return getattr(import_module(module), name)
    except Exception as error:  # noqa: BLE001 (importing runs the user's code, which may raise anything)
        what = f"{type(error).__name__}: {error}"
        raise ConfigError(f"{key}: can't import {path!r} ({what}); expected package.module:Name") from None
