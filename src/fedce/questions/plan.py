"""A plan as people see it: each value with its reason, what a training takes, and the experiment file."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedce.base.config import Config
from fedce.base.errors import ConfigError
from fedce.base.files import write_bytes
from fedce.base.html import table_html
from fedce.data.fingerprint import Fingerprints
from fedce.learning.chosen import Chosen
from fedce.learning.planning import as_toml, completed_by, heading, plan_of
from fedce.learning.planning_cost import Cost, cost_of


@dataclass(frozen=True)
class Plan:
    """An experiment made from the data; `fedce.plan` gives it, and a notebook shows its table.

    >>> from fedce.data.fingerprint import fingerprints_of
    >>> from fedce.data import load_sites
    >>> plan = planned_for({"data": {"source": "fundus6"}}, fingerprints_of(load_sites("fundus6", scale="tiny")))
    >>> plan.settings["train.loss"], plan.config.train.loss
    ('dice-ce', 'dice-ce')
    >>> plan.records[0]["key"]
    'rounds'
    """

    config: Config
    """The whole experiment."""
    chosen: tuple[Chosen, ...]
    """The planned values; a key that somebody wrote is not among them."""
    cost: Cost
    toml: str
    """The experiment file: what was written and what was planned, with the reasons."""

    @property
    def records(self) -> list[dict[str, Any]]:
        """A row for each planned key: its value and the reason."""
        return [vars(one) for one in self.chosen]

    @property
    def settings(self) -> dict[str, Any]:
        """The planned values by key, as `fedce.run` takes them."""
        return {one.key: one.value for one in self.chosen}

    def save(self, path: str | Path, *, replace: bool = False) -> Path:
        """Write the experiment file, which `fedce run FILE` trains."""
        path = Path(path)
        if path.exists() and not replace:
            raise ConfigError(f"{path} exists already; choose another name, or delete it")
        write_bytes(path, self.toml.encode())
        return path

    def _repr_html_(self) -> str:
        rows = [[one.key, one.value, one.reason] for one in self.chosen]
        return table_html("planned from the data", ["key", "value", "reason"], rows, [self.cost.sentence], n_keys=3)


def planned_for(tree: Mapping[str, Any], known: Fingerprints) -> Plan:
    """The plan for what somebody wrote, made from the sites' fingerprints."""
    planned = completed_by(tree, plan_of(known, tree))
    cost = cost_of(planned.config, known)
    return Plan(planned.config, planned.chosen, cost, as_toml(planned, tree, heading(known, cost, planned.config.data)))
