"""Standalone: every site trains alone on its own data. Nothing is exchanged; the yardstick of performance fairness."""

from dataclasses import replace
from typing import ClassVar

from fedce.algorithms.base import Ask, Memory, Site, State, hyperparameters, train
from fedce.messages import Reply, Task


@hyperparameters
class Standalone:
    """Every site keeps to itself."""

    personal: ClassVar[bool] = True

    def local(self, site: Site, task: Task, memory: Memory | None) -> tuple[Reply, Memory]:
        reply, memory = train(site, task, memory, start=memory.params if memory else task.params)
        return replace(reply, params=None), memory

    def evaluate(self, site: Site, task: Task, memory: Memory | None) -> Reply:
        own = memory.params if memory else task.params
        evaluation = site.evaluate(own, None)
        return Reply(site.name, task.round_no, site.n_train, params=own, evaluation=evaluation)

    def round(self, state: State, ask: Ask) -> State:
        replies = ask(state.tasks())
        equal = {reply.site: 1 / len(replies) for reply in replies}
        return replace(state, round_no=state.round_no + 1, rho=equal, shares=equal, terms={})
