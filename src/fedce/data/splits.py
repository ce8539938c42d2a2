"""Training, validation and test images of a site: fixed by the data seed, never by the training seed."""

from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from fedce.errors import DataError

NAMES = ("train", "validation", "test")


@dataclass(frozen=True)
class Split:
    """Indices of a site's images."""

    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]


def split(site: str, n: int, shares: tuple[float, float, float], seed: int) -> Split:
    """A random split, the same for the same site name, number of images and seed."""
    n_validation, n_test = round(n * shares[1]), round(n * shares[2])
    sizes = (n - n_validation - n_test, n_validation, n_test)
    for name, size, share in zip(NAMES, sizes, shares, strict=True):
        if size < 1:
            raise DataError(
                f"site {site!r} has {n} images, which leaves none for {name} at a share of {share:g}; "
                "add images or change data.split"
            )
    order = np.random.default_rng([seed, *sha256(site.encode()).digest()]).permutation(n)
    train, validation, test = np.split(order, np.cumsum(sizes)[:2])
    return Split(np.sort(train), np.sort(validation), np.sort(test))
