"""FedCI: the contribution index of Song et al. (2019) as weights: Shapley values of every round's coalition models."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from fedce.algorithms.base import (
    Account,
    Ask,
    State,
    aggregate,
    by_samples,
    evaluate_global,
    hyperparameters,
    models_of,
    normalise,
    train,
)
from fedce.messages import MAX_MODELS, Reply, Task
from fedce.params import Params, blocks
from fedce.valuation import shapley

FLOOR = 1e-6
Coalition = frozenset[str]


class CoalitionModels:
    """w + sum over S of (n_i / n_S) delta_i, for one coalition after another.

    Coalitions in Gray-code order differ by one site, so that each costs one addition, not one for each member.
    """

    def __init__(self, replies: Sequence[Reply], weights: Mapping[str, float]) -> None:
        self.models = dict(zip((reply.site for reply in replies), models_of(replies), strict=True))
        self.weights = weights
        self.members: set[str] = set()
        self.sum = np.zeros(next(iter(self.models.values())).layout.n_averaged)

    def of(self, coalition: Coalition) -> Params:
        for site in sorted(self.members ^ coalition):
            sign = 1.0 if site in coalition else -1.0
            for block in blocks(len(self.sum)):
                self.sum[block] += sign * self.weights[site] * self.models[site].vector[block].astype(np.float64)
        self.members = set(coalition)
        any_member = self.models[min(coalition)]
        total = sum(self.weights[site] for site in sorted(coalition))
        vector = np.empty_like(any_member.vector)
        vector[: len(self.sum)] = self.sum / total
        counters = slice(len(self.sum), None)
        vector[counters] = np.max([self.models[site].vector[counters] for site in coalition], axis=0)
        return Params(any_member.layout, vector)


class Scores:
    """Mean validation score over the sites of coalition models, each scored once."""

    def __init__(self, state: State, replies: Sequence[Reply], weights: Mapping[str, float], ask: Ask) -> None:
        self.state, self.ask = state, ask
        self.sites = [reply.site for reply in replies]
        self.models = CoalitionModels(replies, weights)
        nothing = sum(reply.score or 0.0 for reply in replies) / len(replies)
        self.known: dict[Coalition, float] = {frozenset(): nothing}

    def __call__(self, coalition: Coalition) -> float:
        if coalition not in self.known:
            self.score([coalition])
        return self.known[coalition]

    def score(self, wanted: Sequence[Coalition]) -> None:
        new = [coalition for coalition in wanted if coalition not in self.known]
        for some in _batches(new):
            models = tuple(self.models.of(coalition) for coalition in some)
            tasks = [
                Task(site, self.state.round_no, self.state.params, action="score", models=models) for site in self.sites
            ]
            scores = np.mean([reply.scores for reply in self.ask(tasks)], axis=0)
            self.known |= dict(zip(some, scores.tolist(), strict=True))


def _batches(coalitions: Sequence[Coalition]) -> Iterator[Sequence[Coalition]]:
    return (coalitions[i : i + MAX_MODELS] for i in range(0, len(coalitions), MAX_MODELS))


def shapley_of_round(
    state: State, replies: Sequence[Reply], weights: Mapping[str, float], ask: Ask, n_exact: int
) -> dict[str, float]:
    """Shapley values of one round's models: exact, or sampled (GTG) above n_exact sites."""
    scores = Scores(state, replies, weights, ask)
    if len(replies) <= n_exact:
        scores.score(shapley.coalitions(scores.sites))
        return shapley.exact(scores, scores.sites)
    return dict(shapley.sampled(scores, scores.sites, np.random.default_rng(state.round_no)).values)


@hyperparameters
class FedCI:
    """Weights by accumulated Shapley value of the rounds' models."""

    n_exact: Annotated[int, Field(ge=1, le=16)] = 10
    """Up to so many sites all coalitions are scored; above, permutations are sampled."""

    personal: ClassVar[bool] = False
    exchanges: ClassVar[bool] = True
    local = staticmethod(train)
    evaluate = staticmethod(evaluate_global)

    def round(self, state: State, ask: Ask) -> State:
        replies = ask(state.tasks())
        phi = shapley_of_round(state, replies, by_samples(replies), ask, self.n_exact)
        index = normalise({site: max(value, FLOOR) for site, value in phi.items()})
        accounts = dict(state.accounts)
        for site, value in index.items():
            old = state.accounts.get(site, Account())
            accounts[site] = replace(old, rounds=old.rounds + 1, value=old.value + len(index) * value)
        credit = {site: account.value / account.rounds for site, account in accounts.items()}
        rho = normalise({reply.site: credit[reply.site] for reply in replies})
        return aggregate(state, replies, rho, accounts, normalise(credit))
