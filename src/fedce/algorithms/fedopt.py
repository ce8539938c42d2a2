"""FedAdam and FedYogi (Reddi et al., 2021): the server steps along the mean update with an adaptive optimizer."""

from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedce.algorithms.base import Ask, State, average_by_samples, evaluate_global, hyperparameters, train
from fedce.params import Params


@hyperparameters
class FedOpt:
    """FedAvg's mean update as a pseudo-gradient for Adam or Yogi at the server."""

    rule: Literal["adam", "yogi"] = "adam"
    lr: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.01
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.99
    tau: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1e-3
    """Degree of adaptivity: the larger, the nearer to plain momentum."""

    personal: ClassVar[bool] = False
    exchanges: ClassVar[bool] = True
    local = staticmethod(train)
    evaluate = staticmethod(evaluate_global)

    def round(self, state: State, ask: Ask) -> State:
        mean = average_by_samples(state, ask(state.tasks()))
        delta = mean.params.trainable.astype(np.float64) - state.params.trainable
        m = self.beta1 * state.moments.get("m", np.zeros(len(delta))) + (1 - self.beta1) * delta
        v = state.moments.get("v", np.full(len(delta), self.tau**2))
        if self.rule == "adam":
            v = self.beta2 * v + (1 - self.beta2) * delta**2
        else:
            v = v - (1 - self.beta2) * delta**2 * np.sign(v - delta**2)
        stepped = (state.params.trainable + self.lr * m / (np.sqrt(v) + self.tau)).astype(np.float32)
        params = Params(mean.params.layout, np.concatenate([stepped, mean.params.vector[len(stepped) :]]))
        # Kept in float32, like everything that is kept: a resumed run must find just what the running one has.
        moments = {"m": m.astype(np.float32), "v": v.astype(np.float32)}
        return replace(mean, params=params, moments=moments, is_mean=False)
