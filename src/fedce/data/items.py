"""What a site has on disk: images, each with its mask and its case, and what its data set says of itself."""

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedce.base.errors import Problems
from fedce.base.tables import DataConfig
from fedce.data.formats import File

CASES_FILE = "cases.csv"
PARTICIPANTS_FILE = "participants.tsv"
"""BIDS's table of the subjects."""


@dataclass(frozen=True)
class Item:
    """An image file, or a volume, with its mask."""

    name: str
    """The file's name without its ending."""
    image: File
    mask: File
    case: str
    part: str | None = None
    """train, validation or test, if a datalist or a folder states it."""
    site: str = ""
    """The site, if the data set's own list or table states it."""

    @property
    def is_volume(self) -> bool:
        return self.image.is_volume


@dataclass(frozen=True)
class SiteFiles:
    """A site's items, and how they were recognised."""

    items: Sequence[Item] = ()
    layout: str = ""
    """The name of the recognised layout, such as "nnU-Net folders"."""
    modalities: tuple[str, ...] = ()
    """Names of the channels, if a case has several files or a file several channels."""
    classes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Class to mask values by the data set's dataset.json; empty without one."""


def cases_by_file(folder: Path, column: str, site: str, problems: Problems) -> dict[str, str]:
    """File name (with or without its ending) to the value of a column of the folder's cases.csv."""
    path = folder / CASES_FILE
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        problems.add(f"site {site!r}: the column {column!r} needs {path} ({getattr(error, 'strerror', None) or error})")
        return {}
    if not rows or not {"file", column} <= rows[0].keys():
        problems.add(f"{path}: expected the columns 'file' and {column!r}, got {list(rows[0]) if rows else []}")
        return {}
    return {row["file"]: row[column] or "" for row in rows}


def of_item(by_file: Mapping[str, str], item: Item) -> str:
    """The value of an item in a table by file names."""
    return by_file.get(item.image.name, by_file.get(item.name, ""))


def with_cases(
    site: str, items: Sequence[Item], config: DataConfig, by_file: Mapping[str, str], problems: Problems
) -> list[Item]:
    """The items with cases by data.case_column or data.case_pattern, if one of them is set."""
    if config.case_column is not None and by_file:
        named = {item.name: of_item(by_file, item) for item in items}
    elif config.case_pattern is not None:
        named = {item.name: group_of(config.case_pattern, item.name) for item in items}
    else:
        return list(items)
    where = CASES_FILE if config.case_column else f"data.case_pattern {config.case_pattern!r}"
    for name in sorted(name for name, case in named.items() if not case):
        problems.add(
            f"site {site!r}: {where} names no case for {name!r}", f"site {site!r}", f"files have no case by {where}"
        )
    return [replace(item, case=named[item.name]) for item in items]


def group_of(pattern: str, name: str) -> str:
    """The first group of a pattern in a name, or the whole name without a group; "" if the pattern does not fit.

    Where files lie in several folders, a name is a path; a pattern may fit the whole path or its last part.
    """
    match = re.fullmatch(pattern, name) or re.fullmatch(pattern, name.rpartition("/")[2])
    return "" if match is None else next((group for group in match.groups() if group), match[0])


def case_of(items: Sequence[Item], site: str, file: str) -> str:
    """The case of a file that data.groups names as "file" or "site/file", with or without its ending; "" if unknown."""
    names = {file, file.removeprefix(f"{site}/")}
    return next((item.case for item in items if names & {item.name, item.image.name}), "")


def check_groups(found: Mapping[str, SiteFiles], config: DataConfig, problems: Problems) -> None:
    for group in config.groups:
        for file in group:
            if not any(case_of(files.items, site, file) for site, files in found.items()):
                problems.add(f"data.groups names {file!r}, which no site has")
