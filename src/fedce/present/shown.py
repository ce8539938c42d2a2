"""A finished run as a notebook shows it: the report's table of sites, its sentences, and where the report is."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedce.base.html import sentences_html, table_html
from fedce.present.columns import Cell, Place, sites_table
from fedce.present.results import flag_lines, interval_lines
from fedce.present.worth import shares_given


def result_html(results: Mapping[str, Any], folder: Path) -> str:
    """The tables that the terminal shows at a run's end."""
    fairness = results["fairness"]
    sentences = [
        f"Mean Dice {fairness['mean']:.3f}, standard deviation over sites {fairness['std']:.3f}, worst site "
        f"{fairness['worst']:.3f}.",
        *interval_lines(results),
        *flag_lines(results),
        f"Report: {folder / 'report.html'}",
    ]
    title = (
        f"{results['algorithm']} on {Path(results['data']).name}, {results['rounds']} rounds, seed {results['seed']}"
    )
    shares = "what each site gives to the others, and its contribution, with 95 % intervals"
    more = _table(results, "shares", shares) if shares_given(results) else ""
    metrics = _table(results, "metrics", "other metrics, on the test cases") if results.get("metrics") else ""
    return _table(results, "terminal", title) + more + metrics + sentences_html(sentences)


def _table(results: Mapping[str, Any], place: Place, title: str) -> str:
    found = sites_table(results, place, list(results["contributions"]))
    rows = [[_text(cell) for cell in row] for row in found.rows]
    return table_html(title, [name.replace("\n", " ") for name, _ in found.titles], rows)


def _text(cell: Cell) -> str:
    return f"{cell.text} ({cell.note.text})" if cell.note else cell.text
