"""FedProx (Li et al., 2020): FedAvg whose sites are held near the common model while they train."""

from typing import Annotated, ClassVar

from pydantic import Field

from fedce.algorithms.base import (
    Ask,
    Memory,
    Pull,
    Site,
    State,
    average_by_samples,
    evaluate_global,
    hyperparameters,
    train,
)
from fedce.messages import Reply, Task


@hyperparameters
class FedProx:
    """FedAvg with a proximal term mu / 2 |w_i - w|^2 in the local loss."""

    mu: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.01
    """Strength of the pull towards the common model; 0 is FedAvg."""

    personal: ClassVar[bool] = False
    exchanges: ClassVar[bool] = True
    evaluate = staticmethod(evaluate_global)

    def local(self, site: Site, task: Task, memory: Memory | None) -> tuple[Reply, Memory]:
        return train(site, task, memory, pull=Pull(task.params, self.mu))

    def round(self, state: State, ask: Ask) -> State:
        return average_by_samples(state, ask(state.tasks()))
