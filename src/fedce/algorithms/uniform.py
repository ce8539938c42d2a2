"""Uniform: every site weighs the same. A strong baseline that the paper lacks."""

from typing import ClassVar

from fedce.algorithms.base import Ask, State, aggregate, counted, evaluate_global, hyperparameters, normalise, train


@hyperparameters
class Uniform:
    """Every site weighs 1/N."""

    personal: ClassVar[bool] = False
    exchanges: ClassVar[bool] = True
    local = staticmethod(train)
    evaluate = staticmethod(evaluate_global)

    def round(self, state: State, ask: Ask) -> State:
        replies = ask(state.tasks())
        alike = {reply.site: 1.0 for reply in replies}
        return aggregate(state, replies, normalise(alike), *counted(state.accounts, alike))
