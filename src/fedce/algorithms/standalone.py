"""Standalone: every site trains alone on its own data. Nothing is exchanged; the yardstick of performance fairness."""

from dataclasses import replace
from typing import ClassVar

from fedce.algorithms.base import Ask, Memory, Site, State, counted, evaluate_own, hyperparameters, normalise, train
from fedce.messages import Reply, Task


@hyperparameters
class Standalone:
    """Every site keeps to itself."""

    personal: ClassVar[bool] = True
    exchanges: ClassVar[bool] = False

    def local(self, site: Site, task: Task, memory: Memory | None) -> tuple[Reply, Memory]:
        reply, memory = train(site, task, memory, start=memory.params if memory else task.params)
        return replace(reply, params=None), memory

    def evaluate(self, site: Site, task: Task, memory: Memory | None) -> Reply:
        return evaluate_own(site, task, memory.params if memory else task.params)

    def round(self, state: State, ask: Ask) -> State:
        replies = ask(state.tasks())
        alike = {reply.site: 1.0 for reply in replies}
        accounts, shares = counted(state.accounts, alike)
        return replace(
            state, round_no=state.round_no + 1, rho=normalise(alike), shares=shares, accounts=accounts, is_mean=False
        )
