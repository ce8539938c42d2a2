"""How well an estimate of the contributions agrees with the truth."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats


@dataclass(frozen=True)
class Agreement:
    pearson: float
    pearson_p: float
    spearman: float
    euclid: float
    cosine: float


def agreement(estimate: Sequence[float], truth: Sequence[float]) -> Agreement:
    """Compare shares site by site; the metrics of the paper's Table 3, and Spearman's rank correlation."""
    a, b = np.asarray(estimate, np.float64), np.asarray(truth, np.float64)
    pearson = stats.pearsonr(a, b)
    return Agreement(
        pearson=float(pearson.statistic),
        pearson_p=float(pearson.pvalue),
        spearman=float(stats.spearmanr(a, b).statistic),
        euclid=float(np.linalg.norm(a - b)),
        cosine=float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b))),
    )
