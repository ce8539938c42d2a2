"""Standalone: every site trains alone on its own data. Nothing is exchanged; the yardstick of performance fairness."""

from dataclasses import replace
from typing import ClassVar

from fedce.algorithms.base import Account, Ask, Memory, Site, State, evaluate_own, hyperparameters, normalise, train
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
        rho = normalise({reply.site: 1.0 for reply in replies})
        accounts = {**state.accounts, **{reply.site: Account(1, 1.0) for reply in replies}}
        shares = normalise(dict.fromkeys(accounts, 1.0))
        return replace(state, round_no=state.round_no + 1, rho=rho, shares=shares, accounts=accounts, is_mean=False)
