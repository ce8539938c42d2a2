"""The learning rate over the rounds."""

from dataclasses import dataclass
from math import cos, pi
from typing import Literal

LATE = 0.75
"""The part of the rounds after which a rate of the kind "late" begins to fall."""


@dataclass(frozen=True)
class Schedule:
    """The part of the learning rate that each round uses.

    >>> [round(Schedule("cosine", 4, n_after=2).rate(round_no), 2) for round_no in range(6)]
    [1.0, 0.85, 0.5, 0.15, 1.0, 0.5]
    >>> [round(Schedule("late", 8).rate(round_no), 2) for round_no in range(8)]
    [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5]
    """

    kind: Literal["constant", "cosine", "poly", "late"] = "constant"
    n_rounds: int = 1
    n_after: int = 0
    """Rounds after the last one in which a site personalises. The rate begins anew and falls again: a site that no
    other is like has to leave the common model behind, and small steps do not get there."""

    def rate(self, round_no: int) -> float:
        if self.kind == "constant":
            return 1.0
        if round_no >= self.n_rounds and self.n_after:
            return Schedule(self.kind, self.n_after).rate(round_no - self.n_rounds)
        done = min(round_no, self.n_rounds - 1) / self.n_rounds
        if self.kind == "poly":
            return float((1 - done) ** 0.9)
        if self.kind == "late":
            done = max(done - LATE, 0) / (1 - LATE)
        return (1 + cos(pi * done)) / 2
