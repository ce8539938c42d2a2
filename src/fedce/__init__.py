"""Fair federated segmentation: train one model across hospitals, and know what each contributed.

>>> import fedce
>>> sites = fedce.load_sites("fundus6", scale="tiny")
>>> result = fedce.run(sites, fedce.FedCE(), rounds=3, out="runs/example")
>>> result.contributions
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from fedce.algorithms import FedAvg, FedCE, Standalone, Uniform
    from fedce.base.errors import FedceError
    from fedce.data import Sites, load_sites
    from fedce.federation.session import Result
    from fedce.present.reported import run

# Imported at first use: `import fedce` must not wait for torch and MONAI.
_HOME = {
    "FedAvg": "fedce.algorithms",
    "FedCE": "fedce.algorithms",
    "FedceError": "fedce.base.errors",
    "Result": "fedce.federation.session",
    "Sites": "fedce.data",
    "Standalone": "fedce.algorithms",
    "Uniform": "fedce.algorithms",
    "load_sites": "fedce.data",
    "run": "fedce.present.reported",
}

__all__ = [
    "FedAvg",
    "FedCE",
    "FedceError",
    "Result",
    "Sites",
    "Standalone",
    "Uniform",
    "__version__",
    "load_sites",
    "run",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fedce' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
