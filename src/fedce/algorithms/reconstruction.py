"""Shapley values reconstructed from each round's models, whatever the algorithm: a ground truth without retraining.

Wraps an algorithm and leaves it unchanged: after its round, the models of all coalitions of the round's replies,
averaged with the round's own weights, are scored at the sites. The values add up over the rounds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fedce.algorithms.fedci import Scores, shapley_of_scores
from fedce.base.errors import ConfigError
from fedce.core.algorithm import Ask, State
from fedce.core.messages import Reply, Task
from fedce.core.params import Params
from fedce.core.wrapping import Wrapping, of_inner
from fedce.valuation import shapley

# A site without weight still has a model; coalitions of such sites must have a mean.
SMALLEST_WEIGHT = 1e-9


@dataclass(frozen=True)
class Reconstructed:
    """Values of the rounds so far, and what the wrapped algorithm keeps."""

    inner: Any
    values: Mapping[str, float] = field(default_factory=dict)
    """Shapley values."""
    banzhaf: Mapping[str, float] = field(default_factory=dict)
    """Banzhaf values of the same games; empty where coalitions are sampled."""


@dataclass(frozen=True)
class Reconstruction(Wrapping):
    n_exact: int = 10

    def __post_init__(self) -> None:
        if self.traits.personal or not self.traits.exchanges or not self.traits.is_mean:
            raise ConfigError(
                "reconstruction: only for methods whose common model is the weighted mean of the sites' models"
            )

    def initial_own(self, params: Params) -> Reconstructed:
        return Reconstructed(self.inner.initial_own(params))

    def round(self, state: State, ask: Ask) -> State:
        trained: list[Reply] = []

        def listening(tasks: Sequence[Task]) -> Sequence[Reply]:
            replies = ask(tasks)
            if tasks[0].action == "train":
                trained[:] = replies
            return replies

        after = self.inner.round(of_inner(state), listening)
        weights = {reply.site: max(after.rho[reply.site], SMALLEST_WEIGHT) for reply in trained}
        scores, before = Scores(state, trained, weights, ask), state.own
        values = _added(before.values, shapley_of_scores(scores, self.n_exact))
        is_exact = len(trained) <= self.n_exact
        banzhaf = _added(before.banzhaf, shapley.banzhaf(scores, scores.sites)) if is_exact else {}
        return replace(after, own=Reconstructed(after.own, values, banzhaf))


def _added(before: Mapping[str, float], phi: Mapping[str, float]) -> dict[str, float]:
    return {site: before.get(site, 0.0) + phi.get(site, 0.0) for site in {**before, **phi}}


def reconstructed_values(state: State) -> dict[str, dict[str, float]]:
    """The Shapley values in a state, and beside them the Banzhaf values where all coalitions were scored."""
    if not isinstance(state.own, Reconstructed):
        return {"reconstruction": {}}
    banzhaf = {"banzhaf": dict(state.own.banzhaf)} if state.own.banzhaf else {}
    return {"reconstruction": dict(state.own.values), **banzhaf}
