"""Metrics beside Dice of several runs: one table for each metric, for the terminal, files and studies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from fedce.learning.metrics import DICE, Heading, heading_of
from fedce.valuation.fairness import sample_std

Results = Mapping[str, Any]


@dataclass(frozen=True)
class OverSeeds:
    """A metric of one algorithm over all seeds; None if it is defined in no case."""

    heading: Heading
    units: tuple[str, ...]
    by_site: Mapping[str, float | None]
    """Site to its mean over the seeds that have a value."""
    std_by_site: Mapping[str, float | None]
    """Site to its sample standard deviation over seeds; None for one seed."""
    undefined_by_site: Mapping[str, int]
    """Site to its images or volumes without a value, summed over classes and seeds; the means leave them out."""

    @property
    def mean(self) -> float | None:
        """The mean over the sites that have a value."""
        known = [value for value in self.by_site.values() if value is not None]
        return fmean(known) if known else None

    @property
    def mean_text(self) -> str:
        return with_undefined(self.heading.text(self.mean), sum(self.undefined_by_site.values()))

    def text(self, site: str) -> str:
        text, deviation = self.heading.text(self.by_site.get(site)), self.std_by_site.get(site)
        if deviation is not None:
            text += f" ± {self.heading.text(deviation)}"
        return with_undefined(text, self.undefined_by_site.get(site, 0))


def with_undefined(text: str, n: int) -> str:
    return f"{text} ({n} undef.)" if n else text


def over_seeds(runs: Sequence[Results]) -> dict[str, OverSeeds]:
    """Every metric beside Dice that all of these runs measured, from their results."""
    names = [name for name in runs[0].get("metrics", {}) if name != DICE]
    return {name: _over_seeds(name, runs) for name in names if all(name in run.get("metrics", {}) for run in runs)}


def _over_seeds(name: str, runs: Sequence[Results]) -> OverSeeds:
    sites = list(dict.fromkeys(site for run in runs for site in run["metrics"][name]))
    known = {site: [value for run in runs if (value := run["metrics"][name].get(site)) is not None] for site in sites}
    return OverSeeds(
        heading=heading_of(runs[0], name),
        units=tuple(sorted({unit for run in runs for unit in run["metrics_unit"][name].values()} - {""})),
        by_site={site: fmean(values) if values else None for site, values in known.items()},
        std_by_site={site: sample_std(values) if len(values) > 1 else None for site, values in known.items()},
        undefined_by_site={
            site: sum(sum(run["metrics_undefined"][name].get(site, {}).values()) for run in runs) for site in sites
        },
    )


@dataclass(frozen=True)
class MetricTable:
    """A metric of several algorithms at every site."""

    name: str
    """The metric's name, for the name of a file."""
    title: str
    header: Sequence[str]
    cells: Sequence[Sequence[str]]
    n_keys: int = 1


def metric_tables(found: Mapping[str, Mapping[str, OverSeeds]], sites: Sequence[str]) -> list[MetricTable]:
    """A table for each metric; `found` maps the name of each row to its metrics."""
    names = dict.fromkeys(name for metrics in found.values() for name in metrics)
    return [
        _table(name, {row: metrics[name] for row, metrics in found.items() if name in metrics}, sites) for name in names
    ]


def _table(name: str, by_row: Mapping[str, OverSeeds], sites: Sequence[str]) -> MetricTable:
    units = {unit for metric in by_row.values() for unit in metric.units}
    title = f"{next(iter(by_row.values())).heading.line(units)}, on the test cases"
    if any(sum(metric.undefined_by_site.values()) for metric in by_row.values()):
        title += "; undef.: images or volumes without a value, which the means leave out"
    return MetricTable(
        name=name.replace(":", "."),
        title=title,
        header=["method", *sites, "Avg."],
        cells=[[row, *map(metric.text, sites), metric.mean_text] for row, metric in by_row.items()],
    )
