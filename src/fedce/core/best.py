"""The best round by the sites' validation scores, smoothed; a pure function of what the ledger holds."""

from collections.abc import Sequence

WINDOW = 5
"""Rounds over which the mean validation score is smoothed: single rounds go up and down."""


def smoothed(scores: Sequence[float]) -> list[float]:
    """The mean of each score and the four before it.

    >>> smoothed([0.0, 1.0, 0.5])
    [0.0, 0.5, 0.5]
    """
    return [sum(part) / len(part) for i in range(len(scores)) if (part := scores[max(0, i + 1 - WINDOW) : i + 1])]


def best_round(scores: Sequence[float]) -> int:
    """The round whose first model has the highest smoothed score; the earliest among equals."""
    values = smoothed(scores)
    return values.index(max(values))


def has_stalled(scores: Sequence[float], patience: int | None) -> bool:
    """Whether the smoothed score has not risen for this many rounds."""
    return patience is not None and len(scores) > patience and len(scores) - 1 - best_round(scores) >= patience
