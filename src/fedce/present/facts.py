"""The columns about the sites' data: one list, which the terminal and the inspection's page show."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedce.data.inspection import Inspection, SiteFacts
from fedce.present.columns import Cell, Kind, Note, SitesTable

Place = Literal["terminal", "page", "areas"]
"""`areas` is the page's second table."""


@dataclass(frozen=True)
class Fact:
    """The content of a site's cell."""

    text: str
    short: str | None = None
    """A short form of `text` for the narrow terminal."""
    note: str = ""
    """The text below it on the page."""


@dataclass(frozen=True)
class Column:
    titles: Mapping[Place, str]
    fact: Callable[[SiteFacts], Fact]
    kind: Kind = "number"
    is_shown: bool = True


def columns(found: Inspection) -> list[Column]:
    """All columns from left to right."""
    distances = dict(zip((site.name for site in found.sites), found.mean_distances, strict=True))
    has_cases = any(site.n_cases != site.n_images for site in found.sites)
    cases: Mapping[Place, str] = {"terminal": "cases", "page": "Cases"} if has_cases else {"page": "Cases"}
    return [
        Column({"terminal": "site", "page": "Site", "areas": "Site"}, lambda site: Fact(site.name), "key"),
        Column({"terminal": found.counted, "page": found.counted.capitalize()}, lambda site: Fact(str(site.n_images))),
        Column(cases, lambda site: Fact(str(site.n_cases))),
        Column({"terminal": "split", "page": "train / validation / test"}, _split),
        Column({"terminal": "size", "page": "Size"}, _size),
        Column({"terminal": "mm", "page": "Spacing"}, _spacing, is_shown=any(site.spacing for site in found.sites)),
        Column({"terminal": "grey", "page": "Grey"}, _grey),
        *(column for name in found.classes for column in _of_class(name)),
        Column({"terminal": "distance"}, lambda site: Fact(f"{distances[site.name]:.1f}")),
    ]


def facts_table(found: Inspection, place: Place) -> SitesTable:
    """The columns that this place shows, with a row for each site."""
    shown = [column for column in columns(found) if place in column.titles and column.is_shown]
    titles = [(column.titles[place], column.kind) for column in shown]
    return SitesTable(titles, [[_cell(column, site, place) for column in shown] for site in found.sites])


def _cell(column: Column, site: SiteFacts, place: Place) -> Cell:
    fact = column.fact(site)
    if place == "terminal":
        return Cell(fact.text if fact.short is None else fact.short, column.kind, None, None)
    return Cell(fact.text, column.kind, Note(fact.note, fact.note) if fact.note else None, None)


def _split(site: SiteFacts) -> Fact:
    parts = [str(n) for n in site.n_by_part.values()]
    return Fact(" / ".join(parts), "/".join(parts))


def _size(site: SiteFacts) -> Fact:
    smallest, median, largest = ("{} x {}".format(*size) for size in site.sizes)
    text = _span(smallest, largest)
    return Fact(text, _narrow(smallest, largest), "" if text == median else f"median {median}")


def _spacing(site: SiteFacts) -> Fact:
    if site.spacing is None:
        return Fact("unknown", "")
    low, high = (f"{distance:.2f}" for distance in site.spacing)
    return Fact(f"{_span(low, high)} mm", _narrow(low, high))


def _grey(site: SiteFacts) -> Fact:
    mean, std = f"{site.grey.mean.mean():.0f}", f"{site.grey.std.mean():.0f}"
    return Fact(f"{mean} ± {std}", f"{mean}±{std}")


def _of_class(name: str) -> Sequence[Column]:
    """Columns for the marked part of the images, and for the number of images in which nothing is marked."""

    def area(site: SiteFacts) -> Fact:
        if name not in site.areas:
            return Fact("not labelled", "-")
        areas = 100 * site.areas[name]
        median = f"{np.median(areas):.1f}"
        return Fact(f"{median} ({areas.min():.1f} to {areas.max():.1f})", median)

    return [
        Column({"terminal": f"{name}, %", "areas": name}, area),
        Column({"areas": "empty"}, lambda site: Fact(str(site.n_empty.get(name, "-")))),
    ]


def _span(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def _narrow(low: str, high: str) -> str:
    return " ".join(dict.fromkeys(text.replace(" ", "") for text in (low, high)))
