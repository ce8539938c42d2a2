"""Training, validation and test images of a site: fixed by the data seed, never by the training seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from fedce.base.errors import DataError

NAMES = ("train", "validation", "test")
PART_FOLDERS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}
"""Names of folders, in lower case, that say which part of the split their files are in."""


@dataclass(frozen=True)
class Split:
    """Indices of a site's images."""

    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]

    @property
    def parts(self) -> dict[str, NDArray[np.int64]]:
        return dict(zip(NAMES, (self.train, self.validation, self.test), strict=True))


def split(site: str, cases: Sequence[str], shares: tuple[float, float, float], seed: int) -> Split:
    """A random split by whole cases; site name, cases and seed alone decide it. `shares` are shares of the cases.

    Without a share for validation, the training images validate too.
    """
    names = sorted(set(cases), key=cases.index)
    n_validation, n_test = round(len(names) * shares[1]), round(len(names) * shares[2])
    sizes = (len(names) - n_validation - n_test, n_validation, n_test)
    for name, size, share in zip(NAMES, sizes, shares, strict=True):
        if size < 1 and share:
            what = "images" if len(names) == len(cases) else f"images of {len(names)} cases"
            raise DataError(
                f"site {site!r} has {len(cases)} {what}, which leaves none for {name} at a share of {share:g}; "
                f"add images or change data.split{_for_two(len(names))}"
            )
    order = np.random.default_rng([seed, *sha256(site.encode()).digest()]).permutation(len(names))
    part_by_case = dict(
        zip((names[i] for i in order), np.repeat(np.arange(3), sizes), strict=True),
    )
    found = _by_part(np.array([part_by_case[case] for case in cases]))
    return found if shares[1] else replace(found, validation=found.train)


def _for_two(n_cases: int) -> str:
    return " ([0.5, 0, 0.5] validates on the training case, which proves little)" if n_cases == 2 else ""


def stated(parts: Sequence[str]) -> Split:
    """The split that a datalist gives."""
    return _by_part(np.array([NAMES.index(part) for part in parts]))


def _by_part(parts: NDArray[np.int64]) -> Split:
    return Split(*(np.flatnonzero(parts == i) for i in range(3)))


def spread_out(rows: NDArray[np.int64], part: float) -> NDArray[np.int64]:
    """A part of the rows, at even distances, so that no seed matters."""
    n = round(part * len(rows))
    return rows[((np.arange(n) + 0.5) * len(rows) / max(n, 1)).astype(np.int64)]


def joined(cases: Sequence[str], groups: Sequence[Sequence[str]]) -> list[str]:
    """The cases, with one name for all cases of a group; groups that share a case are one group."""
    name_of: dict[str, str] = {case: case for case in cases}

    def root(case: str) -> str:
        while name_of[case] != case:
            case = name_of[case]
        return case

    for group in groups:
        for case in group[1:]:
            name_of[root(case)] = root(group[0])
    return [root(case) for case in cases]


def leaks(cases: Sequence[str], parts: Mapping[str, NDArray[np.int64]]) -> list[tuple[str, str, str]]:
    """Cases that two parts share, with the two parts' names; empty unless a datalist states its own split."""
    seen: dict[str, str] = {}
    found = set()
    for name, rows in parts.items():
        for row in rows:
            before = seen.setdefault(cases[row], name)
            if before != name:
                found.add((cases[row], before, name))
    return sorted(found)
