"""FedCE where the server sees only sums: Flower's SecAgg+ carries the models, each site measures its own terms.

SecAgg+ of Flower 1.41 belongs to its older interface (a Strategy with a workflow, a NumPyClient with a mod). So this
module is for a Flower app of your own, not for `fedce run --engine flower`; docs/privacy.md shows server and client.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context
from flwr.common import FitIns, FitRes, NDArrays, Parameters, Scalar
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import FedAvg
from flwr.server.workflow import SecAggPlusWorkflow

from fedce import algorithms
from fedce.algorithms.fedce import BothTerms
from fedce.algorithms.fedce_at_sites import gamma_cos_at_site
from fedce.base.errors import ConfigError
from fedce.core.credit import Credit
from fedce.core.params import Entry, Layout, Params, from_named, leave_out, to_named

UNIT = 1_000_000
"""A weight of 1 as a number of examples: SecAgg+ weights by numbers of examples."""
Score = Callable[[NDArrays], float]
"""Validation score of a model, in [0, 1]."""


def workflow(num_shares: int | float = 1.0, threshold: int | float = 0.5, **options: Any) -> SecAggPlusWorkflow:
    """Flower's protocol; each site shares keys with all others, and a round succeeds if `threshold` of them answer."""
    return SecAggPlusWorkflow(num_shares, threshold, **{"max_weight": UNIT, **options})


class SecureFedCE(FedAvg):  # type: ignore[misc]
    """Weights sites by their contributions before the round (estimate="site"); `shares` holds the contributions."""

    def __init__(self, options: Mapping[str, Any] | None = None, **fedavg: Any) -> None:
        super().__init__(**fedavg)
        if {"guard", "estimate"} & set(options or {}):
            raise ConfigError("leave out guard and estimate: only sums are visible here, so the sites measure")
        self.algorithm = algorithms.make("fedce", {**(options or {}), "estimate": "site"})
        self.entered: dict[str, float] = {}
        self.credit = Credit()
        self.site_by_node: dict[str, str] = {}

    @property
    def shares(self) -> dict[str, float]:
        """Contributions so far; they sum to 1."""
        return self.algorithm.shares(self.credit) if self.credit else {}

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, FitIns]]:
        chosen = [client for client, _ in super().configure_fit(server_round, parameters, client_manager)]
        weights = self.algorithm.weigh(self.credit, {self._site(client): BothTerms(1) for client in chosen})
        return [
            (client, FitIns(parameters, self._config(server_round, self._site(client), weights))) for client in chosen
        ]

    def _config(self, server_round: int, site: str, weights: Mapping[str, float]) -> dict[str, Scalar]:
        """The settings sent to a site: its weight in this round, and the weight of its last model in this one."""
        entered = {"entered": self.entered[site]} if site in self.entered else {}
        return {"round": server_round, "weight": weights[site], **entered}

    def _site(self, client: ClientProxy) -> str:
        return self.site_by_node.get(client.cid, str(client.cid))

    def aggregate_fit(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, FitRes]],
        failures: list[Any],
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        """Take from each result the weighted mean of all sites, which SecAgg+ computed, and the site's own terms."""
        terms = {}
        for client, result in results:
            site = self.site_by_node[client.cid] = str(result.metrics.get("site") or client.cid)
            terms[site] = BothTerms(1, _number(result.metrics, "novelty", 2.0), _number(result.metrics, "error", 1.0))
        # A site that dropped out is not in the mean, and the others have more weight in it.
        units = {self._site(client): result.num_examples for client, result in results}
        self.entered = {site: n / sum(units.values()) for site, n in units.items()}
        self.credit = self.algorithm.earn(self.credit, terms)
        return (results[0][1].parameters if results else None), dict(self.shares)


def _number(metrics: Mapping[str, Scalar], name: str, most: float) -> float | None:
    value = metrics.get(name)
    return float(value) if isinstance(value, float) and -1e-6 <= value <= most + 1e-6 else None


class SecureContribution:
    """For a NumPyClient's fit function: measures both terms at the site, and prepares fit's result.

    The site's model leaves the site only masked; its two terms and its name are sent in the clear.
    """

    def __init__(self, context: Context, received: NDArrays, config: Mapping[str, Scalar], score: Score) -> None:
        self.context, self.config = context, config
        self.received = received
        self.metrics: dict[str, Scalar] = {"site": str(context.node_config.get("site") or "")}
        kept = context.state.get("fedce.secure")
        about = context.state.get("fedce.secure.round")
        weight = config.get("entered") if about and about["round"] == int(config["round"]) - 1 else None
        if isinstance(kept, ArrayRecord) and isinstance(weight, float) and weight < 1:
            before, mine = (_params(_unpacked(kept, part)) for part in ("received", "sent"))
            now = _params(received)
            self.metrics["novelty"] = gamma_cos_at_site(before, mine, now, weight)
            self.metrics["error"] = 1.0 - score(_arrays(leave_out(now, weight, mine), received))

    def result(self, trained: NDArrays) -> tuple[NDArrays, int, dict[str, Scalar]]:
        """The result of fit; keeps the model for the next round."""
        self.context.state["fedce.secure"] = _packed({"received": self.received, "sent": trained})
        self.context.state["fedce.secure.round"] = ConfigRecord({"round": int(self.config["round"])})
        return trained, max(round(UNIT * float(self.config["weight"])), 1), self.metrics


def _packed(parts: Mapping[str, NDArrays]) -> ArrayRecord:
    return ArrayRecord(
        {f"{part}/{i:06d}": Array(np.asarray(a)) for part, arrays in parts.items() for i, a in enumerate(arrays)}
    )


def _unpacked(record: ArrayRecord, part: str) -> NDArrays:
    return [record[name].numpy() for name in sorted(record) if name.startswith(f"{part}/")]


def _params(arrays: Sequence[np.ndarray[Any, Any]]) -> Params:
    """All arrays as trainable parameters, because a list of arrays does not say which are statistics."""
    layout = Layout(tuple(Entry(str(i), tuple(a.shape), "trainable") for i, a in enumerate(arrays)))
    return from_named(layout, {str(i): np.asarray(a) for i, a in enumerate(arrays)})


def _arrays(params: Params, like: NDArrays) -> NDArrays:
    return [value.astype(array.dtype) for value, array in zip(to_named(params).values(), like, strict=True)]
