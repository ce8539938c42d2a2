"""How far a claimed error is believed: as far as the site's own part moves the common model (D19 in docs/paper.md).

FedCE asks each site for the error of the model without the site (Eq. 3). The site also says how well the common model
does, so what it claims beyond that, its excess error, can only come from its own part in the model. The server knows
how far this part moves the model. Near a good model an error grows with the square of this distance, and so do the
excess errors of honest sites: what the others claim for their distances says what is credible for the site's own.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MULTIPLE = 2.0
"""A site is believed up to this multiple of what the others' claims give for its distance."""
LEAST = 0.01
"""And always this much in each round: a score of few images is not more exact."""
FEWEST = 3
"""Fewer claims can't be held against each other."""
UNEQUAL_PAIR = 0.1
"""If so few sites claim anything, this much and the site's weight is believed."""
ACCOMPLICES = 6
"""Of so many sites, one other may lie too: from five sites on the highest claim of the others does not count, and one
more for every six sites."""


@dataclass(frozen=True)
class Book:
    """What a site claimed so far, summed over its rounds."""

    moved: float = 0.0
    """Squared distances between the common model and the model without the site."""
    believed: float = 0.0
    """Excess errors, as far as they were believed."""
    rounds: int = 0


Books = Mapping[str, Book]


def squared_distances(products: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far each site's part moves the mean: |w - w without i|^2, from inner products of the updates.

    >>> squared_distances(np.diag([4.0, 4.0]), np.array([0.5, 0.5])).tolist()
    [2.0, 2.0]
    """
    along = products @ weights
    apart = np.maximum(np.diag(products) - 2 * along + weights @ along, 0.0)
    rest = 1 - weights
    found: NDArray[np.float64] = np.where(rest > 0, (weights / np.where(rest > 0, rest, 1.0)) ** 2 * apart, 0.0)
    return found


def most_believed(
    books: Books, moved: Mapping[str, float], excess: Mapping[str, float], weights: Mapping[str, float]
) -> dict[str, float]:
    """The largest excess error that is believed of each site in a round.

    `moved` and `excess` are those of the round, of all sites that claim an error; sums over the rounds so far count,
    because a single round is noise.
    """
    if len(excess) < FEWEST:
        return {site: UNEQUAL_PAIR + weights.get(site, 0.0) for site in excess}
    before = {site: books.get(site, Book()) for site in excess}
    distances = {site: before[site].moved + moved.get(site, 0.0) for site in excess}
    claimed = {site: max(before[site].believed + excess[site], 0.0) for site in excess}
    rates = {site: claimed[site] / distances[site] if distances[site] > 0 else 0.0 for site in excess}
    order = sorted(rates.values(), reverse=True)
    n_left_out = 0 if len(order) < 5 else max(len(order) // ACCOMPLICES, 1)
    found = {}
    for site, rate in rates.items():
        usual = order[n_left_out + 1] if rate >= order[n_left_out] else order[n_left_out]
        total = MULTIPLE * usual * distances[site] + LEAST * (before[site].rounds + 1)
        found[site] = max(total - before[site].believed, 0.0)
    return found


def books_after(books: Books, moved: Mapping[str, float], believed: Mapping[str, float]) -> dict[str, Book]:
    """The books with the excess errors that were believed in this round."""
    found = dict(books)
    for site, excess in believed.items():
        before = books.get(site, Book())
        found[site] = Book(before.moved + moved.get(site, 0.0), before.believed + excess, before.rounds + 1)
    return found
