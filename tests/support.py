"""Small stand-ins: models of a few numbers, and sites whose answers are known."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fedce.algorithms.base import Memory, Moments, State, Trained
from fedce.messages import Evaluation, Reply, Task
from fedce.params import Entry, Layout, Params


def layout(n_trainable: int, n_buffers: int = 0, n_counters: int = 0) -> Layout:
    kinds = (("trainable", n_trainable), ("buffer", n_buffers), ("counter", n_counters))
    return Layout(tuple(Entry(kind, (n,), kind) for kind, n in kinds if n))


def params(values: Sequence[float], n_buffers: int = 0, n_counters: int = 0) -> Params:
    n_trainable = len(values) - n_buffers - n_counters
    return Params(layout(n_trainable, n_buffers, n_counters), np.array(values, np.float32))


class FakeSite:
    """Adds a fixed update to whatever it is sent, and scores by a given function."""

    def __init__(
        self, name: str, update: Sequence[float], n_train: int = 10, score: Callable[[Params], float] = lambda w: 0.5
    ) -> None:
        self.name, self.n_train = name, n_train
        self.update, self.score_of = np.array(update, np.float32), score

    def train(self, w: Params, round_no: int, moments: Moments) -> Trained:
        return Trained(Params(w.layout, w.vector + self.update), 0.1, {})

    def score(self, w: Params) -> float:
        return self.score_of(w)

    def evaluate(self, w: Params, without: Params | None) -> Evaluation:
        return Evaluation(self.score(w), {"a": self.score(w)}, None if without is None else self.score(without), 1)


class FakeFederation:
    """Runs an algorithm over fake sites, without any engine."""

    def __init__(self, algorithm, sites: Sequence[FakeSite], size: int | None = None) -> None:
        self.algorithm = algorithm
        self.sites = {site.name: site for site in sites}
        self.memories: dict[str, Memory] = {}
        start = params([0.0] * (size or len(sites[0].update)))
        self.state = State(sites=tuple(sorted(self.sites)), params=start)
        self.replies: list[Reply] = []
        self.absent: set[str] = set()

    def ask(self, tasks: Sequence[Task]) -> list[Reply]:
        self.replies = []
        for task in tasks:
            if task.site in self.absent:
                continue
            reply, memory = self.algorithm.local(self.sites[task.site], task, self.memories.get(task.site))
            self.memories[task.site] = memory
            self.replies.append(reply)
        return sorted(self.replies, key=lambda reply: reply.site)

    def run(self, n_rounds: int) -> State:
        for _ in range(n_rounds):
            self.state = self.algorithm.round(self.state, self.ask)
        return self.state


def rounded(values: Mapping[str, float], digits: int = 6) -> dict[str, float]:
    return {key: round(value, digits) for key, value in values.items()}
