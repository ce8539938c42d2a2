"""What an evaluation found: a model's metrics at each site, with their intervals."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedce.base.html import table_html
from fedce.core.messages import CaseScores
from fedce.core.scoring import MIN_CASES, too_few
from fedce.learning.metrics import DICE, Heading

ALL = "mean"
"""The row that stands for the mean over classes."""
DICE_HEADING = Heading("Dice", higher_is_better=True)
Interval = tuple[float, float]


@dataclass(frozen=True)
class OfClass:
    """A metric of one class at a site."""

    mean: float | None
    """Mean over the cases that have a value."""
    interval: Interval | None
    undefined: int
    """Images and volumes without a value."""


@dataclass(frozen=True)
class OfMetric:
    """A metric at a site."""

    mean: float | None
    """Mean over the classes that have a value."""
    interval: Interval | None
    """95 % interval over cases, of a case's mean over classes."""
    unit: str
    by_class: Mapping[str, OfClass]


NOT_LABELLED = OfClass(None, None, 0)
"""For a class that the site does not label."""
Values = Mapping[str, OfClass | OfMetric]
"""Metric to its value."""


@dataclass(frozen=True)
class AtSite:
    """How well the model does on one site's cases."""

    name: str
    n_images: int
    n_cases: int
    metrics: Mapping[str, OfMetric]
    cases: tuple[CaseScores, ...]

    @property
    def no_interval(self) -> str:
        """Why the site has no intervals; empty if it has them."""
        return too_few(self.name, self.n_cases, "labelled") if self.n_cases < MIN_CASES else ""


@dataclass(frozen=True)
class Evaluated:
    """How well a run's model does at one or more sites; `Result.evaluate` gives it, and a notebook shows its table.

    >>> dice = OfMetric(0.8, (0.7, 0.9), "", {"disc": OfClass(0.8, (0.7, 0.9), 0)})
    >>> site = AtSite("north", 12, 12, {"dice": dice}, ())
    >>> found = Evaluated("run", "common", "", False, "new", False, ("disc",), 1.0, {"dice": DICE_HEADING}, (site,))
    >>> found.records
    [{'site': 'north', 'class': 'disc', 'cases': 12, 'dice': 0.8, 'dice_low': 0.7, 'dice_high': 0.9}]
    """

    run: str
    model: str
    """Which model: common, best, or a site's name."""
    model_sha256: str
    adapted: bool
    folder: str
    """The folder's name alone: its path is private."""
    trained_on: bool
    """Whether the folder holds the run's own data, training images among them."""
    classes: tuple[str, ...]
    tolerance: float
    headings: Mapping[str, Heading]
    sites: tuple[AtSite, ...]

    @property
    def notes(self) -> list[str]:
        """What a reader must know beside the table."""
        notes = [site.no_interval for site in self.sites if site.no_interval]
        if self.trained_on:
            notes.insert(0, "These are the run's own data: it trained on some of the cases, so the scores are too good")
        for site in self.sites:
            labelled = site.metrics[DICE].by_class
            if len(labelled) < len(self.classes):
                notes.append(f"{site.name} labels only {', '.join(labelled)}; its means leave the other classes out")
        if any(found.unit == "px" for site in self.sites for found in site.metrics.values()):
            notes.append("The files state no spacing, so lengths are in pixels of the resized image")
        return notes

    @property
    def records(self) -> list[dict[str, Any]]:
        """A row for each site and class and, if there are several classes, for their mean: every metric and its ends.

        `pandas.DataFrame(evaluated.records)` makes a table of it.
        """
        return [
            {"site": site.name, "class": name, "cases": site.n_cases, **_with_ends(values)}
            for site in self.sites
            for name, values in self._by_class(site)
        ]

    @property
    def cases(self) -> list[dict[str, Any]]:
        """A row for each case and class: every metric; None where it has no value."""
        return [
            {"site": site.name, "case": one.case, "class": one.class_name, **one.values}
            for site in self.sites
            for one in site.cases
        ]

    @property
    def table(self) -> tuple[list[str], list[list[str]]]:
        """Header and cells as people read them."""
        units = {name: {site.metrics[name].unit for site in self.sites} for name in self.headings}
        named = ["site", "class"] if len(self.classes) > 1 else ["site"]
        header = [*named, "cases", *(heading.line(units[name]) for name, heading in self.headings.items())]
        rows = [
            [site.name, *([name] if len(named) > 1 else []), str(site.n_cases), *self._texts(values)]
            for site in self.sites
            for name, values in self._by_class(site)
        ]
        return header, rows

    @property
    def title(self) -> str:
        return f"{self.which} of {self.run} on {self.folder}; 95 % intervals over cases"

    @property
    def which(self) -> str:
        """Which model was evaluated, in words."""
        kind = {"common": "the common model", "best": "the common model of the best round"}
        adapted = ", norm statistics estimated from each site's images," if self.adapted else ""
        return f"{kind.get(self.model, f'the model of {self.model}')}{adapted}"

    def _repr_html_(self) -> str:
        header, rows = self.table
        return table_html(self.title, header, rows, self.notes, n_keys=header.index("cases"))

    def _by_class(self, site: AtSite) -> list[tuple[str, Values]]:
        """The metrics of each class and, if there are several, of their mean."""
        rows: list[tuple[str, Values]] = [
            (name, {key: metric.by_class.get(name, NOT_LABELLED) for key, metric in site.metrics.items()})
            for name in self.classes
        ]
        return [*rows, (ALL, dict(site.metrics))] if len(rows) > 1 else rows

    def _texts(self, values: Values) -> list[str]:
        return [_text(values[name], heading) for name, heading in self.headings.items()]


def _with_ends(values: Values) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for name, value in values.items():
        low, high = value.interval or (None, None)
        found |= {name: value.mean, f"{name}_low": low, f"{name}_high": high}
    return found


def _text(value: OfClass | OfMetric, heading: Heading) -> str:
    if value is NOT_LABELLED:
        return "-"
    text = heading.text(value.mean)
    if value.interval:
        text += f" ({heading.text(value.interval[0])}-{heading.text(value.interval[1])})"
    if isinstance(value, OfClass) and value.undefined:
        text += f" {value.undefined} undef."
    return text
