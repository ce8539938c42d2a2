"""q-FedAvg (Li et al., 2020): sites with a higher loss weigh more."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

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
    train_and_tell_loss,
)
from fedce.messages import Reply
from fedce.params import gram, splice, weighted_sum

# A loss of exactly zero would give a site no weight for good, and 0^(q-1) is not finite.
SMALLEST_LOSS = 1e-10
FROZEN = 0.1
PAPERS_LR = 1e-3


def a_lipschitz(losses: NDArray[np.float64], squared_norms: NDArray[np.float64], q: float, lr: float) -> list[float]:
    """a_i = L F_i^q / sum_j (q F_j^(q-1) L^2 |delta_j|^2 + L F_j^q), with L = 1 / lr."""
    L = 1 / lr
    below = q * losses ** (q - 1) * L**2 * squared_norms + L * losses**q
    return [float(a) for a in L * losses**q / below.sum()]


@hyperparameters
class QFedAvg:
    """Weights in proportion to the q-th power of the training loss; q = 0 is Uniform."""

    q: Annotated[float, Field(ge=0, le=20)] = 1.0
    variant: Literal["normalized", "lipschitz"] = "normalized"
    """Weights that sum to 1, or the published step, which all but freezes a network that is trained with Adam."""
    local_lr: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """The local learning rate, of which lipschitz takes the inverse; unset: train.lr."""

    personal: ClassVar[bool] = False
    exchanges: ClassVar[bool] = True
    local = staticmethod(train_and_tell_loss)
    evaluate = staticmethod(evaluate_global)

    def round(self, state: State, ask: Ask) -> State:
        replies = ask(state.tasks())
        losses = np.array([max(reply.loss_before or 0.0, SMALLEST_LOSS) for reply in replies])
        rho = normalise({reply.site: float(f) for reply, f in zip(replies, losses**self.q, strict=True)})
        accounts, shares = mean_weights(state.accounts, rho)
        after = aggregate(state, replies, rho, accounts, shares)
        return self._step(state, after, replies, losses) if self.variant == "lipschitz" else after

    def _step(self, state: State, after: State, replies: Sequence[Reply], losses: NDArray[np.float64]) -> State:
        """w + sum a_i delta_i; buffers are averaged, because a step that is too short for them makes no sense."""
        models = models_of(replies)
        a = a_lipschitz(losses, np.diag(gram(models, state.params)), self.q, self.local_lr or PAPERS_LR)
        stepped = weighted_sum([state.params, *models], [1 - sum(a), *a])
        note = f"q-FedAvg (lipschitz): the weights sum to {sum(a):.3g}"
        if sum(a) < FROZEN:
            note += f", below {FROZEN}: the model hardly moves; variant normalized does not have this"
        return replace(after, params=splice(stepped, after.params), is_mean=False, notes=(note,))
