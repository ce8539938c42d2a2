"""FedProx (Li et al., 2020): FedAvg whose sites are held near the common model while they train (B6)."""

from typing import Annotated

from pydantic import Field

from fedce.algorithms.shared import BySamples
from fedce.core.algorithm import hyperparameters
from fedce.core.messages import Reply, Task
from fedce.core.site import Memory, Pull, Site, train


@hyperparameters
class FedProx(BySamples):
    """FedAvg with a proximal term mu / 2 |w_i - w|^2 in the local loss."""

    mu: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.01
    """Strength of the pull towards the common model; 0 is FedAvg."""

    def local(self, site: Site, task: Task, memory: Memory | None) -> tuple[Reply, Memory]:
        return train(site, task, memory, pull=Pull(task.params, self.mu))
