"""Uniform: every site weighs the same. A strong baseline that the paper lacks."""

from typing import ClassVar

from fedce.algorithms.base import Account, Ask, State, aggregate, evaluate_global, hyperparameters, normalise, train


@hyperparameters
class Uniform:
    """Every site weighs 1/N."""

    personal: ClassVar[bool] = False
    exchanges: ClassVar[bool] = True
    local = staticmethod(train)
    evaluate = staticmethod(evaluate_global)

    def round(self, state: State, ask: Ask) -> State:
        replies = ask(state.tasks())
        accounts = {**state.accounts, **{reply.site: Account(1, 1.0) for reply in replies}}
        rho = normalise({reply.site: 1.0 for reply in replies})
        return aggregate(state, replies, rho, accounts, normalise(dict.fromkeys(accounts, 1.0)))
