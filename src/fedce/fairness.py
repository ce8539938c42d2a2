"""Performance fairness: how evenly a model serves its sites."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np


@dataclass(frozen=True)
class Fairness:
    """Of the sites' Dice scores, as fractions."""

    mean: float
    std: float
    """Sample standard deviation (n - 1), as in the paper's Table 1."""
    worst: float
    best: float
    jain: float
    """Jain's index: 1 if all are served alike, 1/n if one has everything."""
    gini: float
    """0 if all are served alike, towards 1 the less evenly."""

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


def fairness(scores: Sequence[float]) -> Fairness:
    values = np.asarray(scores, np.float64)
    return Fairness(
        mean=float(values.mean()),
        std=sample_std(values.tolist()),
        worst=float(values.min()),
        best=float(values.max()),
        jain=jain(values.tolist()),
        gini=gini(values.tolist()),
    )


def sample_std(scores: Sequence[float]) -> float:
    return float(np.std(scores, ddof=1)) if len(scores) > 1 else 0.0


def jain(scores: Sequence[float]) -> float:
    """(sum x)^2 / (n sum x^2); all zero counts as even."""
    values = np.asarray(scores, np.float64)
    squares = float(values @ values)
    return float(values.sum()) ** 2 / (len(values) * squares) if squares > 0 else 1.0


def gini(scores: Sequence[float]) -> float:
    """Mean absolute difference between two sites over twice the mean; all zero counts as even."""
    values = np.asarray(scores, np.float64)
    mean = float(values.mean())
    return float(np.abs(values[:, None] - values).mean()) / (2 * mean) if mean > 0 else 0.0
