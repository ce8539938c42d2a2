"""CGSV (Xu et al., 2021): a site's reputation is how well its update agrees with the sum of all updates (B3)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import ceil, tanh
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedce.algorithms.rewards import Rewards, add, largest, sum_of, updates_of
from fedce.algorithms.shared import ByReputation, reputations_from_zero, reputations_of
from fedce.core.algorithm import Aggregated, Answers, Ask, State, Terms, Traits, hyperparameters
from fedce.core.credit import Credit
from fedce.core.messages import Reply, Task
from fedce.core.params import Params, Vector, inner_products
from fedce.core.site import Memory, Site, evaluate_own
from fedce.core.weights import normalise

MEMORY = 0.95
FLOOR = 1e-3


def cosines_with_sum(products: NDArray[np.float64], r: NDArray[np.float64]) -> NDArray[np.float64]:
    """phi_i = cos(u_i, sum r_j u_j) of updates scaled to one length; an update of zero agrees with nothing."""
    norms = np.sqrt(np.diag(products))
    safe = np.where(norms > 0, norms, 1.0)
    cosines = products / np.outer(safe, safe)
    total = float(np.sqrt(max(r @ cosines @ r, 0.0)))
    return cosines @ r / total if total > 0 else np.zeros(len(r))


@dataclass(frozen=True)
class Agreement(Terms):
    """The cosine of a site's update with the sum of all updates, weighted by reputation."""

    agreement: float


@hyperparameters
class CGSV(ByReputation):
    """Weights by reputation; with the variants rewards and published a site downloads only as much as it has earned."""

    variant: Literal["weights", "rewards", "published"] = "weights"
    """weights: this round's reputations, one model. rewards: one model per site. published: the authors' rule."""
    beta: Annotated[float, Field(gt=0)] = 1.0
    """How generous rewards are: the larger, the more alike the downloads are."""
    gamma: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.5
    """The length to which the variant published scales every update; the authors use 0.15, 0.5 or 1 by data set."""

    terms = Agreement

    @property
    def traits(self) -> Traits:
        is_shared, is_published = self.variant == "weights", self.variant == "published"
        return Traits(
            personal=not is_shared, is_mean=is_shared, accumulates=False, weighs_by_earlier_rounds=is_published
        )

    def initial_own(self, params: Params) -> Rewards:
        return Rewards()

    def task(self, state: State, site: str) -> Task:
        return replace(super().task(state, site), params=state.own.models.get(site, state.params))

    def evaluate(self, site: Site, task: Task, memory: Memory | None) -> Reply:
        if self.traits.personal:
            return evaluate_own(site, task, task.params)
        return super().evaluate(site, task, memory)

    def measure(self, state: State, answers: Answers, ask: Ask) -> dict[str, Any]:
        return self._agreements(state, answers)

    def _agreements(self, state: State, answers: Answers) -> dict[str, Any]:
        return answers.once("agreements", lambda: self._measured(state, answers))

    def _measured(self, state: State, answers: Answers) -> dict[str, Any]:
        r = self._entering(state.credit, {reply.site: reply.n_train for reply in answers})
        phi = cosines_with_sum(inner_products(updates_of(answers)), np.array(list(r.values())))
        return {reply.site: Agreement(reply.n_train, float(p)) for reply, p in zip(answers, phi, strict=True)}

    def _entering(self, credit: Credit, n_train: Mapping[str, int]) -> dict[str, float]:
        """The reputations before a round; as published, sample shares if there are no reputations yet."""
        if self.variant == "published" and not credit.keys() & n_train.keys():
            return normalise(n_train)
        return reputations_of(credit, n_train)

    def earlier(self, credit: Credit, sites: Iterable[str]) -> dict[str, float]:
        return (reputations_from_zero if self.variant == "published" else reputations_of)(credit, sites)

    def reputations(self, before: Mapping[str, float], terms: Mapping[str, Any]) -> dict[str, float]:
        return normalise(
            {site: max(MEMORY * before[site] + (1 - MEMORY) * term.agreement, FLOOR) for site, term in terms.items()}
        )

    def weigh(self, credit: Credit, terms: Mapping[str, Any]) -> dict[str, float]:
        if self.variant == "published":
            return self._entering(credit, {site: term.n_train for site, term in terms.items()})
        return super().weigh(credit, terms)

    def aggregate(self, state: State, answers: Answers, rho: Mapping[str, float]) -> Aggregated:
        mean = super().aggregate(state, answers, rho)
        if self.variant == "weights":
            return mean
        updates, weights = updates_of(answers), [rho[site] for site in answers.sites]
        if self.variant == "rewards":
            return self._rewarded(state, answers, rho, common_update(updates, weights), mean.params)
        # Rewards follow from the reputations after the round, the common update from the reputations before it.
        r = self.reputations(self.earlier(state.credit, answers.sites), self._agreements(state, answers))
        return self._rewarded(state, answers, r, published_update(updates, weights, self.gamma), mean.params)

    def _rewarded(
        self, state: State, answers: Answers, r: Mapping[str, float], together: Vector, mean: Params
    ) -> Aggregated:
        """Each site adds to its own model the largest entries of the common update, as many as it has earned.

        Buffers are never sparsified: every site gets their mean.
        """
        best = max(tanh(self.beta * value) for value in r.values())
        count = ceil if self.variant == "published" else round
        models = dict(state.own.models)
        for site in answers.sites:
            start = answers.starts[site]
            reward = largest(together, tanh(self.beta * r[site]) / best, start.layout, count)
            models[site] = add(start, reward, mean)
        return Aggregated(add(state.params, together, mean), Rewards(models))


def common_update(updates: list[Vector], r: list[float]) -> Vector:
    """The sum of the updates, scaled to their mean length, with weights r."""
    norms = np.sqrt(np.diag(inner_products(updates)))
    together = np.zeros_like(updates[0])
    for update, norm, weight in zip(updates, norms, r, strict=True):
        if norm > 0:
            together = together + np.float32(weight * norms.mean() / norm) * update
    return together


def published_update(updates: list[Vector], r: list[float], gamma: float) -> Vector:
    """The sum of the updates, scaled to the length gamma, with weights r; an update of zero stays zero."""
    norms = np.sqrt(np.diag(inner_products(updates)))
    return sum_of(updates, [w * gamma / norm if norm > 0 else 0.0 for w, norm in zip(r, norms, strict=True)])
