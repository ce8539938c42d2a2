"""The range of every number that a site may report: one definition for the wire, the border and the record.

There is no slack: where rounding carries a value of ours just past its range, `Range.nearest` brings it back.
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field


@dataclass(frozen=True)
class Range:
    """All numbers from `low` to `high`, both included.

    >>> 1.0000005 in SCORE, SCORE.nearest(1.0000000000000002), str(NOVELTY)
    (False, 1.0, '[0, 2]')
    """

    low: float
    high: float

    def __contains__(self, value: object) -> bool:
        """Whether this is a number in the range; NaN and truth values are not."""
        return isinstance(value, int | float) and not isinstance(value, bool) and self.low <= value <= self.high

    def __str__(self) -> str:
        return f"[{self.low:g}, {self.high:g}]"

    def nearest(self, value: float) -> float:
        """The value, or the end of the range that rounding carried it past."""
        return min(max(value, self.low), self.high)


SCORE = Range(0.0, 1.0)
"""Scores, errors and Dice."""
NOVELTY = Range(0.0, 2.0)
"""Eq. 2: 1 minus a cosine."""
GAIN = Range(-1.0, 1.0)
"""A difference of two scores."""
LOSS = Range(-1e6, 1e6)
SECONDS = Range(0.0, 1e9)
IMAGES = Range(0, 10**9)
"""Images of one split."""
TRAIN_IMAGES = Range(1, 10**9)
"""Training images of a site; a site without any can't take part."""
METRIC = Range(-1e9, 1e9)
"""A metric other than Dice; a known metric has bounds of its own (learning/metrics.py)."""
MAX_METRICS = 50
N_REPLICATES = 20
"""Bootstrap replicates of an error in one reply."""

Score = Annotated[float, Field(ge=SCORE.low, le=SCORE.high, allow_inf_nan=False)]
Gain = Annotated[float, Field(ge=GAIN.low, le=GAIN.high, allow_inf_nan=False)]
Novelty = Annotated[float, Field(ge=NOVELTY.low, le=NOVELTY.high, allow_inf_nan=False)]
Loss = Annotated[float, Field(ge=LOSS.low, le=LOSS.high, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=SECONDS.low, le=SECONDS.high, allow_inf_nan=False)]
Images = Annotated[int, Field(ge=IMAGES.low, le=IMAGES.high)]
TrainImages = Annotated[int, Field(ge=TRAIN_IMAGES.low, le=TRAIN_IMAGES.high)]
MetricValue = Annotated[float, Field(ge=METRIC.low, le=METRIC.high, allow_inf_nan=False)]
Replicates = Annotated[list[Score], Field(max_length=N_REPLICATES)]
DiceByClass = Annotated[dict[str, Score], Field(min_length=1)]
