"""Trimmed mean (Yin et al., 2018): in every coordinate the largest and smallest values are dropped."""

from collections.abc import Sequence
from dataclasses import replace
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
    mean_weights,
    models_of,
    normalise,
    train,
)
from fedce.params import Params, blocks, splice


def trimmed(parts: Sequence[Params], n_trimmed: int) -> tuple[Params, NDArray[np.float64]]:
    """The coordinate-wise trimmed mean of the trainable entries, and how often each part was kept, in [0, 1]."""
    layout, n = parts[0].layout, len(parts)
    vector, kept = np.zeros(layout.size, np.float32), np.zeros(n)
    for block in blocks(layout.n_trainable):
        values = np.stack([part.vector[block] for part in parts]).astype(np.float64)
        order = np.argsort(values, axis=0, kind="stable")[n_trimmed : n - n_trimmed]
        vector[block] = np.take_along_axis(values, order, axis=0).mean(axis=0)
        kept += np.bincount(order.reshape(-1), minlength=n)
    return Params(layout, vector), kept / layout.n_trainable


@hyperparameters
class TrimmedMean:
    """A mean that ignores outliers, coordinate by coordinate; a site's weight is how often it was kept."""

    n_trimmed: Annotated[int, Field(ge=0)] = 1
    """How many values are dropped at either end; 0 is Uniform."""

    personal: ClassVar[bool] = False
    exchanges: ClassVar[bool] = True
    local = staticmethod(train)
    evaluate = staticmethod(evaluate_global)

    def round(self, state: State, ask: Ask) -> State:
        replies = ask(state.tasks())
        # With few sites present something must be left to average.
        n_trimmed = min(self.n_trimmed, (len(replies) - 1) // 2)
        params, kept = trimmed(models_of(replies), n_trimmed)
        rho = normalise({reply.site: float(k) for reply, k in zip(replies, kept, strict=True)})
        accounts, shares = mean_weights(state.accounts, rho)
        equal = aggregate(state, replies, dict.fromkeys(rho, 1 / len(rho)), accounts, shares)
        return replace(equal, params=splice(params, equal.params), rho=rho, is_mean=self.n_trimmed == 0)
