"""Pairs of sites whose own directions cancel: the mirror of twins.

FedCE pays for directions that no other site has. Two sites can add one made-up direction to honest updates, one of them
with the opposite sign: both look new, and the common model does not move. What the other sites explain of both updates
is taken away; the rest of the two updates points in opposite directions.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedce.guard.evidence import Updates

OPPOSITE, ROUNDS_OPPOSITE = -0.5, 3
"""Two sites cancel each other if their partial correlation is below OPPOSITE in this many rounds in a row; honest pairs
come to -0.37 in single rounds."""
LEAST_SITES = 5
"""Among fewer sites, what is left of two updates is mostly what they have in common with nobody."""
RIDGE = 1e-6
"""Keeps the correlations of copies invertible."""


@dataclass(frozen=True)
class Opposites:
    updates: Updates
    good: Container[str]

    def rounds(self, site: str) -> Mapping[str, int]:
        """Sites that this one cancels, and for how many rounds in a row."""
        before = self.updates.claims[site].rounds_opposite
        return {other: before.get(other, 0) + 1 for other in self._found.get(site, ())}

    @cached_property
    def _found(self) -> dict[str, list[str]]:
        sites = [site for site in self.updates.sites if site in self.good]
        if len(sites) < LEAST_SITES:
            return {}
        rows = [self.updates.sites.index(site) for site in sites]
        partial = partial_correlations(self.updates.cosines[np.ix_(rows, rows)])
        return {site: [sites[j] for j in np.flatnonzero(partial[i] < OPPOSITE)] for i, site in enumerate(sites)}


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
