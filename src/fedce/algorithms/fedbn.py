"""FedBN (Li et al., 2021): FedAvg, but every site keeps its own normalisation layers (B8)."""

import numpy as np

from fedce.algorithms.shared import BySamples
from fedce.core.algorithm import Traits, hyperparameters
from fedce.core.messages import Reply, Task
from fedce.core.params import Params
from fedce.core.site import Memory, Site, evaluate_own, train, without_site


def with_own_norms(common: Params, memory: Memory | None) -> Params:
    """The common model with the normalisation layers that the site had after its last training."""
    if memory is None:
        return common
    return Params(common.layout, np.where(common.layout.norm, memory.params.vector, common.vector))


@hyperparameters
class FedBN(BySamples):
    """Each site uses the common model with its own normalisation layers."""

    @property
    def traits(self) -> Traits:
        return Traits(personal=True, accumulates=False)

    def local(self, site: Site, task: Task, memory: Memory | None) -> tuple[Reply, Memory]:
        return train(site, task, memory, start=with_own_norms(task.params, memory))

    def evaluate(self, site: Site, task: Task, memory: Memory | None) -> Reply:
        others = without_site(task, memory)
        without = with_own_norms(others, memory) if others else None
        return evaluate_own(site, task, with_own_norms(task.params, memory), without)
