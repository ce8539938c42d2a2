"""AFL (Mohri et al., 2019): the weights climb towards the sites with the highest loss (minimax)."""

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedce.algorithms.shared import ByReputation, TellsLoss
from fedce.core.algorithm import hyperparameters


def onto_simplex(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The nearest point whose entries are non-negative and sum to 1 (exact, by sorting)."""
    falling = np.sort(values)[::-1]
    surplus = (np.cumsum(falling) - 1) / np.arange(1, len(values) + 1)
    threshold = surplus[np.flatnonzero(falling > surplus)[-1]]
    nearest: NDArray[np.float64] = np.maximum(values - threshold, 0.0)
    return nearest


@hyperparameters
class AFL(TellsLoss, ByReputation):
    """Weights by projected gradient ascent on the sites' losses."""

    step: Annotated[float, Field(ge=0, le=1000)] = 0.1
    """Step of the ascent; 0 is Uniform."""

    def reputations(self, before: Mapping[str, float], terms: Mapping[str, Any]) -> dict[str, float]:
        climbed = np.array([before[site] + self.step * term.loss_before for site, term in terms.items()])
        return dict(zip(terms, onto_simplex(climbed).tolist(), strict=True))
