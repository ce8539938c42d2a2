"""How well an estimate of the contributions agrees with the truth, and with itself."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedce.base.errors import ConfigError, FedceError
from fedce.valuation.fairness import is_constant, pearson

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Agreement:
    """Agreement by metric; None if undefined: a correlation with a constant vector, a cosine with a zero one."""

    pearson: float | None
    pearson_p: float | None
    """Two-sided. With six sites this p value is fragile: see `bootstrap_agreement`."""
    spearman: float | None
    euclid: float
    cosine: float | None


def agreement(estimate: ArrayLike, truth: ArrayLike) -> Agreement:
    """Compare shares site by site; the metrics of the paper's Table 3, and Spearman's rank correlation."""
    from scipy import stats

    a, b = _paired(estimate, truth)
    if a.ndim != 1:
        raise FedceError("agreement compares one share per site; for several seeds use bootstrap_agreement")
    correlation = pearson(a, b)
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    return Agreement(
        pearson=correlation[0] if correlation else None,
        pearson_p=correlation[1] if correlation else None,
        spearman=float(stats.spearmanr(a, b).statistic) if correlation else None,
        euclid=float(np.linalg.norm(a - b)),
        cosine=float(a @ b) / norms if norms > 0 else None,
    )


@dataclass(frozen=True)
class Interval:
    low: float
    high: float
    n_dropped: int
    """Draws in which the metric is undefined, and which the interval leaves out."""


@dataclass(frozen=True)
class AgreementIntervals:
    """An interval for each metric; None for a metric that is undefined in every draw."""

    pearson: Interval | None
    spearman: Interval | None
    euclid: Interval | None
    cosine: Interval | None
    n_draws: int


def bootstrap_agreement(
    estimates: ArrayLike,
    truths: ArrayLike,
    rng: np.random.Generator,
    n_draws: int = 2000,
    level: float = 0.95,
) -> AgreementIntervals:
    """Percentile intervals: how far the agreement depends on the sites and the seeds that happened to be there.

    One share per site, or seeds x sites; a single truth may be given for all seeds. Sites are drawn in pairs (estimate
    with truth); seeds are drawn too, with the same seeds for both, and then averaged: this is the agreement of the mean
    shares. A draw of one site only, n times, has no correlation: it is dropped and counted. With fewer than five sites
    most draws hold two or three distinct ones, and the interval says little more than "anything is possible".
    """
    a, b = _paired(estimates, truths)
    if n_draws < 1:
        raise ConfigError(f"n_draws must be at least 1 (got {n_draws})")
    if not 0 < level < 1:
        raise ConfigError(f"level must be between 0 and 1 (got {level})")
    a, b = np.atleast_2d(a), np.atleast_2d(b)
    n_seeds, n_sites = a.shape
    seeds = rng.integers(n_seeds, size=(n_draws, n_seeds))
    sites = rng.integers(n_sites, size=(n_draws, n_sites))
    x = np.take_along_axis(a[seeds].mean(axis=1), sites, axis=1)
    y = np.take_along_axis(b[seeds].mean(axis=1), sites, axis=1)
    constant = np.array([is_constant(row) for row in x]) | np.array([is_constant(row) for row in y])
    zero = np.array([not (p.any() and q.any()) for p, q in zip(x, y, strict=True)])

    def interval(metric: Callable[[Floats, Floats], Floats], undefined: NDArray[np.bool_]) -> Interval | None:
        if undefined.all():
            return None
        low, high = np.quantile(metric(x[~undefined], y[~undefined]), [(1 - level) / 2, (1 + level) / 2])
        return Interval(float(low), float(high), n_dropped=int(undefined.sum()))

    return AgreementIntervals(
        pearson=interval(_pearson_by_row, constant),
        spearman=interval(_spearman_by_row, constant),
        euclid=interval(
            lambda p, q: np.asarray(np.linalg.norm(p - q, axis=1), np.float64), np.zeros(n_draws, np.bool_)
        ),
        cosine=interval(_cosine_by_row, zero),
        n_draws=n_draws,
    )


def _cosine_by_row(x: Floats, y: Floats) -> Floats:
    return np.asarray(np.sum(x * y, axis=1) / (np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)), np.float64)


def _pearson_by_row(x: Floats, y: Floats) -> Floats:
    return _cosine_by_row(x - x.mean(axis=1, keepdims=True), y - y.mean(axis=1, keepdims=True))


def _spearman_by_row(x: Floats, y: Floats) -> Floats:
    from scipy import stats

    return _pearson_by_row(stats.rankdata(x, axis=1), stats.rankdata(y, axis=1))


@dataclass(frozen=True)
class Reliability:
    """How far a truth agrees with itself when it is measured again with another seed."""

    between_seeds: float
    """Pearson's correlation of two seeds' values, averaged over all pairs."""
    ceiling: float
    """The correlation with the mean over seeds that a perfect estimate could be expected to reach."""


def reliability(values: ArrayLike) -> Reliability | None:
    """The reliability of values with one row per seed; None for one seed, or if a row is constant.

    Classical test theory: the mean of n measurements has reliability n r / (1 + (n - 1) r) (Spearman and Brown), and
    on average nothing correlates with this mean better than the square root of its reliability.
    """
    rows = np.asarray(values, np.float64)
    n = len(rows)
    if n < 2 or any(is_constant(row) for row in rows):
        return None
    r = float(np.atleast_2d(np.corrcoef(rows))[np.triu_indices(n, k=1)].mean())
    of_the_mean = n * r / (1 + (n - 1) * r) if r > 0 else 0.0
    return Reliability(between_seeds=r, ceiling=float(np.sqrt(of_the_mean)))


@dataclass(frozen=True)
class RankStability:
    """How stable the order of the sites is, by Kendall's tau-b: 1 same order, -1 reverse; None if all sites tie."""

    mean_tau: float | None
    """Mean tau over all pairs of rows; useful if rows are seeds."""
    tau_with_last: tuple[float | None, ...]
    """Tau of each row with the last row; useful if rows are rounds."""
    settled_from: int
    """The first row after which the order of the sites never changes (a tie that opens or closes is a change)."""


def rank_stability(shares: ArrayLike) -> RankStability:
    """Shares with one row per round or per seed, and one column per site."""
    rows = np.asarray(shares, np.float64)
    if rows.ndim != 2 or rows.shape[0] < 1 or rows.shape[1] < 2:
        raise FedceError(f"rank stability needs rows of shares of at least two sites (got shape {rows.shape})")
    if not np.isfinite(rows).all():
        raise FedceError("rank stability needs finite shares: leave out rounds in which a site has none")
    signs = _order_signs(rows)
    # Tau-b is the cosine between the signs of all pairwise differences.
    agreeing = signs @ signs.T
    norms = np.sqrt(np.diag(agreeing))
    with np.errstate(invalid="ignore"):
        tau = agreeing / np.outer(norms, norms)
    upper = tau[np.triu_indices(len(rows), k=1)]
    defined = upper[~np.isnan(upper)]
    differs = np.flatnonzero((signs != signs[-1]).any(axis=1))
    return RankStability(
        mean_tau=float(defined.mean()) if defined.size else None,
        tau_with_last=tuple(None if np.isnan(t) else float(t) for t in tau[:, -1]),
        settled_from=int(differs[-1]) + 1 if differs.size else 0,
    )


def _order_signs(rows: Floats) -> Floats:
    """For each row and pair of sites: 1, 0 or -1 if the first is ahead, level (up to rounding) or behind."""
    left, right = np.array(list(combinations(range(rows.shape[1]), 2))).T
    difference = rows[:, left] - rows[:, right]
    level = np.abs(difference) <= 1e-12 * np.abs(rows).max(axis=1, keepdims=True)
    return np.where(level, 0.0, np.sign(difference))


def _paired(estimate: ArrayLike, truth: ArrayLike) -> tuple[Floats, Floats]:
    a, b = np.asarray(estimate, np.float64), np.asarray(truth, np.float64)
    if a.ndim == 2 and b.ndim == 1 and a.shape[1:] == b.shape:
        b = np.broadcast_to(b, a.shape)
    if a.shape != b.shape or a.ndim not in (1, 2):
        raise FedceError(f"estimate and truth must have one share per site each (got shapes {a.shape} and {b.shape})")
    if a.shape[-1] < 2 or a.shape[0] < 1:
        raise FedceError(f"agreement needs at least two sites (got {a.shape[-1]})")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise FedceError("agreement needs finite shares: an estimate or a truth is not a number")
    return a, b
