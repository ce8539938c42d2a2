"""FedAvg (McMahan et al., 2017): weights in proportion to the number of training images."""

from typing import ClassVar

from fedce.algorithms.base import Account, Ask, State, aggregate, evaluate_global, hyperparameters, normalise, train


@hyperparameters
class FedAvg:
    """Every site weighs by its training images."""

    personal: ClassVar[bool] = False
    local = staticmethod(train)
    evaluate = staticmethod(evaluate_global)

    def round(self, state: State, ask: Ask) -> State:
        replies = ask(state.tasks())
        images = {reply.site: float(reply.n_train) for reply in replies}
        accounts = {**state.accounts, **{site: Account(1, n) for site, n in images.items()}}
        shares = normalise({site: account.value for site, account in accounts.items()})
        return aggregate(state, replies, normalise(images), accounts, shares)
