"""A site that costs next to nothing and imports no torch, for benchmarks of everything around the sites."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedce.core.messages import Evaluation
from fedce.core.params import Params
from fedce.core.site import Moments, Pull, Trained, round_seed


@dataclass(frozen=True)
class CheapSite:
    """Wants certain weights, and trains towards them with noise; its score falls with the distance from them."""

    name: str
    wanted: NDArray[np.float32]
    seed: int
    n_train: int = 40

    def train(self, params: Params, round_no: int, moments: Moments, pull: Pull | None = None) -> Trained:
        rng = np.random.default_rng(round_seed(self.seed, self.name, round_no))
        step = 0.1 * (self.wanted - params.vector) + rng.normal(0, 0.01, len(self.wanted)).astype(np.float32)
        return Trained(Params(params.layout, params.vector + step), self.loss(params), {})

    def loss(self, params: Params) -> float:
        return float(np.square(params.vector - self.wanted).mean())

    def score(self, params: Params) -> float:
        return float(np.exp(-self.loss(params)))

    def scores(self, models: Sequence[Params]) -> tuple[float, ...]:
        return tuple(map(self.score, models))

    def score_replicates(self, params: Params) -> tuple[float, ...]:
        return ()

    def evaluate(self, params: Params, without: Params | None) -> Evaluation:
        return Evaluation(self.score(params), {"all": self.score(params)}, self.score(without) if without else None)
