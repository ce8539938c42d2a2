"""Krum (Blanchard et al., 2017): only the updates that are nearest to the others count (B10).

A contrast to FedCE: Krum removes exactly the site that FedCE promotes.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedce.algorithms.shared import ByMeanWeight, Weighed
from fedce.core.algorithm import Answers, Ask, State, hyperparameters


def krum_scores(products: NDArray[np.float64], n_faulty: int) -> NDArray[np.float64]:
    """Sum of squared distances to the n - f - 2 nearest others; the lower, the more central."""
    squares = np.diag(products)
    distances = squares[:, None] + squares - 2 * products
    n_near = max(1, len(products) - n_faulty - 2)
    scores: NDArray[np.float64] = np.sort(distances, axis=1)[:, 1 : 1 + n_near].sum(axis=1)
    return scores


def choose(scores: Sequence[float], n_chosen: int) -> set[int]:
    return set(np.argsort(np.asarray(scores), kind="stable")[:n_chosen].tolist())


@hyperparameters
class Krum(ByMeanWeight):
    """The mean of the most central updates."""

    n_faulty: Annotated[int, Field(ge=0)] = 1
    """Number of sites that may be faulty."""
    n_chosen: Annotated[int, Field(ge=1)] = 1
    """Number of updates that are averaged; 1 is Krum, more is Multi-Krum, all sites is Uniform."""

    def measure(self, state: State, answers: Answers, ask: Ask) -> dict[str, Any]:
        scores = krum_scores(answers.products, self.n_faulty)
        chosen = choose(scores.tolist(), min(self.n_chosen, len(answers)))
        return {
            reply.site: Weighed(reply.n_train, 1 / len(chosen) if i in chosen else 0.0)
            for i, reply in enumerate(answers)
        }
