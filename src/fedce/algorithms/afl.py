"""AFL (Mohri et al., 2019): the weights climb towards the sites with the highest loss (minimax) (B4)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedce.algorithms.shared import ByReputation, TellsLoss, reputations_of
from fedce.core.algorithm import Aggregated, Answers, State, Traits, hyperparameters
from fedce.core.credit import Credit
from fedce.core.params import Params, weighted_sum


def onto_simplex(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The nearest point with entries that are non-negative and sum to 1 (exact, by sorting)."""
    falling = np.sort(values)[::-1]
    surplus = (np.cumsum(falling) - 1) / np.arange(1, len(values) + 1)
    threshold = surplus[np.flatnonzero(falling > surplus)[-1]]
    nearest: NDArray[np.float64] = np.maximum(values - threshold, 0.0)
    return nearest


@dataclass(frozen=True)
class Average:
    """The mean of the common models of all rounds so far."""

    model: Params


@hyperparameters
class AFL(TellsLoss, ByReputation):
    """Weights by projected gradient ascent on the sites' losses."""

    step: Annotated[float, Field(ge=0, le=1000)] = 0.1
    """Step of the ascent; 0 is Uniform."""
    variant: Literal["current", "published"] = "current"
    """current: this round's weights, last model. published: last round's weights, mean of the models of all rounds."""

    @property
    def traits(self) -> Traits:
        is_published = self.variant == "published"
        return Traits(is_mean=not is_published, accumulates=False, weighs_by_earlier_rounds=is_published)

    def initial_own(self, params: Params) -> Average | None:
        return Average(params) if self.variant == "published" else None

    def reputations(self, before: Mapping[str, float], terms: Mapping[str, Any]) -> dict[str, float]:
        climbed = np.array([before[site] + self.step * term.loss_before for site, term in terms.items()])
        return dict(zip(terms, onto_simplex(climbed).tolist(), strict=True))

    def weigh(self, credit: Credit, terms: Mapping[str, Any]) -> dict[str, float]:
        return reputations_of(credit, terms) if self.variant == "published" else super().weigh(credit, terms)

    def aggregate(self, state: State, answers: Answers, rho: Mapping[str, float]) -> Aggregated:
        after = super().aggregate(state, answers, rho)
        if self.variant == "current":
            return after
        n = state.round_no
        return Aggregated(
            after.params, Average(weighted_sum([state.own.model, after.params], [n / (n + 1), 1 / (n + 1)]))
        )

    def returned(self, state: State) -> Params:
        return state.own.model if self.variant == "published" else state.params
