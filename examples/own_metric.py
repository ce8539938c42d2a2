"""A metric of your own: how much the predicted area, or volume, differs from the true one.

From the repository's root:

    fedce run --scale tiny --set 'metrics=["dice", "examples.own_metric:AREA_ERROR"]'

An installed package may give the metric a shorter name, by an entry point of the group fedce.metrics.
"""

from torch import Tensor

from fedce.base.ranges import Range
from fedce.learning.metrics import Masks, Metric


def area_error(masks: Masks, tolerance: float) -> Tensor:
    """For each class, the difference of the two areas as a part of the true one; infinite if nothing is marked."""
    predicted, truth = (mask.double().flatten(2).sum(dim=2) for mask in (masks.predicted, masks.truth))
    return (predicted - truth).abs() / truth


AREA_ERROR = Metric(
    name="area_error",
    title="Area error",
    of=area_error,
    undefined="where nothing is marked",
    bounds=Range(0.0, 1e6),
    higher_is_better=False,
)
