"""FedAdam and FedYogi (Reddi et al., 2021): the server steps along the mean update with an adaptive optimizer (B9)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedce.algorithms.shared import BySamples
from fedce.core.algorithm import Aggregated, Answers, State, Traits, hyperparameters
from fedce.core.params import Params


@dataclass(frozen=True)
class ServerMoments:
    """Moments of the optimizer at the server; in float32, because a resumed run must have exactly the same values."""

    m: NDArray[np.floating]
    v: NDArray[np.floating]


@hyperparameters
class FedOpt(BySamples):
    """FedAvg's mean update as a pseudo-gradient for Adam or Yogi at the server."""

    rule: Literal["adam", "yogi"] = "adam"
    lr: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.01
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.99
    tau: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1e-3
    """Degree of adaptivity: the larger, the nearer to plain momentum."""

    @property
    def traits(self) -> Traits:
        return Traits(is_mean=False, accumulates=False)

    def initial_own(self, params: Params) -> ServerMoments:
        size = len(params.trainable)
        return ServerMoments(np.zeros(size, np.float32), np.full(size, self.tau**2))

    def aggregate(self, state: State, answers: Answers, rho: Mapping[str, float]) -> Aggregated:
        mean = super().aggregate(state, answers, rho).params
        delta = mean.trainable.astype(np.float64) - state.params.trainable
        m = self.beta1 * state.own.m + (1 - self.beta1) * delta
        v = state.own.v
        if self.rule == "adam":
            v = self.beta2 * v + (1 - self.beta2) * delta**2
        else:
            v = v - (1 - self.beta2) * delta**2 * np.sign(v - delta**2)
        stepped = (state.params.trainable + self.lr * m / (np.sqrt(v) + self.tau)).astype(np.float32)
        params = Params(mean.layout, np.concatenate([stepped, mean.vector[len(stepped) :]]))
        return Aggregated(params, ServerMoments(m.astype(np.float32), v.astype(np.float32)))
