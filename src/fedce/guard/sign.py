"""A sign: something that an honest site does not do. The guard looks for signs in a round, the detector in a ledger."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from fedce.core.recorded import Flag

S = TypeVar("S")

ZERO_UPDATE = Flag("zero", "zero update")
"""Set by the border and by the guard."""


@dataclass(frozen=True)
class Sign(Generic[S]):
    flag: Flag
    """The flag of a site that shows the sign."""
    is_bad: Callable[[S], bool | None]
    """Whether an observation shows the sign; None if it says too little."""
    in_a_row: int = 1
    """The sign is certain after this many sightings in a row; observations that say too little are skipped."""

    def certain_at(self, seen: Iterable[S]) -> S | None:
        """The first observation by which the sign is certain."""
        streak = 0
        for one in seen:
            if (is_bad := self.is_bad(one)) is None:
                continue
            streak = streak + 1 if is_bad else 0
            if streak == self.in_a_row:
                return one
        return None
