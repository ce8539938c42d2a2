"""CGSV (Xu et al., 2021): a site's reputation is how well its update agrees with everybody's together."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import tanh
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedce.algorithms.shared import ByReputation, reputations_of
from fedce.core.algorithm import Aggregated, Answers, Ask, State, Terms, Traits, hyperparameters
from fedce.core.messages import Reply, Task
from fedce.core.params import Layout, Params, Vector, inner_products
from fedce.core.site import Memory, Site, evaluate_own
from fedce.core.weights import normalise

MEMORY = 0.95
FLOOR = 1e-3


def cosines_with_sum(products: NDArray[np.float64], r: NDArray[np.float64]) -> NDArray[np.float64]:
    """phi_i = cos(u_i, sum r_j u_j) of updates brought to one length; an update of zero agrees with nothing."""
    norms = np.sqrt(np.diag(products))
    safe = np.where(norms > 0, norms, 1.0)
    cosines = products / np.outer(safe, safe)
    total = float(np.sqrt(max(r @ cosines @ r, 0.0)))
    return cosines @ r / total if total > 0 else np.zeros(len(r))


def largest(update: Vector, fraction: float, layout: Layout) -> Vector:
    """The update with only the largest part of each tensor's entries (by size) kept; at least one of each."""
    sparse = np.zeros_like(update)
    for entry, where in layout.slices():
        if entry.kind != "trainable":
            break
        part = update[where]
        k = min(max(1, round(fraction * part.size)), part.size)
        keep = np.argpartition(-np.abs(part), k - 1)[:k] if k < part.size else slice(None)
        sparse[where][keep] = part[keep]
    return sparse


@dataclass(frozen=True)
class Agreement(Terms):
    """The cosine of a site's update with everybody's, weighted by their reputations."""

    agreement: float


@dataclass(frozen=True)
class Rewards:
    """What each site was last given, where downloads differ."""

    models: Mapping[str, Params] = field(default_factory=dict)


@hyperparameters
class CGSV(ByReputation):
    """Weights by reputation; with variant rewards each site also downloads only as much as it deserves."""

    variant: Literal["weights", "rewards"] = "weights"
    beta: Annotated[float, Field(gt=0)] = 1.0
    """How generous rewards are: the larger, the more alike are the downloads."""

    terms = Agreement

    @property
    def traits(self) -> Traits:
        is_shared = self.variant == "weights"
        return Traits(personal=not is_shared, is_mean=is_shared, accumulates=False)

    def initial_own(self, params: Params) -> Rewards:
        return Rewards()

    def task(self, state: State, site: str) -> Task:
        return replace(super().task(state, site), params=state.own.models.get(site, state.params))

    def evaluate(self, site: Site, task: Task, memory: Memory | None) -> Reply:
        if self.variant == "rewards":
            return evaluate_own(site, task, task.params)
        return super().evaluate(site, task, memory)

    def measure(self, state: State, answers: Answers, ask: Ask) -> dict[str, Any]:
        old = reputations_of(state.credit, answers.sites)
        phi = cosines_with_sum(inner_products(_updates(answers)), np.array(list(old.values())))
        return {reply.site: Agreement(reply.n_train, float(p)) for reply, p in zip(answers, phi, strict=True)}

    def reputations(self, before: Mapping[str, float], terms: Mapping[str, Any]) -> dict[str, float]:
        return normalise(
            {site: max(MEMORY * before[site] + (1 - MEMORY) * term.agreement, FLOOR) for site, term in terms.items()}
        )

    def aggregate(self, state: State, answers: Answers, rho: Mapping[str, float]) -> Aggregated:
        mean = super().aggregate(state, answers, rho)
        return mean if self.variant == "weights" else self._rewarded(state, answers, rho, mean.params)

    def _rewarded(self, state: State, answers: Answers, r: Mapping[str, float], mean: Params) -> Aggregated:
        """Each site adds to its own model the largest entries of the common update, as many as it has earned.

        Buffers are never sparsified: everybody gets their mean.
        """
        together = common_update(_updates(answers), [r[site] for site in answers.sites])
        best = max(tanh(self.beta * value) for value in r.values())
        models = dict(state.own.models)
        for site in answers.sites:
            start = answers.starts[site]
            reward = largest(together, tanh(self.beta * r[site]) / best, start.layout)
            models[site] = add(start, reward, mean)
        return Aggregated(add(state.params, together, mean), Rewards(models))


def _updates(answers: Answers) -> list[Vector]:
    return [
        model.trainable - answers.starts[site].trainable
        for site, model in zip(answers.sites, answers.models, strict=True)
    ]


def common_update(updates: list[Vector], r: list[float]) -> Vector:
    """The sum of the updates, brought to their mean length, with weights r."""
    norms = np.sqrt(np.diag(inner_products(updates)))
    together = np.zeros_like(updates[0])
    for update, norm, weight in zip(updates, norms, r, strict=True):
        if norm > 0:
            together = together + np.float32(weight * norms.mean() / norm) * update
    return together


def add(start: Params, update: Vector, rest: Params) -> Params:
    """A model moved by an update of its trainable entries, with another's buffers and counters."""
    return Params(start.layout, np.concatenate([start.trainable + update, rest.vector[len(update) :]]))
