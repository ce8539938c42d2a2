"""CGSV (Xu et al., 2021): a site's reputation is how well its update agrees with everybody's together."""

from dataclasses import replace
from math import tanh
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedce.algorithms.base import (
    Ask,
    Memory,
    Site,
    State,
    aggregate,
    evaluate_global,
    evaluate_own,
    hyperparameters,
    models_of,
    normalise,
    remember,
    reputations,
    train,
)
from fedce.messages import Reply, Task
from fedce.params import Layout, Params, Vector, inner_products

MEMORY = 0.95
FLOOR = 1e-3


def cosines_with_sum(products: NDArray[np.float64], r: NDArray[np.float64]) -> NDArray[np.float64]:
    """phi_i = cos(u_i, sum r_j u_j) of updates brought to one length; an update of zero agrees with nothing."""
    norms = np.sqrt(np.diag(products))
    safe = np.where(norms > 0, norms, 1.0)
    cosines = products / np.outer(safe, safe)
    total = float(np.sqrt(max(r @ cosines @ r, 0.0)))
    return cosines @ r / total if total > 0 else np.zeros(len(r))


def largest(update: Vector, fraction: float, layout: Layout) -> Vector:
    """The update with only the largest part of each tensor's entries (by size) kept; at least one of each."""
    sparse = np.zeros_like(update)
    for entry, where in layout.slices():
        if entry.kind != "trainable":
            break
        part = update[where]
        k = min(max(1, round(fraction * part.size)), part.size)
        keep = np.argpartition(-np.abs(part), k - 1)[:k] if k < part.size else slice(None)
        sparse[where][keep] = part[keep]
    return sparse


@hyperparameters
class CGSV:
    """Weights by reputation; with variant rewards each site also downloads only as much as it deserves."""

    variant: Literal["weights", "rewards"] = "weights"
    beta: Annotated[float, Field(gt=0)] = 1.0
    """How generous rewards are: the larger, the more alike are the downloads."""

    exchanges: ClassVar[bool] = True

    @property
    def personal(self) -> bool:
        return self.variant == "rewards"

    local = staticmethod(train)

    def evaluate(self, site: Site, task: Task, memory: Memory | None) -> Reply:
        return evaluate_own(site, task, task.params) if self.personal else evaluate_global(site, task, memory)

    def round(self, state: State, ask: Ask) -> State:
        tasks = {task.site: task for task in state.tasks()}
        replies = ask(list(tasks.values()))
        deltas = [
            model.trainable - tasks[reply.site].params.trainable
            for model, reply in zip(models_of(replies), replies, strict=True)
        ]
        products = inner_products(deltas)
        old = reputations(state, [reply.site for reply in replies])
        phi = cosines_with_sum(products, np.array(list(old.values())))
        r = normalise(
            {site: max(MEMORY * old[site] + (1 - MEMORY) * p, FLOOR) for site, p in zip(old, phi, strict=True)}
        )
        after = aggregate(state, replies, r, *remember(state, r))
        if self.variant == "weights":
            return after
        norms = np.sqrt(np.diag(products))
        together = sum(
            np.float32(r[reply.site] * norms.mean() / norm) * delta
            for reply, delta, norm in zip(replies, deltas, norms, strict=True)
            if norm > 0
        )
        return self._reward(state, after, r, together if isinstance(together, np.ndarray) else np.zeros_like(deltas[0]))

    def _reward(self, state: State, after: State, r: dict[str, float], together: Vector) -> State:
        """Each site adds to its own model the largest entries of the common update, as many as it has earned.

        Buffers are never sparsified: everybody gets their mean.
        """
        best = max(tanh(self.beta * value) for value in r.values())
        models = dict(state.models_by_site)
        for site, value in r.items():
            start = state.task_for(site).params
            reward = largest(together, tanh(self.beta * value) / best, start.layout)
            models[site] = add(start, reward, after.params)
        return replace(after, params=add(state.params, together, after.params), models_by_site=models, is_mean=False)


def add(start: Params, update: Vector, rest: Params) -> Params:
    """A model moved by an update of its trainable entries, with another's buffers and counters."""
    return Params(start.layout, np.concatenate([start.trainable + update, rest.vector[len(update) :]]))
