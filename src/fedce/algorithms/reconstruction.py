"""Shapley values reconstructed from each round's models, whatever the algorithm: a ground truth without retraining.

Wraps an algorithm and leaves it as it is: after its round, the models of all coalitions of the round's replies,
averaged with the round's own weights, are scored at the sites. The values add up over the rounds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedce.algorithms.base import Algorithm, Ask, Memory, Site, State
from fedce.algorithms.fedci import shapley_of_round
from fedce.errors import ConfigError
from fedce.messages import Reply, Task

# A site without weight has a model all the same; coalitions of such sites must have a mean.
SMALLEST_WEIGHT = 1e-9


CANNOT = "only for methods whose common model is the weighted mean of the sites' models"


@dataclass(frozen=True)
class Reconstruction:
    inner: Algorithm
    n_exact: int = 10

    def __post_init__(self) -> None:
        if self.inner.personal or not self.inner.exchanges:
            raise ConfigError(f"reconstruction: {CANNOT} ({type(self.inner).__name__})")

    @property
    def personal(self) -> bool:
        return self.inner.personal

    @property
    def exchanges(self) -> bool:
        return self.inner.exchanges

    def local(self, site: Site, task: Task, memory: Memory | None) -> tuple[Reply, Memory]:
        return self.inner.local(site, task, memory)

    def evaluate(self, site: Site, task: Task, memory: Memory | None) -> Reply:
        return self.inner.evaluate(site, task, memory)

    def round(self, state: State, ask: Ask) -> State:
        trained: list[Reply] = []

        def listening(tasks: Sequence[Task]) -> list[Reply]:
            replies = ask(tasks)
            if tasks[0].action == "train":
                trained[:] = replies
            return replies

        after = self.inner.round(state, listening)
        if not after.is_mean:
            raise ConfigError(f"reconstruction: {CANNOT} ({type(self.inner).__name__})")
        weights = {reply.site: max(after.rho[reply.site], SMALLEST_WEIGHT) for reply in trained}
        phi = shapley_of_round(state, trained, weights, ask, self.n_exact)
        values = {site: state.values.get(site, 0.0) + phi.get(site, 0.0) for site in {**state.values, **phi}}
        return replace(after, values=values)
