"""Performance fairness: how evenly a model serves its sites."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedce.base.errors import FedceError


@dataclass(frozen=True)
class Fairness:
    """Statistics of the sites' Dice scores, as fractions."""

    mean: float
    std: float
    """Sample standard deviation (n - 1), as in the paper's Table 1."""
    worst: float
    best: float
    jain: float
    """Jain's index: 1 if all sites are served alike, 1/n if one site has everything."""
    gini: float
    """Gini coefficient: 0 if all sites are served alike, nearer to 1 the less evenly they are served."""

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
    """(sum x)^2 / (n sum x^2); scores that are all zero count as even."""
    values = np.asarray(scores, np.float64)
    squares = float(values @ values)
    return float(values.sum()) ** 2 / (len(values) * squares) if squares > 0 else 1.0


def gini(scores: Sequence[float]) -> float:
    """Mean absolute difference between two sites over twice the mean; scores that are all zero count as even."""
    values = np.asarray(scores, np.float64)
    mean = float(values.mean())
    return float(np.abs(values[:, None] - values).mean()) / (2 * mean) if mean > 0 else 0.0


@dataclass(frozen=True)
class AgainstStandalone:
    """What federation changed for each site, compared with training alone; in the unit of the given scores."""

    pearson: float | None
    """Whether sites that do well alone do well together; None if undefined: fewer than two sites, or all alike."""
    pearson_p: float | None
    euclid: float
    gain_by_site: dict[str, float]
    """The score together minus the score alone: above 0 if the site is better off together."""
    mean_gain: float
    n_sites_worse: int


def against_standalone(dice_by_site: Mapping[str, float], standalone_by_site: Mapping[str, float]) -> AgainstStandalone:
    if not dice_by_site:
        raise FedceError("no site to compare with its Standalone model")
    if odd := dice_by_site.keys() ^ standalone_by_site.keys():
        raise FedceError(f"no comparison with Standalone: only one of the two runs has {', '.join(sorted(odd))}")
    together = np.array([dice_by_site[site] for site in dice_by_site], np.float64)
    alone = np.array([standalone_by_site[site] for site in dice_by_site], np.float64)
    if not np.isfinite([together, alone]).all():
        raise FedceError("no comparison with Standalone: a score is not a finite number")
    gains = together - alone
    correlation = pearson(together, alone)
    return AgainstStandalone(
        pearson=correlation[0] if correlation else None,
        pearson_p=correlation[1] if correlation else None,
        euclid=float(np.linalg.norm(gains)),
        gain_by_site=dict(zip(dice_by_site, gains.tolist(), strict=True)),
        mean_gain=float(gains.mean()),
        n_sites_worse=int((gains < 0).sum()),
    )


def pearson(a: ArrayLike, b: ArrayLike) -> tuple[float, float] | None:
    """Pearson's correlation and its two-sided p; None if undefined (see `is_constant`)."""
    from scipy import stats

    x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if is_constant(x) or is_constant(y):
        return None
    result = stats.pearsonr(x, y)
    return float(result.statistic), float(result.pvalue)


def is_constant(values: ArrayLike) -> bool:
    """Whether all values are equal up to rounding: any order among them would be an accident."""
    x = np.asarray(values, np.float64)
    return float(np.ptp(x)) <= 1e-12 * float(np.abs(x).max())
