"""A study's page, from the files in its folder alone: study.json, the pictures and the names of the CSV files."""

from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from fedce.base.errors import RunError
from fedce.base.files import read_sealed, write_bytes
from fedce.base.words import cell_text
from fedce.pictures.ink import in_page
from fedce.present.pages import page
from fedce.record.forms import Study, check


def write_study_report(folder: Path) -> Path:
    """Write report.html; its links to CSV files work while it lies beside them."""
    about = read_sealed(folder / "study.json")
    check(Study, about, str(folder / "study.json"), "conduct the study again with this version")
    outcomes = about["outcomes"]
    # Every page also shows the data; the heading names the other studies.
    named = [outcome for outcome in outcomes if outcome["study"] != "data"] or outcomes
    heading = f"{named[0]['title'] if len(named) == 1 else 'Studies'} on {about['data']}"
    shown = [_shown(folder, outcome) for outcome in outcomes]
    path = folder / "report.html"
    write_bytes(path, page("study.html.j2", **{**about, "heading": heading, "outcomes": shown}))
    return path


def _shown(folder: Path, outcome: Mapping[str, Any]) -> dict[str, Any]:
    tables = outcome["tables"]
    return {
        "study": outcome["study"],
        "title": outcome["title"],
        "findings": outcome["findings"],
        "tables": [_table(tables[name]) for name in outcome["shown"]],
        "pictures": [_picture(folder, picture, tables) for picture in outcome["pictures"]],
    }


def _table(table: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "title": table["title"],
        "header": table["header"],
        "cells": [[cell_text(cell, table["digits"]) for cell in row] for row in table["rows"]],
        "file": table["file"],
    }


def _picture(folder: Path, picture: Mapping[str, Any], tables: Mapping[str, Any]) -> dict[str, Any]:
    content = (folder / picture["file"]).read_bytes()
    if (digest := sha256(content).hexdigest()) != picture.get("sha256", digest):
        raise RunError(f"{folder / picture['file']} was changed since it was written; conduct the study again")
    is_svg = picture["file"].endswith(".svg")
    return {
        "caption": picture["caption"],
        "svg": in_page(content).decode() if is_svg else None,
        "png": None if is_svg else b64encode(content).decode(),
        "file": tables[picture["table"]]["file"] if picture["table"] is not None else None,
    }
