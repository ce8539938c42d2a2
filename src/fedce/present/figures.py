"""The figures of a run, each with its numbers as a CSV file inside the page."""

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedce.base.files import csv_text
from fedce.core.recorded import RecordedSite, Rounds
from fedce.pictures import plots
from fedce.pictures.style import Drawing
from fedce.present.worth import is_about_needs
from fedce.record.folder import RunFolder


@dataclass(frozen=True)
class Figure:
    name: str
    drawing: Drawing | None
    """None for a picture file."""
    table: Sequence[Sequence[Any]]
    """The numbers that were drawn, after a header."""
    png: str = ""
    """A picture file in base64."""

    @property
    def csv(self) -> str:
        """The numbers as a data URI, because a page that stands alone has no file to link to."""
        return f"data:text/csv;base64,{b64encode(csv_text(self.table).encode()).decode()}"


def contributions(rounds: Rounds, bands: plots.Bands = ()) -> Figure:
    header, *rows = _by_round(rounds, lambda facts: facts.share)
    table = [header, *rows]
    if bands:
        by_round = {band["round"]: band for band in bands}
        ends = [(site, end) for site in header[1:] for end in ("low", "high")]
        table = [
            [*header, *(f"{site} {end}" for site, end in ends)],
            *([*row, *(by_round.get(row[0], {}).get(end, {}).get(site) for site, end in ends)] for row in rows),
        ]
    return Figure("contributions", plots.contributions(rounds, bands), table)


def progress(rounds: Rounds) -> Figure:
    header, *rows = _by_round(rounds, lambda facts: facts.score)
    table = [[*header, "mean"], *([*row, done.mean_score] for row, done in zip(rows, rounds, strict=True))]
    return Figure("validation-dice", plots.progress(rounds), table)


def own_contribution(view: Mapping[str, Any], results: Mapping[str, Any]) -> Figure:
    """One member's share over the rounds; where intervals over the rounds are not known, the last one alone."""
    site, shares = view["site"], [(at["round"], at["share"]) for at in view["by_round"]]
    bands = [
        (band["round"], band["low"][site], band["high"][site])
        for band in results.get("intervals_over_rounds", [])
        if site in band["low"]
    ]
    if not bands and view["interval"]:
        bands = [(shares[-1][0], *view["interval"])]
    ends = {number: [low, high] for number, low, high in bands}
    rows = [[number, share, *ends.get(number, [None, None])] for number, share in shares]
    drawing = plots.own_contribution(shares, bands, 1 / view["n_sites"])
    return Figure("contribution", drawing, [["round", "contribution", "low", "high"], *rows])


def own_progress(view: Mapping[str, Any]) -> Figure | None:
    """The validation Dice at one member; None if it sent none."""
    scores = [(at["round"], at["score"]) for at in view["by_round"] if at["score"] is not None]
    return Figure("validation-dice", plots.own_progress(scores), [["round", "dice"], *scores]) if scores else None


def dice(results: Mapping[str, Any]) -> Figure:
    rows = [[site, value, results["dice_without"][site]] for site, value in results["dice"].items()]
    table = [["site", "dice", "dice without the site"], *rows]
    if alone := results.get("alone", {}):
        table = [[*table[0], "dice alone"], *([*row, alone.get(row[0])] for row in rows)]
    return Figure("test-dice", plots.dice(results), table)


def gives_and_needs(results: Mapping[str, Any]) -> Figure:
    worth, needs = results["worth"], results["contributions"]
    ends = {site: (worth["low"][site], worth["high"][site]) for site in worth["share"]}
    rows = [[site, share, *ends[site], needs[site]] for site, share in worth["share"].items()]
    second = "needs" if is_about_needs(results) else "contribution"
    drawing = plots.gives_and_needs(worth["share"], ends, needs, second)
    return Figure("gives-and-needs", drawing, [["site", "gives", "low", "high", "contribution"], *rows])


def freerider(results: Mapping[str, Any]) -> Figure:
    scores = {site: found["scores"] for site, found in results["freerider"].items()}
    rows = [[number, *row] for number, row in enumerate(zip(*scores.values(), strict=True), 1)]
    return Figure("free-rider-scores", plots.freerider(scores), [["round", *scores], *rows])


def examples(run: RunFolder, results: Mapping[str, Any]) -> Figure | None:
    """The example segmentations; None for a run of a store or of an earlier version, or if they were deleted."""
    dice = results.get("example_dice", {})
    if not dice or not run.examples_file.exists():
        return None
    # File names are left out, because they may reveal more than the images.
    table = [["site", "dice of the image"], *dice.items()]
    return Figure("examples", None, table, png=b64encode(run.examples_file.read_bytes()).decode())


def _by_round(rounds: Rounds, value: Callable[[RecordedSite], float | None]) -> list[list[Any]]:
    """A row for each round and a column for each site; empty if the site was absent."""
    sites = plots.sites_of(rounds)
    rows = [
        [done.round_no + 1, *(value(done.sites[site]) if site in done.sites else None for site in sites)]
        for done in rounds
    ]
    return [["round", *sites], *rows]
