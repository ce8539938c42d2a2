"""Fair federated segmentation: train one model across hospitals, and know what each contributed.

>>> import fedce
>>> sites = fedce.load_sites("fundus6", scale="tiny")
>>> result = fedce.run(sites, fedce.FedCE(), rounds=3, progress=False)
>>> result.folder
PosixPath('runs/fundus6-fedce-0')
>>> list(result.contributions)
['site1', 'site2', 'site3', 'site4', 'site5', 'site6']
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# MONAI imports MLflow where it is installed, and MLflow then makes a client for telemetry and writes its number into
# the user's home. A value that the user has set stays.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

if TYPE_CHECKING:
    from fedce.algorithms import FedAvg, FedCE, Standalone, Uniform
    from fedce.api.asking import compare, plan, value
    from fedce.api.result import Result
    from fedce.api.running import load, run
    from fedce.base.errors import FedceError
    from fedce.data import Sites, load_sites
    from fedce.federation.session import Observer
    from fedce.questions.candidate import Candidacy
    from fedce.questions.comparison import Comparison
    from fedce.questions.evaluated import Evaluated
    from fedce.questions.plan import Plan
    from fedce.questions.segmentation import Segmentation
    from fedce.questions.value import Valuation

# Imported at first use: `import fedce` must not wait for torch and MONAI.
_HOME = {
    "Candidacy": "fedce.questions.candidate",
    "Comparison": "fedce.questions.comparison",
    "Evaluated": "fedce.questions.evaluated",
    "FedAvg": "fedce.algorithms",
    "FedCE": "fedce.algorithms",
    "FedceError": "fedce.base.errors",
    "Observer": "fedce.federation.session",
    "Plan": "fedce.questions.plan",
    "Result": "fedce.api.result",
    "Segmentation": "fedce.questions.segmentation",
    "Sites": "fedce.data",
    "Standalone": "fedce.algorithms",
    "Uniform": "fedce.algorithms",
    "Valuation": "fedce.questions.value",
    "compare": "fedce.api.asking",
    "load": "fedce.api.running",
    "load_sites": "fedce.data",
    "plan": "fedce.api.asking",
    "run": "fedce.api.running",
    "value": "fedce.api.asking",
}

__all__ = [
    "Candidacy",
    "Comparison",
    "Evaluated",
    "FedAvg",
    "FedCE",
    "FedceError",
    "Observer",
    "Plan",
    "Result",
    "Segmentation",
    "Sites",
    "Standalone",
    "Uniform",
    "Valuation",
    "__version__",
    "compare",
    "load",
    "load_sites",
    "plan",
    "run",
    "value",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fedce' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
