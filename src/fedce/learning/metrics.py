"""Metrics beside Dice, by name: a site measures them on its test cases, for the model that it would use.

A new metric is one more entry in `METRICS`, or a `Metric` of your own that the experiment names by its import path.
Sending, checks, record and pages need no change. FedCE's error, the guard and all shares rest on Dice alone.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedce.base.config import Config
from fedce.base.errors import ConfigError
from fedce.base.ranges import MAX_METRICS, METRIC, SCORE, Range
from fedce.base.registry import find, full_name
from fedce.core.messages import Measured
from fedce.core.scoring import Floats, Grouping, dice_interval, known_mean

# Torch and MONAI are imported where a metric is measured: a report needs the titles alone.
if TYPE_CHECKING:
    from torch import Tensor

DICE = "dice"
"""Always measured, by core/scoring.py: contributions rest on Dice."""


@dataclass(frozen=True, eq=False)
class Masks:
    """The predicted masks of a 2-D image or of a whole volume, and the true masks."""

    predicted: "Tensor"
    truth: "Tensor"
    """(1, classes, height, width) or (1, classes, slices, height, width); 0 or 1."""
    spacing: tuple[float, ...] | None
    """Millimetres between neighbours along each axis; None if the files do not state it."""

    @classmethod
    def of(cls, predicted: "Tensor", truth: "Tensor", voxel: tuple[float, float, float] | None) -> "Masks":
        """Masks from the ordered slices of a volume, or from one image: (n, classes, height, width)."""
        if len(predicted) == 1:
            return cls(predicted.byte(), truth.byte(), voxel and voxel[1:])
        stacked = [masks.movedim(0, 1)[None].byte() for masks in (predicted, truth)]
        return cls(stacked[0], stacked[1], voxel)


@dataclass(frozen=True)
class Heading:
    """How a metric is shown; a run records it, so that its pages do not import the metric's code.

    >>> Heading("HD95", higher_is_better=False, digits=1).line({"mm"})
    'HD95, mm (lower is better)'
    """

    title: str
    higher_is_better: bool | None = None
    """None if unknown: for a metric of an earlier version of fedce that this version does not have."""
    digits: int = 3

    def line(self, units: Iterable[str] = ()) -> str:
        """The title with its unit, if it has one, and its direction."""
        named = ", ".join([self.title, *([" or ".join(known)] if (known := sorted({*units} - {""})) else [])])
        if self.higher_is_better is None:
            return named
        return f"{named} ({'higher' if self.higher_is_better else 'lower'} is better)"

    def text(self, value: float | None, dash: str = "-") -> str:
        return dash if value is None else f"{value:.{self.digits}f}"


@dataclass(frozen=True)
class Metric:
    """A measure of a predicted and a true mask.

    >>> import torch
    >>> predicted, truth = torch.tensor([[[[1, 1, 0, 0]]]]), torch.tensor([[[[0, 1, 0, 0]]]])
    >>> METRICS["iou"].of(Masks(predicted, truth, None), 1.0).tolist()
    [[0.5]]
    >>> METRICS["iou"].title, METRICS["iou"].bounds, METRICS["iou"].higher_is_better
    ('IoU', Range(low=0.0, high=1.0), True)
    """

    name: str
    """The name in the experiment file, the ledger and the results; for a metric of your own, its import path."""
    title: str
    """The name in tables."""
    of: Callable[[Masks, float], "Tensor"]
    """Gives a value for each class, (1, classes), from the masks and surface_tolerance; not finite if undefined."""
    undefined: str
    """When the metric has no value, in words."""
    bounds: Range = SCORE
    higher_is_better: bool = True
    is_length: bool = False
    """Whether it is a length: in millimetres if the files state their spacing, otherwise in pixels after resizing."""
    digits: int = 3

    @property
    def heading(self) -> Heading:
        return Heading(self.title, self.higher_is_better, self.digits)


def _iou(masks: Masks, tolerance: float) -> "Tensor":
    from monai.metrics import compute_iou

    # The value of two empty masks is 1, as for Dice (D15).
    found: Tensor = compute_iou(masks.predicted, masks.truth, ignore_empty=False)
    return found


def _by_confusion(name: str) -> Callable[[Masks, float], "Tensor"]:
    def of(masks: Masks, tolerance: float) -> "Tensor":
        from monai.metrics import compute_confusion_matrix_metric, get_confusion_matrix

        found: Tensor = compute_confusion_matrix_metric(name, get_confusion_matrix(masks.predicted, masks.truth))
        return found

    return of


def _surface_dice(masks: Masks, tolerance: float) -> "Tensor":
    from monai.metrics import compute_surface_dice

    limits = [tolerance] * masks.truth.shape[1]
    found: Tensor = compute_surface_dice(
        masks.predicted, masks.truth, limits, include_background=True, spacing=masks.spacing
    )
    return found


def _volume_difference(masks: Masks, tolerance: float) -> "Tensor":
    predicted, truth = (mask.double().flatten(2).sum(dim=2) for mask in (masks.predicted, masks.truth))
    return (predicted - truth).abs() / truth


def _hd95(masks: Masks, tolerance: float) -> "Tensor":
    from monai.metrics import compute_hausdorff_distance

    found: Tensor = compute_hausdorff_distance(
        masks.predicted, masks.truth, include_background=True, percentile=95, spacing=masks.spacing
    )
    return found


ERROR = Range(0.0, 1e6)
"""Bounds of a metric that is 0 for equal masks, and of which less is better."""
METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("iou", "IoU", _iou, "never"),
        Metric("precision", "Precision", _by_confusion("precision"), "where nothing is predicted"),
        Metric("recall", "Recall", _by_confusion("recall"), "where nothing is marked"),
        Metric("surface_dice", "Surface Dice", _surface_dice, "where both masks are empty"),
        Metric("hd95", "HD95", _hd95, "where either mask is empty", ERROR, False, is_length=True, digits=1),
        Metric("volume_difference", "Volume difference", _volume_difference, "where nothing is marked", ERROR, False),
    )
}


NAMED: Mapping[str, Any] = {DICE: None, **METRICS}
"""What an experiment may name; Dice is measured elsewhere."""
GROUP = "fedce.metrics"
MOST_DIGITS = 12


def metric_path(name: str) -> str:
    """The name, or the import path of a metric that an installed package offers (entry point fedce.metrics)."""
    plain = name.replace("-", "_")
    return plain if plain in NAMED else full_name(name, NAMED, GROUP)


def _metric(path: str) -> Metric:
    if path in METRICS:
        return METRICS[path]
    own: Metric = find(path, NAMED, Metric, GROUP, "metrics")
    _check_own(own, path)
    return replace(own, name=path)


def _check_own(metric: Metric, path: str) -> None:
    """Refuse a user's metric that can't be measured or recorded, before round 1."""
    if not (isinstance(metric.title, str) and isinstance(metric.higher_is_better, bool)):
        raise ConfigError(f"metrics: {path} needs a title, and True or False for higher_is_better")
    if not (isinstance(metric.digits, int) and 0 <= metric.digits <= MOST_DIGITS):
        raise ConfigError(f"metrics: {path} has digits = {metric.digits!r}, expected 0 to {MOST_DIGITS}")
    if not (isinstance(metric.bounds, Range) and metric.bounds.low in METRIC and metric.bounds.high in METRIC):
        raise ConfigError(f"metrics: {path} has the bounds {metric.bounds}, expected a Range within {METRIC}")
    # A metric that works only for images, or only for volumes, is accepted: the data may hold no others.
    problems = [_trial(metric, shape) for shape in ((8, 8), (4, 8, 8))]
    if all(problems):
        raise ConfigError(f"metrics: {path} can't measure two masks: {problems[0]}")


def _trial(metric: Metric, shape: tuple[int, ...]) -> str | None:
    """What is wrong with the metric's value for two equal masks of two classes, or None."""
    import torch

    mask = torch.zeros(1, 2, *shape, dtype=torch.uint8)
    mask[..., 2:6, 2:6] = 1
    try:
        found = tuple(metric.of(Masks(mask, mask, None), 1.0).shape)
    except Exception as error:  # noqa: BLE001 (a user's own code may raise anything)
        return f"{type(error).__name__}: {error}"
    return None if found == (1, 2) else f"expected a value for each class, shape (1, 2), got shape {found}"


def heading_of(results: Mapping[str, Any], name: str) -> Heading:
    """How a run's metric is shown, by the run's record; no code that the run names is imported."""
    if told := results.get("metrics_shown", {}).get(name):
        return Heading(**told)
    # Results of earlier versions hold only the name.
    return METRICS[name].heading if name in METRICS else Heading(name)


@dataclass(frozen=True)
class Measures:
    """The metrics that an experiment asks for beside Dice, with their settings."""

    metrics: tuple[Metric, ...] = ()
    tolerance: float = 1.0
    """The tolerance of surface_dice."""

    @classmethod
    def asked_by(cls, config: Config) -> "Measures":
        paths = dict.fromkeys(metric_path(name) for name in config.metrics)
        if len(paths) > MAX_METRICS:
            raise ConfigError(f"metrics: expected at most {MAX_METRICS}, got {len(paths)}")
        asked = tuple(_metric(path) for path in paths if path != DICE)
        return cls(asked, config.surface_tolerance)

    @property
    def headings(self) -> dict[str, dict[str, Any]]:
        """How each metric is shown, for the record."""
        return {metric.name: asdict(metric.heading) for metric in self.metrics}

    def measure(
        self, masks: Sequence[Masks], grouping: Grouping, classes: Sequence[str], seed: int = 0
    ) -> dict[str, tuple[Measured, Floats]]:
        """Every metric on all 2-D images and volumes of a part: its means, and its values by (case, class).

        `masks` are in the order of the grouping; the seed is for the intervals.
        """
        in_mm = all(one.spacing for one in masks)
        # A mean over millimetres and pixels would be meaningless.
        masks = masks if in_mm else [replace(one, spacing=None) for one in masks]
        found: dict[str, tuple[Measured, Floats]] = {}
        for metric in self.metrics:
            values = np.stack([_values(metric, one, self.tolerance) for one in masks])
            by_case = grouping.by_case(values)
            means = [None if np.isnan(mean) else metric.bounds.nearest(mean) for mean in known_mean(by_case).tolist()]
            of_cases = known_mean(by_case.T)
            undefined = np.isnan(values).sum(axis=0).tolist()
            measured = Measured(
                by_class=dict(zip(classes, means, strict=True)),
                undefined=dict(zip(classes, undefined, strict=True)),
                unit="" if not metric.is_length else "mm" if in_mm else "px",
                interval=dice_interval(of_cases[~np.isnan(of_cases)], seed),
            )
            found[metric.name] = measured, by_case
        return found

    def problem_of(self, told: Mapping[str, Measured]) -> str | None:
        """Why a site's metrics can't be used, or None: expected are the metrics asked for, each within its bounds."""
        asked = {metric.name: metric for metric in self.metrics}
        if different := sorted(told.keys() ^ asked.keys()):
            return (
                f"sent no {different[0]}" if different[0] in asked else f"sent {different[0]}, which was not asked for"
            )
        for name, found in told.items():
            for value in found.by_class.values():
                if value is not None and value not in asked[name].bounds:
                    return f"{name} {value} is not in {asked[name].bounds}"
        return None


DICE_ALONE = Measures()


def _values(metric: Metric, masks: Masks, tolerance: float) -> Floats:
    """(classes); NaN where the metric is undefined."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MONAI warns about empty masks, which are counted here.
        try:
            values: Any = metric.of(masks, tolerance)[0].double().numpy()
        except Exception as error:
            if metric.name in METRICS:
                raise
            shape, what = tuple(masks.truth.shape), f"{type(error).__name__}: {error}"
            raise ConfigError(f"metrics: {metric.name} can't measure masks of shape {shape} ({what})") from None
    return np.where(np.isfinite(values), values, np.nan)
