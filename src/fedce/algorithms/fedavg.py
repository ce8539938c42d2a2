"""FedAvg (McMahan et al., 2017): weights in proportion to the number of training images."""

from typing import ClassVar

from fedce.algorithms.base import Ask, State, average_by_samples, evaluate_global, hyperparameters, train


@hyperparameters
class FedAvg:
    """Every site weighs by its training images."""

    personal: ClassVar[bool] = False
    exchanges: ClassVar[bool] = True
    local = staticmethod(train)
    evaluate = staticmethod(evaluate_global)

    def round(self, state: State, ask: Ask) -> State:
        return average_by_samples(state, ask(state.tasks()))
