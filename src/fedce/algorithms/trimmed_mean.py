"""Trimmed mean (Yin et al., 2018): in every coordinate the largest and smallest values are dropped (B11)."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedce.algorithms.shared import ByMeanWeight, Weighed
from fedce.core.algorithm import Aggregated, Answers, Ask, State, Traits, hyperparameters
from fedce.core.params import Params, blocks, splice
from fedce.core.weights import normalise


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
class TrimmedMean(ByMeanWeight):
    """A mean without outliers, coordinate by coordinate; a site's weight is how often its value was kept."""

    n_trimmed: Annotated[int, Field(ge=0)] = 1
    """Number of values that are dropped at each end; 0 is Uniform."""

    @property
    def traits(self) -> Traits:
        return Traits(is_mean=self.n_trimmed == 0, weights_are_measured=True)

    def measure(self, state: State, answers: Answers, ask: Ask) -> dict[str, Any]:
        _, kept = self._trimmed(answers)
        weights = normalise(dict(zip(answers.sites, kept.tolist(), strict=True)))
        return {reply.site: Weighed(reply.n_train, weights[reply.site]) for reply in answers}

    def aggregate(self, state: State, answers: Answers, rho: Mapping[str, float]) -> Aggregated:
        """Buffers get a plain mean: a variance has no outlier to be cut off."""
        params, _ = self._trimmed(answers)
        equal = super().aggregate(state, answers, dict.fromkeys(rho, 1 / len(answers)))
        return Aggregated(splice(params, equal.params))

    def _trimmed(self, answers: Answers) -> tuple[Params, NDArray[np.float64]]:
        # With few sites present, at least one value must be left to average.
        n_trimmed = min(self.n_trimmed, (len(answers) - 1) // 2)
        return answers.once("trimmed", lambda: trimmed(answers.models, n_trimmed))
