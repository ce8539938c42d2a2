"""Pairs of sites whose own directions cancel: the mirror of twins.

FedCE pays for directions that no other site has. Two sites can add one made-up direction to honest updates, one of them
with the opposite sign: both look new, and the common model does not move. What the other sites explain of both updates
is taken away; the rest of the two updates points in opposite directions.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedce.guard.evidence import Updates

CANCELS, OPPOSITE, ROUNDS_OPPOSITE = -0.2, -0.6, 5
"""Two sites that cancel each other have a partial correlation below CANCELS in every round, and below OPPOSITE on
average over at least this many rounds in a row. OPPOSITE lies half-way between the most extreme honest pair (-0.48) and
two sites whose made-up direction is as long as their updates (-0.73); docs/trust.md has the runs."""
MOST_UNEQUAL = 3.0
"""Directions cancel only if they are about equally long: what is left of one update may be this many times as long."""
LEAST_SITES = 5
"""Among fewer sites, what is left of two updates is mostly what they have in common with nobody."""
RIDGE = 1e-6
"""Keeps the correlations of copies invertible."""


@dataclass(frozen=True)
class Opposites:
    updates: Updates
    good: Container[str]

    def of(self, site: str) -> dict[str, tuple[float, ...]]:
        """Sites that this one cancels: for how many rounds in a row, and the mean partial correlation in them."""
        before, found = self.updates.claims[site].opposites, dict[str, tuple[float, ...]]()
        for other, now in self._found.get(site, {}).items():
            n, mean = before.get(other, (0, 0.0))
            found[other] = (n + 1, (n * mean + now) / (n + 1))
        return found

    @cached_property
    def _found(self) -> dict[str, dict[str, float]]:
        sites = [site for site in self.updates.sites if site in self.good]
        if len(sites) < LEAST_SITES:
            return {}
        rows = [self.updates.sites.index(site) for site in sites]
        inverse = inverse_of(self.updates.cosines[np.ix_(rows, rows)])
        # Without what the others explain, the square of a unit vector's length is 1 / its entry on the diagonal.
        left = np.array([self.updates.lengths[site] for site in sites]) / np.sqrt(_diagonal(inverse))
        partial = partial_correlations(inverse)
        cancels = (partial < CANCELS) & (left[:, None] <= MOST_UNEQUAL * left) & (left <= MOST_UNEQUAL * left[:, None])
        return {
            site: {sites[j]: float(partial[i, j]) for j in np.flatnonzero(cancels[i])} for i, site in enumerate(sites)
        }


def are_opposite(pairs: Mapping[str, Sequence[float]]) -> bool:
    """Whether one of these sites is cancelled for long enough."""
    return any(n >= ROUNDS_OPPOSITE and mean < OPPOSITE for n, mean in pairs.values())


def inverse_of(cosines: NDArray[np.float64]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = np.asarray(np.linalg.inv(cosines + RIDGE * np.eye(len(cosines))), np.float64)
    return found


def _diagonal(inverse: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.maximum(np.diag(inverse), np.finfo(float).tiny)


def partial_correlations(inverse: NDArray[np.float64]) -> NDArray[np.float64]:
    """The cosine of what is left of two updates without what the other updates explain; from `inverse_of` cosines.

    >>> partial_correlations(np.eye(3)).tolist()
    [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    scale = np.sqrt(_diagonal(inverse))
    found: NDArray[np.float64] = 0.0 - inverse / np.outer(scale, scale)
    np.fill_diagonal(found, 0.0)
    return found
