"""Outcomes as files: an HTML and a Markdown page, a CSV of every table and figure, the pictures, and JSON."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedce.files import csv_text, write_bytes, write_json
from fedce.report.pages import page
from fedce.studies.base import Outcome, Picture, Table


def write(folder: Path, outcomes: Sequence[Outcome], about: Mapping[str, Any]) -> Path:
    """Write everything; returns the HTML page."""
    for outcome in outcomes:
        for table in outcome.tables:
            write_bytes(folder / csv_name(outcome, table), to_csv(table).encode())
        for picture in outcome.pictures:
            write_bytes(folder / picture_name(outcome, picture), _standing_alone(picture))
            if picture.data is not None:
                write_bytes(folder / csv_name(outcome, picture.data), to_csv(picture.data).encode())
    write_json(folder / "study.json", {**about, "outcomes": [_as_json(outcome) for outcome in outcomes]})
    write_bytes(folder / "study.md", to_markdown(outcomes, about).encode())
    report = folder / "report.html"
    write_bytes(report, to_page(outcomes, about))
    return report


def to_page(outcomes: Sequence[Outcome], about: Mapping[str, Any]) -> bytes:
    """One HTML file; the links to CSV files work while it lies beside them."""
    shown = [
        {
            "study": outcome.study,
            "title": outcome.title,
            "findings": outcome.findings,
            "tables": [
                {"title": t.title, "header": t.header, "cells": t.cells, "file": csv_name(outcome, t)}
                for t in outcome.tables
            ],
            "pictures": [_shown(outcome, picture) for picture in outcome.pictures],
        }
        for outcome in outcomes
    ]
    heading = f"{outcomes[0].title if len(outcomes) == 1 else 'Studies'} on {about['data']}"
    return page("study.html.j2", **{**about, "heading": heading, "outcomes": shown})


def _shown(outcome: Outcome, picture: Picture) -> dict[str, Any]:
    return {
        "caption": picture.caption,
        "svg": picture.content.decode() if picture.ending == "svg" else None,
        "png": b64encode(picture.content).decode() if picture.ending == "png" else None,
        "file": csv_name(outcome, picture.data) if picture.data is not None else None,
    }


def csv_name(outcome: Outcome, table: Table) -> str:
    return f"{outcome.study}-{table.name}.csv"


def picture_name(outcome: Outcome, picture: Picture) -> str:
    return f"{outcome.study}-{picture.name}.{picture.ending}"


def to_csv(table: Table) -> str:
    return csv_text([table.header, *table.cells])


def to_markdown(outcomes: Sequence[Outcome], about: Mapping[str, Any]) -> str:
    parts = [f"```\n{about['command']}\n```\n", f"{about['size']}\n"]
    for outcome in outcomes:
        parts.append(f"## {outcome.title}\n")
        parts += [f"{finding}\n" for finding in outcome.findings]
        parts += [f"{table.title}\n\n{table_markdown(table)}" for table in outcome.tables]
        parts += [f"![{picture.caption}]({picture_name(outcome, picture)})\n" for picture in outcome.pictures]
    return "\n".join(parts)


def table_markdown(table: Table) -> str:
    lines = [list(table.header), ["---"] + ["---:"] * (len(table.header) - 1), *table.cells]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def _standing_alone(picture: Picture) -> bytes:
    """In a page an SVG takes the page's ink; a file of its own is black on white."""
    if picture.ending != "svg":
        return picture.content
    svg = picture.content.replace(b"currentColor", b"#1c2126")
    return svg.replace(b"<svg ", b'<svg style="background:#fff" ', 1)


def _as_json(outcome: Outcome) -> dict[str, Any]:
    tables = [*outcome.tables, *(picture.data for picture in outcome.pictures if picture.data is not None)]
    return {
        "study": outcome.study,
        "title": outcome.title,
        "findings": list(outcome.findings),
        "tables": {
            table.name: {"header": list(table.header), "rows": [list(row) for row in table.rows]} for table in tables
        },
    }
