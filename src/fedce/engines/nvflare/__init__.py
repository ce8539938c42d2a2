"""NVFlare (2.9): its server and clients carry the run; or its own recipes take our aggregator.

Names are loaded when they are used, because NVFlare takes a second to import.
"""

from importlib import import_module
from typing import Any

_WHERE = {
    "deploy": "launch",
    "run_here": "launch",
    "keep": "keeping",
    "FedCEAggregator": "aggregator",
}
__all__ = ["FedCEAggregator", "deploy", "keep", "run_here"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
