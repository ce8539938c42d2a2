"""The algorithms, by their names on the command line."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from pydantic import ValidationError

from fedce.algorithms.afl import AFL
from fedce.algorithms.cffl import CFFL
from fedce.algorithms.cgsv import CGSV
from fedce.algorithms.ditto import Ditto
from fedce.algorithms.fedavg import FedAvg
from fedce.algorithms.fedbn import FedBN
from fedce.algorithms.fedce import FedCE
from fedce.algorithms.fedce_at_sites import FedCEAtSites
from fedce.algorithms.fedce_running_means import FedCEAtSitesRunningMeans, FedCERunningMeans
from fedce.algorithms.fedci import FedCI
from fedce.algorithms.fedopt import FedOpt
from fedce.algorithms.fedprox import FedProx
from fedce.algorithms.krum import Krum
from fedce.algorithms.qfedavg import QFedAvg
from fedce.algorithms.reconstruction import Reconstruction
from fedce.algorithms.shared import ByMeanWeight
from fedce.algorithms.standalone import Standalone
from fedce.algorithms.trimmed_mean import TrimmedMean
from fedce.algorithms.uniform import Uniform
from fedce.base.config import Config
from fedce.base.errors import ConfigError, first_problem, nearest
from fedce.base.registry import full_name, load_object
from fedce.base.tables import Guard
from fedce.core.algorithm import Algorithm
from fedce.guard import Guarded

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


READINGS: Mapping[tuple[str, str], type[FedCE]] = {
    ("server", "paper"): FedCE,
    ("site", "paper"): FedCEAtSites,
    ("server", "nvflare"): FedCERunningMeans,
    ("site", "nvflare"): FedCEAtSitesRunningMeans,
}
"""FedCE by its options estimate (where Eq. 2 is measured: D1) and preset (when terms are combined: D14)."""
READING_OPTIONS: Mapping[str, tuple[tuple[str, str], str]] = {
    "estimate": (
        ("server", "site"),
        "Where Eq. 2 is measured: at the server, on this round's updates, or at each site, on the last round's (D1).",
    ),
    "preset": (
        ("paper", "nvflare"),
        "Combine in each round and accumulate, or average the raw terms over the rounds and combine (D14).",
    ),
}
"""For each option its values, the default first, and what it means."""


def make(name: str, options: Mapping[str, Any]) -> Algorithm:
    """The algorithm of this name, or your own at package.module:Class, with its options checked."""
    kind, fixed = _find(name)
    known = options_of(name)
    if "guard" in options and "guard" not in known:
        raise ConfigError("algorithm.guard: the guard is for every algorithm now; set the top-level key guard instead")
    for key in options.keys() - known:
        have = ", ".join(sorted(known)) or "none"
        raise ConfigError(f"algorithm {name!r} has no option {key!r}{nearest(key, known)}; it has: {have}")
    if kind is FedCE:
        kind = READINGS[_reading(options)]
        options = {key: value for key, value in options.items() if key not in READING_OPTIONS}
    try:
        return kind(**fixed, **options)
    except ValidationError as error:
        raise ConfigError(f"algorithm.{first_problem(error)}") from None


def _reading(options: Mapping[str, Any]) -> tuple[str, str]:
    chosen = {key: options.get(key, known[0]) for key, (known, _) in READING_OPTIONS.items()}
    for key, value in chosen.items():
        if value not in (known := READING_OPTIONS[key][0]):
            expected = " or ".join(map(repr, known))
            raise ConfigError(f"algorithm.{key}: input should be {expected}, got {value!r}")
    return chosen["estimate"], chosen["preset"]


def guarded(algorithm: Algorithm, guard: Guard) -> Algorithm:
    """The algorithm with the guard around it, if the guard is on and models are exchanged."""
    return Guarded(algorithm) if guard == "standard" and algorithm.traits.exchanges else algorithm


def made_for(config: Config) -> Algorithm:
    """The algorithm of an experiment."""
    algorithm = guarded(make(config.algorithm.name, config.algorithm.options), config.guard)
    return Reconstruction(algorithm) if config.reconstruction else algorithm


def built_in(config: Config, format_no: int | None = None) -> Algorithm | None:
    """The algorithm of somebody else's run, to check the run: Python code that the run names is not executed.

    `format_no` is the format of the run's ledger, if it is an earlier one: it decides what was guarded and measured.
    """
    name = config.algorithm.name
    if name not in ALGORITHMS:
        return None
    algorithm = make(name, config.algorithm.options)
    if format_no is not None and format_no < 4:
        if name in WEIGHED_BEFORE:
            return WEIGHED_BEFORE[name]
        return guarded(algorithm, config.guard) if isinstance(algorithm, FedCE) else algorithm
    return guarded(algorithm, config.guard)


WEIGHED_BEFORE: Mapping[str, Algorithm] = {"qfedavg": ByMeanWeight()}
"""Methods for which ledgers before format 4 hold only the weights."""


def path_of(name: str) -> str:
    """The name, or the import path of an algorithm from an installed package (entry point fedce.algorithms)."""
    return full_name(name, ALGORITHMS, "fedce.algorithms")


def _find(name: str) -> tuple[type[Algorithm], Mapping[str, Any]]:
    name = path_of(name)
    if ":" in name:
        kind = load_object(name, "algorithm.name")
        if not (isinstance(kind, type) and issubclass(kind, Algorithm) and is_dataclass(kind)):
            raise ConfigError(
                f"algorithm.name: {name} is not an algorithm: a class with @hyperparameters derived from "
                "fedce.core.algorithm.Algorithm (docs/own-algorithm.md)"
            )
        return kind, {}
    if name not in ALGORITHMS:
        raise ConfigError(f"unknown algorithm {name!r}{nearest(name, ALGORITHMS)}; known: {', '.join(ALGORITHMS)}")
    return ALGORITHMS[name]


def options_of(name: str) -> set[str]:
    """The options that a user may set; options that the name fixes are left out."""
    kind, fixed = _find(name)
    readings = READING_OPTIONS.keys() if kind is FedCE else ()
    return {field.name for field in fields(kind)} - fixed.keys() | set(readings)  # type: ignore[arg-type]


def name_of(algorithm: Algorithm) -> str:
    """The name from which `make` builds this algorithm again, apart from its options."""
    for name, (kind, fixed) in ALGORITHMS.items():
        same = type(algorithm) is kind or (kind is FedCE and type(algorithm) in READINGS.values())
        if same and all(getattr(algorithm, key) == value for key, value in fixed.items()):
            return name
    return f"{type(algorithm).__module__}:{type(algorithm).__qualname__}"


def settings_of(algorithm: Algorithm) -> dict[str, Any]:
    """The options from which `make` builds this algorithm again."""
    settable = options_of(name_of(algorithm))
    found = {one.name: getattr(algorithm, one.name) for one in fields(algorithm) if one.name in settable}  # type: ignore[arg-type]
    for (estimate, preset), kind in READINGS.items():
        if type(algorithm) is kind:
            found |= {"estimate": estimate, "preset": preset}
    return found


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
    "FedCEAtSites",
    "FedCERunningMeans",
    "FedCI",
    "FedOpt",
    "FedProx",
    "Krum",
    "QFedAvg",
    "Standalone",
    "TrimmedMean",
    "Uniform",
    "guarded",
    "make",
    "name_of",
    "options_of",
    "path_of",
    "settings_of",
]
