"""q-FedAvg (Li et al., 2020): sites with a higher loss weigh more (B1)."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedce.algorithms.shared import ByMeanWeight, TellsLoss
from fedce.core.algorithm import Aggregated, Answers, State, Traits, hyperparameters
from fedce.core.credit import Credit
from fedce.core.params import splice, weighted_sum
from fedce.core.weights import normalise

# A loss of exactly zero would give a site no weight for good, and 0^(q-1) is not finite.
SMALLEST_LOSS = 1e-10
FROZEN = 0.1
PAPERS_LR = 1e-3


def published_weights(
    losses: NDArray[np.float64], squared_norms: NDArray[np.float64], q: float, lr: float
) -> list[float]:
    """a_i = L F_i^q / sum_j (q F_j^(q-1) L^2 |delta_j|^2 + L F_j^q), with L = 1 / lr."""
    L = 1 / lr
    below = q * losses ** (q - 1) * L**2 * squared_norms + L * losses**q
    return [float(a) for a in L * losses**q / below.sum()]


@hyperparameters
class QFedAvg(TellsLoss, ByMeanWeight):
    """Weights in proportion to the q-th power of the training loss; q = 0 is Uniform."""

    q: Annotated[float, Field(ge=0, le=20)] = 1.0
    # "lipschitz" is what run folders of earlier versions call "published".
    variant: Literal["normalized", "published", "lipschitz"] = "normalized"
    """normalized: weights that sum to 1. published: the authors' step, which almost freezes a U-Net with Adam."""
    local_lr: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """The local learning rate, whose inverse the variant published uses; unset: train.lr."""

    @property
    def traits(self) -> Traits:
        return Traits(is_mean=self.variant == "normalized")

    def weigh(self, credit: Credit, terms: Mapping[str, Any]) -> dict[str, float]:
        powers = _floored([term.loss_before for term in terms.values()]) ** self.q
        return normalise(dict(zip(terms, powers.tolist(), strict=True)))

    def aggregate(self, state: State, answers: Answers, rho: Mapping[str, float]) -> Aggregated:
        mean = super().aggregate(state, answers, rho)
        return mean if self.variant == "normalized" else self._published_step(state, answers, mean)

    def _published_step(self, state: State, answers: Answers, mean: Aggregated) -> Aggregated:
        """w + sum a_i delta_i; buffers are averaged, because a shortened step makes no sense for them."""
        losses = _floored([reply.loss_before or 0.0 for reply in answers])
        a = published_weights(losses, np.diag(answers.products), self.q, self.local_lr or PAPERS_LR)
        stepped = weighted_sum([state.params, *answers.models], [1 - sum(a), *a])
        note = f"q-FedAvg, published: the weights sum to {sum(a):.3g}"
        if sum(a) < FROZEN:
            note += f", below {FROZEN}: the model hardly moves; variant normalized does not have this"
        return Aggregated(splice(stepped, mean.params), notes=(note,))


def _floored(losses: list[float]) -> NDArray[np.float64]:
    floored: NDArray[np.float64] = np.maximum(np.array(losses), SMALLEST_LOSS)
    return floored
