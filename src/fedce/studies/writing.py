"""Writes outcomes as files: a Markdown page, a CSV for each table and figure, the pictures, and JSON."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from fedce.base.files import csv_text, write_bytes, write_sealed
from fedce.pictures.ink import standing_alone
from fedce.studies.base import Outcome, Picture, Table


def write(folder: Path, outcomes: Sequence[Outcome], about: Mapping[str, Any]) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for outcome in outcomes:
        for table in outcome.tables:
            write_bytes(folder / csv_name(outcome, table), to_csv(table).encode())
        for picture in outcome.pictures:
            write_bytes(folder / picture_name(outcome, picture), _file(picture))
            if picture.data is not None:
                write_bytes(folder / csv_name(outcome, picture.data), to_csv(picture.data).encode())
    write_sealed(folder / "study.json", {**about, "outcomes": [_as_json(outcome) for outcome in outcomes]})
    write_bytes(folder / "study.md", to_markdown(outcomes, about).encode())


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


def _file(picture: Picture) -> bytes:
    return standing_alone(picture.content) if picture.ending == "svg" else picture.content


def _as_json(outcome: Outcome) -> dict[str, Any]:
    tables = [*outcome.tables, *(picture.data for picture in outcome.pictures if picture.data is not None)]
    return {
        "study": outcome.study,
        "title": outcome.title,
        "findings": list(outcome.findings),
        "tables": {table.name: _table_as_json(outcome, table) for table in tables},
        "shown": [table.name for table in outcome.tables],
        "pictures": [
            {
                "file": picture_name(outcome, picture),
                "sha256": sha256(_file(picture)).hexdigest(),
                "caption": picture.caption,
                "table": picture.data.name if picture.data is not None else None,
            }
            for picture in outcome.pictures
        ],
    }


def _table_as_json(outcome: Outcome, table: Table) -> dict[str, Any]:
    return {
        "title": table.title,
        "header": list(table.header),
        "rows": [list(row) for row in table.rows],
        "digits": table.digits,
        "n_keys": table.n_keys,
        "file": csv_name(outcome, table),
    }
