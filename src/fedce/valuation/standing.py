"""Whether the first of several is ahead of the others by more than its uncertainty: only then may a sentence say so."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

NO_DIFFERENCE = "no difference that these runs can show"
LEVEL = 0.95
MOST_NAMED = 3
SAME = 1e-12
"""Values that are closer than this differ by rounding alone."""


@dataclass(frozen=True)
class Standing:
    """The name with the best mean, and the names whose means can't be told from it."""

    first: str
    level_with: tuple[str, ...]
    """Names whose difference from the first does not exceed its uncertainty, the nearest first."""

    @property
    def is_shown(self) -> bool:
        return not self.level_with


def standing(values: Mapping[str, Sequence[float]], *, lowest: bool = False) -> Standing:
    """The name with the best mean, and the names that it is not shown to be ahead of.

    Values are paired: the n-th value of each name is from the same seed. A difference is shown where a 95 % interval of
    the mean paired difference (Student's, over the seeds) excludes 0. The first was chosen for being first, so the
    level is divided by the number of others (Bonferroni). One value per name shows nothing.

    >>> standing({"a": [0.81, 0.84, 0.82], "b": [0.61, 0.63, 0.62]})
    Standing(first='a', level_with=())
    >>> standing({"a": [0.81, 0.60, 0.70], "b": [0.61, 0.75, 0.72]})
    Standing(first='a', level_with=('b',))
    """
    sign = -1.0 if lowest else 1.0
    means = {name: sign * float(np.mean(own)) for name, own in values.items()}
    first = max(means, key=lambda name: means[name])
    others = sorted((name for name in values if name != first), key=lambda name: -means[name])
    tail = (1 - LEVEL) / 2 / max(len(others), 1)
    return Standing(
        first, tuple(name for name in others if not exceeds(values[first], values[name], tail=tail, sign=sign))
    )


def exceeds(
    ours: Sequence[float], theirs: Sequence[float], *, tail: float = (1 - LEVEL) / 2, sign: float = 1.0
) -> bool:
    """Whether the mean of `ours` is above that of `theirs` (below it for sign -1) by more than its uncertainty."""
    from scipy import stats

    differences = sign * (np.asarray(ours, np.float64) - np.asarray(theirs, np.float64))
    n = len(differences)
    if n < 2:
        return False
    error = float(differences.std(ddof=1)) / n**0.5
    half_width = float(stats.t.ppf(1 - tail, n - 1)) * error
    return bool(differences.mean() > max(half_width, SAME))


def said(found: Standing, what: str, value: Callable[[str], str], title: Callable[[str], str] = str) -> str:
    """A sentence about which name is first in `what`, such as "highest average", as far as the uncertainty allows."""
    if found.is_shown:
        return f"{title(found.first)} has the {what} ({value(found.first)})."
    named = [f"{title(name)} ({value(name)})" for name in found.level_with[:MOST_NAMED]]
    more = len(found.level_with) - len(named)
    rest = f"{', '.join(named)} and {more} more" if more else _listed(named)
    return (
        f"{what[0].upper()}{what[1:]}: {NO_DIFFERENCE} between {title(found.first)} ({value(found.first)}) and {rest}."
    )


def _listed(names: Sequence[str]) -> str:
    return " and ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])} and {names[-1]}"
