"""The terminal's display at a run's end: a row for each site, flags, and sites that can't be told apart."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from fedce.core.scoring import MIN_CASES
from fedce.present.columns import Cell, Place, labelled_lines, presence_lines, sites_table
from fedce.present.terminal import BAR_WIDTH, Cells, bar, column_width, safe_text, tables_that_fit
from fedce.present.worth import alike_lines, shares_given, vote_lines, worth_sentences

MOST_ROWS = 30
"""The terminal shows at most this many sites; the report shows all."""
NOTE_WIDTH = len("(10.0-20.0)  ")


def results_table(results: Mapping[str, Any], width: int, method: str) -> Table:
    """A row for each site: its images, its Dice, its contribution. `method` is the method's name with its variant."""
    return _sites(results, "terminal", width, f"{method} on {Path(results['data']).name}, {results['rounds']} rounds")


def shares_tables(results: Mapping[str, Any], width: int) -> list[Table]:
    """What each site gives and needs, if it was measured what it gives."""
    title = "what each site gives to the others, and its contribution, with 95 % intervals"
    return [_sites(results, "shares", width, title)] if shares_given(results) else []


def _sites(results: Mapping[str, Any], place: Place, width: int, title: str) -> Table:
    table = Table(title=safe_text(title), title_justify="left")
    n_sites = len(results["contributions"])
    if n_sites > MOST_ROWS:
        table.caption = f"the {MOST_ROWS} largest contributions of {n_sites}; the others are in the report"
    found = sites_table(results, place, _shown(results))
    texts = [_texts(column) for column in zip(*found.rows, strict=True)]
    # In a narrow terminal the bar is left out first, then long names are wrapped; numbers stay whole.
    taken = sum(column_width(column, *name.split()) for (name, _), column in zip(found.titles, texts, strict=True)) + 1
    n_bars = sum(kind == "bar" for _, kind in found.titles) or 1
    longest_bar = max(0, min(BAR_WIDTH, (width - taken) // n_bars))
    for name, kind in found.titles:
        table.add_column(name, justify="right" if kind == "number" else "left", no_wrap=kind != "key", overflow="fold")
    for cells, row in zip(found.rows, zip(*texts, strict=True), strict=True):
        bars = ("" if cell.part is None else bar(cell.part, longest_bar) for cell in cells)
        table.add_row(*(safe_text(text + more) for text, more in zip(row, bars, strict=True)))
    return table


def metrics_tables(results: Mapping[str, Any], width: int) -> list[Table]:
    """The metrics beside Dice, if there are any, with a row for each site in the order of the first table."""
    found = sites_table(results, "metrics", _shown(results))
    if len(found.titles) == 1:
        return []
    cells = list(zip(*(_texts(column) for column in zip(*found.rows, strict=True)), strict=True))
    return tables_that_fit(Cells([name for name, _ in found.titles], cells), width, "other metrics, on the test cases")


def _shown(results: Mapping[str, Any]) -> list[str]:
    """The sites that the terminal shows."""
    shares = results["contributions"]
    return list(shares) if len(shares) <= MOST_ROWS else sorted(shares, key=lambda site: -shares[site])[:MOST_ROWS]


def _texts(column: tuple[Cell, ...]) -> list[str]:
    """The cells of a column with their notes; cells with a bar are padded, so that all bars begin at one place."""
    notes = [f"({cell.note.short})" if cell.note else "" for cell in column]
    if column[0].kind == "bar":
        width = NOTE_WIDTH if any(notes) else 0
        return [f"{cell.text:>7} {note:<{width}}" for cell, note in zip(column, notes, strict=True)]
    return [f"{cell.text} {note}".rstrip() for cell, note in zip(column, notes, strict=True)]


def flag_lines(results: Mapping[str, Any]) -> list[str]:
    """The flags, one line for each site in the table's order; they are too long for a column."""
    flags = results["flags"]
    lines = [f"{site}: {'; '.join(flags[site])}" for site in results["contributions"] if flags.get(site)]
    more = [f"{len(lines) - MOST_ROWS} more sites have flags; they are in the report"] if len(lines) > MOST_ROWS else []
    return lines[:MOST_ROWS] + more


def interval_lines(results: Mapping[str, Any]) -> list[str]:
    """What sites give, whose votes do not count, which are alike, why intervals or labels are missing."""
    lines = [*worth_sentences(results), *vote_lines(results)]
    lines += alike_lines(results)
    if reason := results.get("no_intervals"):
        lines.append(f"The contributions have no intervals: {reason}.")
    counts = [n for key in ("validation_cases", "test_cases") for n in results.get(key, {}).values()]
    if any(0 < n < MIN_CASES for n in counts):
        lines.append(f"With fewer than {MIN_CASES} cases there is no interval; brackets then show the number of cases.")
    return lines + presence_lines(results) + labelled_lines(results)
