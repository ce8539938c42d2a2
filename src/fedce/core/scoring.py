"""Dice of cases, from counted pixels: the one place that scores a model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
MIN_CASES = 5
"""With fewer cases no interval is given: they say next to nothing about cases that were not seen."""
LEVEL = 0.95
N_DRAWS = 2000


@dataclass(frozen=True, eq=False)
class Counts:
    """Pixels counted in some images; both arrays are (images, classes)."""

    overlap: NDArray[np.int64]
    """Pixels that are both predicted and marked."""
    total: NDArray[np.int64]
    """Predicted pixels plus marked pixels."""


def dice(overlap: NDArray[np.int64], total: NDArray[np.int64]) -> Floats:
    """2 overlap / total. An empty mask scores 1 if the prediction is empty too, otherwise 0 (D15)."""
    # Single precision, as in all recorded runs: their scores are reproduced to the last bit.
    quotient = (2.0 * overlap / np.maximum(total, 1)).astype(np.float32)
    return np.where(total == 0, 1.0, quotient).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Grouping:
    """Which images are scored together, and to which case they belong."""

    scored: NDArray[np.int64]
    """For each image, the number of its 2-D image or volume; the slices of a volume have one number."""
    case: NDArray[np.int64]
    """For each 2-D image or volume, the number of its case."""

    @classmethod
    def of(cls, items: Sequence[int], cases: Sequence[str]) -> "Grouping":
        """From the file and the case of each image, numbered in order of appearance."""
        case_by_item = dict(zip(items, cases, strict=True))
        return cls(_numbered(items), _numbered(list(case_by_item.values())))

    @property
    def n_cases(self) -> int:
        return int(self.case.max(initial=-1)) + 1

    def dice(self, counts: Counts) -> Floats:
        """Dice by (case, class): a volume is scored as a whole, a case by the mean of its images or volumes."""
        scores = dice(_sums(counts.overlap, self.scored), _sums(counts.total, self.scored))
        by_case: Floats = _sums(scores, self.case) / np.bincount(self.case)[:, None]
        return by_case

    @property
    def members(self) -> list[NDArray[np.int64]]:
        """For each 2-D image or volume, the positions of its images."""
        return [np.flatnonzero(self.scored == i) for i in range(len(self.case))]

    def by_case(self, values: Floats) -> Floats:
        """Mean by (case, class) of values by (2-D image or volume, class); NaN is left out."""
        return np.stack([known_mean(values[self.case == i]) for i in range(self.n_cases)])


def known_mean(values: Floats) -> Floats:
    """Mean over the first axis without NaN; NaN if there is no other value."""
    known = ~np.isnan(values)
    total, n = np.where(known, values, 0.0).sum(axis=0), known.sum(axis=0)
    return np.where(n > 0, total / np.maximum(n, 1), np.nan)


def _numbered(values: Sequence[Any]) -> NDArray[np.int64]:
    number = {value: i for i, value in enumerate(dict.fromkeys(values))}
    return np.array([number[value] for value in values], np.int64)


def _sums(values: NDArray[Any], group: NDArray[np.int64]) -> NDArray[Any]:
    sums = np.zeros((int(group.max(initial=-1)) + 1, *values.shape[1:]), values.dtype)
    np.add.at(sums, group, values)
    return sums


def dice_interval(by_case: Floats, seed: int) -> tuple[float, float] | None:
    """A 95 % interval of the mean over cases (bias-corrected bootstrap, BCa); None below five cases."""
    if len(by_case) < MIN_CASES:
        return None
    if np.ptp(by_case) < 1e-9:  # All cases are equal; BCa would divide by zero.
        return float(by_case.min()), float(by_case.max())
    from scipy import stats

    options = {"n_resamples": N_DRAWS, "confidence_level": LEVEL, "method": "BCa"}
    rng = np.random.default_rng(seed)
    found = stats.bootstrap((by_case,), np.mean, random_state=rng, **options).confidence_interval
    low, high = np.clip([found.low, found.high], by_case.min(), by_case.max())  # Rounding must not exceed 1.
    return float(low), float(high)


def too_few(site: str, n_cases: int, part: str) -> str:
    """Why a site has no interval."""
    return f"{site} has {n_cases} {part} {'case' if n_cases == 1 else 'cases'}; an interval needs at least {MIN_CASES}"
