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

CANCELS, OPPOSITE, ROUNDS_OPPOSITE = -0.2, -0.42, 3
"""Two sites that cancel each other have a partial correlation below CANCELS in every round, and below OPPOSITE on
average over at least this many rounds in a row; honest pairs come to -0.34 in the mean of three rounds."""
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
        partial = partial_correlations(self.updates.cosines[np.ix_(rows, rows)])
        return {
            site: {sites[j]: float(partial[i, j]) for j in np.flatnonzero(partial[i] < CANCELS)}
            for i, site in enumerate(sites)
        }


def are_opposite(pairs: Mapping[str, Sequence[float]]) -> bool:
    """Whether one of these sites is cancelled for long enough."""
    return any(n >= ROUNDS_OPPOSITE and mean < OPPOSITE for n, mean in pairs.values())


def partial_correlations(cosines: NDArray[np.float64]) -> NDArray[np.float64]:
    """The cosine of what is left of two updates without what the other updates explain.

    >>> partial_correlations(np.eye(3)).tolist()
    [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    inverse = np.linalg.inv(cosines + RIDGE * np.eye(len(cosines)))
    scale = np.sqrt(np.maximum(np.diag(inverse), np.finfo(float).tiny))
    found: NDArray[np.float64] = 0.0 - inverse / np.outer(scale, scale)
    np.fill_diagonal(found, 0.0)
    return found
