"""The algorithms by the names of the command line."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, cast

from pydantic import ValidationError

from fedce.algorithms.afl import AFL
from fedce.algorithms.base import Algorithm
from fedce.algorithms.cffl import CFFL
from fedce.algorithms.cgsv import CGSV
from fedce.algorithms.ditto import Ditto
from fedce.algorithms.fedavg import FedAvg
from fedce.algorithms.fedbn import FedBN
from fedce.algorithms.fedce import FedCE
from fedce.algorithms.fedci import FedCI
from fedce.algorithms.fedopt import FedOpt
from fedce.algorithms.fedprox import FedProx
from fedce.algorithms.krum import Krum
from fedce.algorithms.qfedavg import QFedAvg
from fedce.algorithms.reconstruction import Reconstruction
from fedce.algorithms.standalone import Standalone
from fedce.algorithms.trimmed_mean import TrimmedMean
from fedce.algorithms.uniform import Uniform
from fedce.config import Config, Guard, load_object
from fedce.errors import ConfigError, first_problem, nearest

ALGORITHMS: Mapping[str, tuple[type[Algorithm], Mapping[str, Any]]] = {
    "fedce": (FedCE, {"combine": "product"}),
    "fedce-sum": (FedCE, {"combine": "sum"}),
    "fedce-cos": (FedCE, {"combine": "cos"}),
    "fedce-err": (FedCE, {"combine": "err"}),
    "fedavg": (FedAvg, {}),
    "uniform": (Uniform, {}),
    "standalone": (Standalone, {}),
    "qfedavg": (QFedAvg, {}),
    "cffl": (CFFL, {}),
    "fedci": (FedCI, {}),
    "cgsv": (CGSV, {}),
    "fedprox": (FedProx, {}),
    "ditto": (Ditto, {}),
    "afl": (AFL, {}),
    "fedbn": (FedBN, {}),
    "fedadam": (FedOpt, {"rule": "adam"}),
    "fedyogi": (FedOpt, {"rule": "yogi"}),
    "krum": (Krum, {}),
    "trimmed-mean": (TrimmedMean, {}),
}


def make(name: str, options: Mapping[str, Any], guard: Guard = "standard") -> Algorithm:
    """The algorithm of that name, or of your own at package.module:Class, with its options checked."""
    kind, fixed = _find(name)
    known = options_of(name)
    if "guard" in options and "guard" not in known:
        raise ConfigError("algorithm.guard: the guard is for every algorithm now; set the top-level key guard instead")
    for key in options.keys() - known:
        have = ", ".join(sorted(known)) or "none"
        raise ConfigError(f"algorithm {name!r} has no option {key!r}{nearest(key, known)}; it has: {have}")
    try:
        return kind(**fixed, **options, **({"guard": guard} if kind is FedCE else {}))
    except ValidationError as error:
        raise ConfigError(f"algorithm.{first_problem(error)}") from None


def built_in(config: Config) -> Algorithm | None:
    """The algorithm of somebody else's run, to check it by: code that the run names is not run."""
    table = config.algorithm
    return make(table.name, table.options, config.guard) if table.name in ALGORITHMS else None


def made_for(config: Config) -> Algorithm:
    """The algorithm of an experiment."""
    algorithm = make(config.algorithm.name, config.algorithm.options, config.guard)
    return Reconstruction(algorithm) if config.reconstruction else algorithm


def _find(name: str) -> tuple[type[Algorithm], Mapping[str, Any]]:
    if ":" in name:
        kind = load_object(name, "algorithm.name")
        if not is_dataclass(kind) or not hasattr(kind, "round"):
            raise ConfigError(f"algorithm.name: {name} is not an algorithm: a frozen dataclass with local and round")
        return cast(type[Algorithm], kind), {}
    if name not in ALGORITHMS:
        raise ConfigError(f"unknown algorithm {name!r}{nearest(name, ALGORITHMS)}; known: {', '.join(ALGORITHMS)}")
    return ALGORITHMS[name]


def options_of(name: str) -> set[str]:
    """The options that a user may set; what the name already says is not among them."""
    kind, fixed = _find(name)
    return {field.name for field in fields(kind)} - fixed.keys() - ({"guard"} if kind is FedCE else set())  # type: ignore[arg-type]


def name_of(algorithm: Algorithm) -> str:
    """The name under which `make` gives this algorithm back, apart from its options."""
    for name, (kind, fixed) in ALGORITHMS.items():
        if type(algorithm) is kind and all(getattr(algorithm, key) == value for key, value in fixed.items()):
            return name
    return f"{type(algorithm).__module__}:{type(algorithm).__qualname__}"


__all__ = [
    "AFL",
    "ALGORITHMS",
    "CFFL",
    "CGSV",
    "Algorithm",
    "Ditto",
    "FedAvg",
    "FedBN",
    "FedCE",
    "FedCI",
    "FedOpt",
    "FedProx",
    "Krum",
    "QFedAvg",
    "Standalone",
    "TrimmedMean",
    "Uniform",
    "make",
    "name_of",
    "options_of",
]
