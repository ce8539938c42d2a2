"""Flower (flwr 1.41): real SuperLink and SuperNode processes carry the run.

Names are loaded when they are used: a ClientApp is started anew for every message, and must start light.
"""

from importlib import import_module
from typing import Any

_WHERE = {
    "deploy": "launch",
    "run_here": "launch",
    "Contribution": "strategy",
    "FedCE": "strategy",
    "client_app": "client",
    "server_app": "server",
}
__all__ = ["Contribution", "FedCE", "client_app", "deploy", "run_here", "server_app"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
