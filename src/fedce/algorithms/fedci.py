"""FedCI: the contribution index of Song et al. (2019) as weights: Shapley values of a round's coalition models (B5)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from fedce.core.algorithm import Algorithm, Answers, Ask, State, Terms, hyperparameters, models_of
from fedce.core.credit import Credit, Gains
from fedce.core.messages import MAX_MODELS, Reply, Task
from fedce.core.params import Params, blocks
from fedce.core.weights import normalise
from fedce.valuation import shapley

FLOOR = 1e-6
Coalition = frozenset[str]


class CoalitionModels:
    """w + sum over S of (n_i / n_S) delta_i, for one coalition after another.

    Coalitions in Gray-code order differ by one site, so each costs one addition, not one per member.
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
    """Mean validation score of coalition models over the sites; each model is scored once."""

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


def shapley_of_scores(scores: Scores, n_exact: int) -> dict[str, float]:
    """Shapley values of one round's models: exact, or sampled (GTG) above n_exact sites."""
    if len(scores.sites) <= n_exact:
        scores.score(shapley.coalitions(scores.sites))
        return shapley.exact(scores, scores.sites)
    return dict(shapley.sampled(scores, scores.sites, np.random.default_rng(scores.state.round_no)).values)


@dataclass(frozen=True)
class Value(Terms):
    """The Shapley value of a site's model in the round."""

    value: float


@hyperparameters
class FedCI(Algorithm):
    """Weights by accumulated Shapley value of the rounds' models."""

    n_exact: Annotated[int, Field(ge=1, le=16)] = 10
    """Up to this many sites all coalitions are scored; with more sites, permutations are sampled."""

    terms = Value

    def measure(self, state: State, answers: Answers, ask: Ask) -> dict[str, Any]:
        by_samples = normalise({reply.site: float(reply.n_train) for reply in answers})
        phi = shapley_of_scores(Scores(state, answers, by_samples, ask), self.n_exact)
        return {reply.site: Value(reply.n_train, phi[reply.site]) for reply in answers}

    def gains(self, credit: Credit, terms: Mapping[str, Any]) -> Gains:
        index = normalise({site: max(term.value, FLOOR) for site, term in terms.items()})
        return {site: (len(index) * value,) for site, value in index.items()}

    def weigh(self, credit: Credit, terms: Mapping[str, Any]) -> dict[str, float]:
        return normalise({site: credit[site].means[0] for site in terms})
