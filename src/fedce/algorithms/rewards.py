"""What CFFL and CGSV share: every site has its own model, and gets a part of each round's common update."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedce.core.algorithm import Answers
from fedce.core.params import Layout, Params, Vector


@dataclass(frozen=True)
class Rewards:
    """What each site was last given, if downloads differ."""

    models: Mapping[str, Params] = field(default_factory=dict)


def updates_of(answers: Answers) -> list[Vector]:
    """Each site's update: its model minus the model that this site started from."""
    return [
        model.trainable - answers.starts[site].trainable
        for site, model in zip(answers.sites, answers.models, strict=True)
    ]


def sum_of(updates: Sequence[Vector], weights: Sequence[float]) -> Vector:
    """Sum of weights times updates, added up in float64."""
    total = np.zeros(len(updates[0]))
    for update, weight in zip(updates, weights, strict=True):
        total += weight * update.astype(np.float64)
    return total.astype(np.float32)


def top(update: Vector, k: int) -> Vector:
    """The update with only its k largest entries (by size) kept."""
    if k >= len(update):
        return update
    sparse = np.zeros_like(update)
    if k > 0:
        keep = np.argpartition(-np.abs(update), k - 1)[:k]
        sparse[keep] = update[keep]
    return sparse


def largest(update: Vector, fraction: float, layout: Layout, count: Callable[[float], int] = round) -> Vector:
    """The update with only the largest part of each tensor's entries (by size) kept; at least one of each."""
    sparse = np.zeros_like(update)
    for entry, where in layout.slices():
        if entry.kind != "trainable":
            break
        sparse[where] = top(update[where], max(1, count(fraction * entry.size)))
    return sparse


def add(start: Params, update: Vector, rest: Params) -> Params:
    """A model moved by an update of its trainable entries, with the buffers and counters of another model."""
    return Params(start.layout, np.concatenate([start.trainable + update, rest.vector[len(update) :]]))
