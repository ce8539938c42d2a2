"""AFL (Mohri et al., 2019): the weights climb towards the sites with the highest loss (minimax)."""

from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedce.algorithms.base import (
    Ask,
    State,
    aggregate,
    evaluate_global,
    hyperparameters,
    remember,
    reputations,
    train_and_tell_loss,
)


def onto_simplex(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The nearest point whose entries are non-negative and sum to 1 (exact, by sorting)."""
    falling = np.sort(values)[::-1]
    surplus = (np.cumsum(falling) - 1) / np.arange(1, len(values) + 1)
    threshold = surplus[np.flatnonzero(falling > surplus)[-1]]
    nearest: NDArray[np.float64] = np.maximum(values - threshold, 0.0)
    return nearest


@hyperparameters
class AFL:
    """Weights by projected gradient ascent on the sites' losses."""

    step: Annotated[float, Field(ge=0, le=1000)] = 0.1
    """Step of the ascent; 0 is Uniform."""

    personal: ClassVar[bool] = False
    exchanges: ClassVar[bool] = True
    local = staticmethod(train_and_tell_loss)
    evaluate = staticmethod(evaluate_global)

    def round(self, state: State, ask: Ask) -> State:
        replies = ask(state.tasks())
        before = reputations(state, [reply.site for reply in replies])
        climbed = np.array([before[reply.site] + self.step * (reply.loss_before or 0.0) for reply in replies])
        rho = {reply.site: float(weight) for reply, weight in zip(replies, onto_simplex(climbed), strict=True)}
        return aggregate(state, replies, rho, *remember(state, rho))
