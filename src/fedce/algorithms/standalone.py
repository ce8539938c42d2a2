"""Standalone: every site trains alone on its own data. Nothing is exchanged; the yardstick of performance fairness."""

from collections.abc import Mapping
from dataclasses import replace

from fedce.algorithms.shared import Alike
from fedce.core.algorithm import Aggregated, Answers, State, Traits, hyperparameters
from fedce.core.messages import Reply, Task
from fedce.core.site import Memory, Site, evaluate_own, train


@hyperparameters
class Standalone(Alike):
    """Every site trains on its own data and sends no model.

    >>> Standalone().traits.exchanges
    False
    """

    @property
    def traits(self) -> Traits:
        return Traits(personal=True, exchanges=False, is_mean=False, accumulates=False)

    def local(self, site: Site, task: Task, memory: Memory | None) -> tuple[Reply, Memory]:
        reply, memory = train(site, task, memory, start=memory.params if memory else task.params)
        return replace(reply, params=None), memory

    def evaluate(self, site: Site, task: Task, memory: Memory | None) -> Reply:
        return evaluate_own(site, task, memory.params if memory else task.params)

    def aggregate(self, state: State, answers: Answers, rho: Mapping[str, float]) -> Aggregated:
        return Aggregated(state.params)
