"""The title of a method in tables, on pages and in the terminal: with its variant, if it has several (D16)."""

from dataclasses import fields

from fedce.algorithms import ALGORITHMS
from fedce.base.tables import AlgorithmConfig

TITLES = {
    "standalone": "Standalone",
    "fedavg": "FedAvg",
    "uniform": "Uniform",
    "qfedavg": "q-FedAvg",
    "cffl": "CFFL",
    "fedci": "FedCI",
    "cgsv": "CGSV",
    "fedprox": "FedProx",
    "ditto": "Ditto",
    "afl": "AFL",
    "fedbn": "FedBN",
    "fedadam": "FedAdam",
    "fedyogi": "FedYogi",
    "krum": "Krum",
    "trimmed-mean": "Trimmed mean",
    "fedce": "FedCE (Multi.)",
    "fedce-sum": "FedCE (Sum.)",
    "fedce-cos": "FedCE, gradient term alone",
    "fedce-err": "FedCE, data term alone",
}
SPELLED = {"normalized": "normalised", "lipschitz": "published"}
"""Variants whose printed name differs from the option's value."""


def title_of(table: AlgorithmConfig) -> str:
    """The method's title.

    >>> title_of(AlgorithmConfig(name="fedavg")), title_of(AlgorithmConfig(name="qfedavg"))
    ('FedAvg', 'q-FedAvg, normalised')
    """
    title, variant = TITLES.get(table.name, table.name), variant_of(table)
    return f"{title}, {variant}" if variant else title


def printed_name(table: AlgorithmConfig) -> str:
    """The name by which a method is chosen, or its title if the name alone does not say which variant ran.

    >>> printed_name(AlgorithmConfig(name="fedavg")), printed_name(AlgorithmConfig(name="afl", variant="published"))
    ('fedavg', 'AFL, published')
    """
    return title_of(table) if variant_of(table) else table.name


def variant_of(table: AlgorithmConfig) -> str | None:
    """The variant of a built-in method that runs; None if the method has only one."""
    if table.name not in ALGORITHMS:
        return None
    kind, _ = ALGORITHMS[table.name]
    for option in fields(kind):  # type: ignore[arg-type]
        if option.name == "variant":
            chosen = str(table.options.get("variant", option.default))
            return SPELLED.get(chosen, chosen)
    return None
