"""The sites of a data source: a folder for each site, a datalist for each site, or one data set of all sites."""

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fedce.base.errors import DataError, Problems, nearest
from fedce.base.tables import BUILT_IN, LONGEST_NAME, DataConfig
from fedce.data.datalists import SITE, list_of_all, listed, lists_in
from fedce.data.formats import Formats
from fedce.data.items import (
    CASES_FILE,
    PARTICIPANTS_FILE,
    Item,
    SiteFiles,
    cases_by_file,
    group_of,
    of_item,
)
from fedce.data.layouts import BIDS, IMAGE_FOLDERS, files_in, is_one_data_set
from fedce.data.seen import seen_in

PREFIX = r"([A-Za-z]+[A-Za-z0-9]*?)[_-].*"
"""A pattern for sites that is proposed if it tells at least two sites apart."""
MOST_SITES = 50
FEWEST_CASES = 3
"""A site needs at least one case for each split."""


def find_items(config: DataConfig, problems: Problems) -> dict[str, SiteFiles]:
    """Each site's items, sorted by name."""
    if not config.source.strip():
        raise DataError("data.source is empty; give a folder of sites, or fundus6, prostate6 or volume6")
    root = Path(config.source)
    if lists := lists_in(root, config):
        found = {site: listed(site, path, config, problems) for site, path in lists.items()}
    elif (path := list_of_all(root)) is not None:
        found = _by_site(root, listed(path.stem, path, config, problems), config, problems)
    else:
        folders = _folders(root)
        if is_one_data_set(root) or config.site_pattern or config.site_column:
            found = _by_site(root, files_in(root, root.name, config, problems), config, problems)
        else:
            found = {folder.name: _of_site(folder, folder.name, config, problems) for folder in _sites(root, folders)}
    for site in found:
        _check_site_name(site)
    return {site: replace(files, items=_named(site, files.items, problems)) for site, files in found.items()}


def _of_site(folder: Path, name: str, config: DataConfig, problems: Problems) -> SiteFiles:
    """A site's items: as its own datalist names them, or as its folder is laid out."""
    path = (
        list_of_all(folder) if config.format in ("auto", "datalist") and not (config.images or config.masks) else None
    )
    if path is not None:
        return listed(name, path, config, problems)
    return files_in(folder, name, config, problems)


def find_labelled(folder: Path, config: DataConfig, problems: Problems) -> dict[str, SiteFiles]:
    """The items of one site's folder, or of every site in a folder of sites."""
    if not folder.is_dir():
        raise DataError(f"no such folder: {folder}; give a site's folder, or a folder of sites, with images and masks")
    name = folder.resolve().name
    begun = {path.name for path in folder.iterdir() if path.is_dir()} & set(IMAGE_FOLDERS)
    if not begun and not is_one_data_set(folder) and not _of_site(folder, name, config, Problems()).items:
        return find_items(config.model_copy(update={"source": str(folder)}), problems)
    _check_site_name(name)
    found = _of_site(folder, name, config, problems)
    return {name: replace(found, items=_named(name, found.items, problems))}


def _named(site: str, items: Sequence[Item], problems: Problems) -> list[Item]:
    """The items whose names can be printed: names are written to the run folder and to pages, as UTF-8."""
    for item in items:
        if not item.name.isprintable():
            line = f"site {site!r}: the file name {item.name!r} can't be printed; rename it"
            problems.add(line, f"site {site!r}", "file names can't be printed")
    return sorted((item for item in items if item.name.isprintable()), key=lambda item: item.name)


def _folders(root: Path) -> list[Path]:
    if not root.is_dir():
        known = ", ".join(BUILT_IN)
        raise DataError(
            f"no such data folder: {root}{nearest(str(root), BUILT_IN)}; give a folder of sites, or {known}"
        )
    seen = sorted(path for path in root.iterdir() if not path.name.startswith("."))
    for path in seen:
        if path.is_symlink() and not path.exists():
            raise DataError(f"{path} is a link that leads nowhere; repair or remove it")
    return [path for path in seen if path.is_dir()]


def _sites(root: Path, folders: Sequence[Path]) -> Sequence[Path]:
    if not folders:
        seen = seen_in(root, Formats().known)
        raise DataError(
            f"{root} holds no site folders; expected <site>/images/* and <site>/masks/* in it, or client_<site>.json"
            + (f"; {seen}; and data.site_pattern says to which site a file belongs" if seen else "")
        )
    for folder in folders:
        _check_site_name(folder.name)
    return folders


def _check_site_name(name: str) -> None:
    """A site's name becomes the name of files in the run folder."""
    if not name.isprintable() or "/" in name:
        raise DataError(f"the site name {name!r} can't be printed; rename it")
    if not 1 <= len(name.encode()) <= LONGEST_NAME:
        raise DataError(f"the site name {name[:40]!r} has {len(name.encode())} bytes; give it 1 to {LONGEST_NAME}")


def _by_site(root: Path, whole: SiteFiles, config: DataConfig, problems: Problems) -> dict[str, SiteFiles]:
    """One data set cut into its sites: by a pattern, a column, the list's or BIDS's own `site`, or not at all."""
    if not whole.items:
        return {root.stem: whole}
    site_of = _site_by_name(root, whole, config, problems)
    if not site_of:
        if config.shards > 1:
            return {root.stem: whole}
        raise DataError(_one_data_set(root, whole))
    for item in whole.items:
        if not site_of[item.name]:
            by = (
                f"data.site_pattern {config.site_pattern!r}"
                if config.site_pattern
                else f"{config.site_column or SITE!r}"
            )
            problems.add(f"{root}: {by} names no site for {item.name!r}", str(root), f"files have no site by {by}")
    found: dict[str, list[Item]] = {}
    for item in whole.items:
        if site_of[item.name]:
            found.setdefault(site_of[item.name], []).append(item)
    return {site: replace(whole, items=found[site]) for site in sorted(found)}


def _site_by_name(root: Path, whole: SiteFiles, config: DataConfig, problems: Problems) -> dict[str, str]:
    """Item to site; empty if nothing says which site an item is of."""
    if config.site_pattern is not None:
        return {item.name: group_of(config.site_pattern, item.name) for item in whole.items}
    if any(item.site for item in whole.items):
        return {item.name: item.site for item in whole.items}
    by_subject = _participants(root, config.site_column or SITE) if whole.layout == BIDS else {}
    if by_subject:
        return {item.name: by_subject.get(item.name.partition("_")[0], "") for item in whole.items}
    if config.site_column is None:
        return {}
    if not root.is_dir():
        raise DataError(f"{root}: no entry has {config.site_column!r}, which data.site_column names")
    by_file = cases_by_file(root, config.site_column, root.name, problems)
    return {item.name: of_item(by_file, item) for item in whole.items}


def _participants(root: Path, column: str) -> dict[str, str]:
    """Subject to the value of a column of BIDS's participants.tsv; empty without the file or the column."""
    try:
        with (root / PARTICIPANTS_FILE).open(newline="", encoding="utf-8-sig") as file:
            rows: list[Mapping[str, str]] = list(csv.DictReader(file, delimiter="\t"))
    except (OSError, UnicodeDecodeError, csv.Error):
        return {}
    return {row["participant_id"]: row[column] or "" for row in rows if row.get(column) and row.get("participant_id")}


def _one_data_set(root: Path, whole: SiteFiles) -> str:
    # A site's datalist lies in the site's folder.
    around = root.parent if root.is_dir() else root.parent.parent
    line = (
        f"{root} is one site's folder or one data set ({whole.layout}, {len(whole.items)} cases); give the folder of "
    )
    line += f"the sites, {around}, if its other folders are the other sites; or say to which site a case belongs"
    counts = Counter(group_of(PREFIX, re.sub(r".*/", "", item.name)) for item in whole.items)
    if 2 <= len(counts) <= MOST_SITES and "" not in counts and min(counts.values()) >= FEWEST_CASES:
        sites = ", ".join(f"{site} {n}" for site, n in sorted(counts.items())[:6])
        line += f", for example --set data.site_pattern='{PREFIX}' (which finds {sites} cases)"
    else:
        line += f" by data.site_pattern, or by data.site_column and {CASES_FILE}"
    return f"{line}; to try it, --set data.shards=4 cuts it into four sites"
