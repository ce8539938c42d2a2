"""A site's files on disk: images, each with its mask, found by patterns or taken from a list."""

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedce.base.errors import DataError, Problems, nearest
from fedce.base.tables import BUILT_IN, LONGEST_NAME, DataConfig
from fedce.data.formats import FORMATS, NOT_READ, File, Format, Formats, ending
from fedce.data.splits import NAMES

# Patterns of images and masks that are tried, in this order, without data.images and data.masks. The * is what the
# names of an image and of its mask have in common.
LAYOUTS = (
    ("images/*", "masks/*"),
    ("images/*", "masks/*_mask"),
    ("images/*", "labels/*"),
    ("imagesTr/*", "labelsTr/*"),
    ("image/*", "mask/*"),
    ("*_image", "*_mask"),
    ("*", "*_mask"),
    ("*", "*_segmentation"),
    ("*/image", "*/mask"),
)
SECTIONS = dict(zip(("training", "validation", "testing"), NAMES, strict=True))
CASES_FILE = "cases.csv"
IMAGE_FORMATS = ", ".join(one.name for one in FORMATS if one.holds == "image")
ONE_SITE = ({"images", "masks"}, {"images", "labels"}, {"imagesTr", "labelsTr"}, {"image", "mask"})
IMAGE_FOLDERS = ("images", "masks", "labels", "imagesTr", "labelsTr", "image", "mask")


@dataclass(frozen=True)
class Item:
    """An image file, or a volume, with its mask."""

    name: str
    """The file's name without its ending."""
    image: File
    mask: File
    case: str
    part: str | None = None
    """train, validation or test, if a datalist states it."""

    @property
    def is_volume(self) -> bool:
        return self.image.is_volume


def find_items(config: DataConfig, problems: Problems) -> dict[str, list[Item]]:
    """Each site's items, sorted by name."""
    if not config.source.strip():
        raise DataError("data.source is empty; give a folder of sites, or fundus6, prostate6 or volume6")
    root = Path(config.source)
    lists = _datalists(root, config)
    if lists:
        base = Path(config.root) if config.root else None
        found = {site: _listed(site, path, base or path.parent, config, problems) for site, path in lists.items()}
    else:
        found = {folder.name: _in_folder(folder, config, problems) for folder in _site_folders(root)}
    return {site: _named(site, items, problems) for site, items in found.items()}


def _named(site: str, items: Sequence[Item], problems: Problems) -> list[Item]:
    """The items whose names can be printed: names are written to the run folder and to pages, as UTF-8."""
    for item in items:
        if not item.name.isprintable():
            line = f"site {site!r}: the file name {item.name!r} can't be printed; rename it"
            problems.add(line, f"site {site!r}", "file names can't be printed")
    return sorted((item for item in items if item.name.isprintable()), key=lambda item: item.name)


def _site_folders(root: Path) -> list[Path]:
    if not root.is_dir():
        known = ", ".join(BUILT_IN)
        raise DataError(
            f"no such data folder: {root}{nearest(str(root), BUILT_IN)}; give a folder of sites, or {known}"
        )
    seen = sorted(path for path in root.iterdir() if not path.name.startswith("."))
    for path in seen:
        if path.is_symlink() and not path.exists():
            raise DataError(f"{path} is a link that leads nowhere; repair or remove it")
    folders = [path for path in seen if path.is_dir()]
    if {folder.name for folder in folders} in ONE_SITE:
        raise DataError(f"{root} is one site's folder; give the folder that holds it, {root.parent}")
    if not folders:
        raise DataError(
            f"{root} holds no site folders; expected <site>/images/* and <site>/masks/* in it, or client_<site>.json"
        )
    for folder in folders:
        _check_site_name(folder.name)
    return folders


def _check_site_name(name: str) -> None:
    """A site's name becomes the name of files in the run folder."""
    if not name.isprintable():
        raise DataError(f"the site name {name!r} can't be printed; rename it")
    if not 1 <= len(name.encode()) <= LONGEST_NAME:
        raise DataError(f"the site name {name[:40]!r} has {len(name.encode())} bytes; give it 1 to {LONGEST_NAME}")


def _in_folder(folder: Path, config: DataConfig, problems: Problems) -> list[Item]:
    """Pairs by the stated patterns, or by the layout that pairs the most."""
    site = folder.name
    formats = Formats.named_by(config.format)
    searched = formats.searched(config.format)
    layouts = ((config.images, config.masks),) if config.images and config.masks else LAYOUTS
    found = [_matches(folder, *layout, searched) for layout in layouts]
    best = max(found, key=lambda match: len(match.images.keys() & match.masks.keys()))
    if not best.images and not best.masks:
        asked = f"{config.images} and {config.masks}" if config.images else "images/* and masks/*"
        endings = ", ".join(end for one in searched for end in one.endings)
        problems.add(f"site {site!r} is empty: nothing in {folder} is called {asked} and ends in {endings}")
        return []
    for line, what in (*best.problems(site), *_unread(site, best, formats)):
        problems.add(line, f"site {site!r}", what)
    both = sorted(best.images.keys() & best.masks.keys())
    items = [Item(key, formats.file(best.images[key]), formats.file(best.masks[key]), key) for key in both]
    return _with_cases(site, items, config, _cases_file(folder, config, problems), problems)


def _unread(site: str, match: "_Match", formats: Formats) -> Iterator[tuple[str, str]]:
    """Line and cause for each file beside a site's images that looks like an image but can't be read."""
    used = {*match.images.values(), *match.masks.values()}
    for folder in sorted({path.parent for path in used}):
        for path in sorted(folder.iterdir()):
            if path in used or path.name.startswith("."):
                continue
            if path.is_symlink():
                if not path.exists():
                    line = f"site {site!r}: {path} is a link that leads nowhere; fetch what it stands for, or remove it"
                    yield line, "links lead nowhere"
            elif path.suffix.lower() in NOT_READ and ending(path, formats.known) is None:
                line = f"site {site!r}: {path} is not read; save it as {IMAGE_FORMATS} or a volume, or remove it"
                yield line, f"{path.suffix.lower()} files are not read"
            elif folder.name in IMAGE_FOLDERS and path.is_dir() and _holds_images(path, formats):
                yield f"site {site!r}: the images in {path} are not read; move them to {folder}", "folders are not read"


def _holds_images(folder: Path, formats: Formats) -> bool:
    return any(ending(child, formats.known) for child in folder.iterdir())


@dataclass(frozen=True)
class _Match:
    images: Mapping[str, Path]
    masks: Mapping[str, Path]
    doubles: tuple[tuple[Path, Path], ...]

    def problems(self, site: str) -> Iterator[tuple[str, str]]:
        """Line and cause of each file without a counterpart, and of each name that occurs twice."""
        for names, others, have, lack in (
            (self.images, self.masks, "image", "mask"),
            (self.masks, self.images, "mask", "image"),
        ):
            for key in sorted(names.keys() - others.keys()):
                line = f"site {site!r}: {have} {names[key].name!r} has no {lack} of the same name"
                yield line, f"{have}s have no {lack} of the same name"
        for first, second in self.doubles:
            line = f"site {site!r}: {first.name!r} and {second.name!r} have the same name; remove or rename one"
            yield line, "files have the name of another"


def _matches(folder: Path, images: str, masks: str, searched: Sequence[Format]) -> _Match:
    doubles: list[tuple[Path, Path]] = []
    mask_files = _by_key(folder, masks, searched, doubles, frozenset())
    image_files = _by_key(folder, images, searched, doubles, frozenset(mask_files.values()))
    return _Match(image_files, mask_files, tuple(doubles))


def _by_key(
    folder: Path,
    pattern: str,
    searched: Sequence[Format],
    doubles: list[tuple[Path, Path]],
    taken: frozenset[Path],
) -> dict[str, Path]:
    """Files (or folders of DICOM series) by the part of their name that the pattern's * stands for."""
    expression = re.compile(re.escape(pattern).replace(r"\*", "(.+)"))
    has_ending = ending(Path(pattern), searched) is not None
    found: dict[str, Path] = {}
    for path in sorted(folder.glob("/".join("*" for _ in pattern.split("/")))):
        whole = path.relative_to(folder).as_posix()
        end = ending(path, searched) or ""
        usable = bool(end) if path.is_file() else any(one.is_folder and one.is_folder(path) for one in searched)
        if not usable or path in taken or any(part.startswith(".") for part in whole.split("/")):
            continue
        if match := expression.fullmatch(whole if has_ending else whole[: len(whole) - len(end)]):
            if match[1] in found:
                doubles.append((found[match[1]], path))
            found.setdefault(match[1], path)
    return found


def _cases_file(folder: Path, config: DataConfig, problems: Problems) -> dict[str, str]:
    """File name (with or without its ending) to case, from the site's cases.csv."""
    if config.case_column is None:
        return {}
    path = folder / CASES_FILE
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        problems.add(
            f"site {folder.name!r}: data.case_column needs {path} ({getattr(error, 'strerror', None) or error})"
        )
        return {}
    if not rows or not {"file", config.case_column} <= rows[0].keys():
        problems.add(
            f"{path}: expected the columns 'file' and {config.case_column!r}, got {list(rows[0]) if rows else []}"
        )
        return {}
    return {row["file"]: row[config.case_column] for row in rows}


def _with_cases(
    site: str, items: list[Item], config: DataConfig, by_file: Mapping[str, str], problems: Problems
) -> list[Item]:
    if config.case_column is not None and by_file:
        named = {item.name: by_file.get(item.image.name, by_file.get(item.name, "")) for item in items}
    elif config.case_pattern is not None:
        named = {item.name: _case_by(config.case_pattern, item.name) for item in items}
    else:
        return items
    where = CASES_FILE if config.case_column else f"data.case_pattern {config.case_pattern!r}"
    for name in sorted(name for name, case in named.items() if not case):
        problems.add(
            f"site {site!r}: {where} names no case for {name!r}", f"site {site!r}", f"files have no case by {where}"
        )
    return [replace(item, case=named[item.name]) for item in items]


def _case_by(pattern: str, name: str) -> str:
    match = re.fullmatch(pattern, name)
    return "" if match is None else next((group for group in match.groups() if group), match[0])


def _datalists(root: Path, config: DataConfig) -> dict[str, Path]:
    """Site to its datalist: FILE.json, or a folder of client_<site>.json as NVFlare's examples have it."""
    if root.is_file() and root.suffix == ".json":
        raise DataError(f"{root} is one site's list; give the folder that holds client_<site>.json for every site")
    if not root.is_dir() or config.format in ("images", "volumes", "dicom"):
        return {}
    files = {path.stem.removeprefix("client_"): path for path in sorted(root.glob("client_*.json"))}
    # NVFlare's examples keep a list of all sites' images beside the lists of the single sites.
    files = {site: path for site, path in files.items() if site.lower() != "all"}
    for site in files:
        _check_site_name(site)
    if not files and config.format == "datalist":
        raise DataError(f"{root} holds no client_<site>.json; expected one datalist for each site")
    return files


def _listed(site: str, path: Path, base: Path, config: DataConfig, problems: Problems) -> list[Item]:
    try:
        content = json.loads(path.read_text("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        problems.add(f"site {site!r}: {path} is not a JSON datalist ({error})")
        return []
    if not isinstance(content, dict) or not isinstance(content.get("training"), list):
        problems.add(f"site {site!r}: {path} has no list 'training'; expected a MONAI or Decathlon datalist")
        return []
    for name in SECTIONS:
        if not isinstance(content.get(name, []), list):
            problems.add(f"site {site!r}: {path}: {name!r} is not a list")
            return []
    sections = [name for name in SECTIONS if content.get(name)]
    if not sections:
        problems.add(f"site {site!r}: {path} lists nothing")
    if len(sections) == 2:
        missing = next(name for name in SECTIONS if name not in sections)
        problems.add(
            f"site {site!r}: {path} lists {' and '.join(sections)} but no {missing}; add it, or list all under training"
        )
        return []
    items: list[Item] = []
    formats = Formats.named_by(config.format)
    for section in sections:
        for i, entry in enumerate(content[section]):
            where = f"site {site!r}: {path.name} {section}[{i}]"
            part = SECTIONS[section] if len(sections) == len(SECTIONS) else None
            if item := _listed_item(f"site {site!r}", where, entry, base, config, formats, part, problems):
                items.append(item)
    names = [item.name for item in items]
    for name in sorted({name for name in names if names.count(name) > 1}):
        problems.add(f"site {site!r}: {path.name} lists {name!r} twice", f"site {site!r}", "images are listed twice")
    return items if config.case_column else _with_cases(site, items, config, {}, problems)


def _listed_item(
    site: str,
    where: str,
    entry: Any,
    base: Path,
    config: DataConfig,
    formats: Formats,
    part: str | None,
    problems: Problems,
) -> Item | None:
    keys = ("image", "label")
    if not isinstance(entry, dict) or not all(
        isinstance(entry.get(key), str) and Path(entry[key]).name for key in keys
    ):
        line = f'{where}: expected {{"image": PATH, "label": PATH}}, got {json.dumps(entry)[:80]}'
        problems.add(line, site, "entries don't name an image and a label")
        return None
    paths = []
    for key in ("image", "label"):
        if problem := _problem_of(base, entry[key]):
            problems.add(f"{where}: {key} {entry[key]!r} {problem[0]}", site, problem[1])
            return None
        paths.append(base / entry[key])
    # Named by its place in the data folder: two spellings of one path are one file, and names hold no path outside it.
    name = paths[0].resolve().relative_to(base.resolve()).with_name(formats.stem(paths[0])).as_posix()
    case = name
    if config.case_column is not None:
        case = str(entry.get(config.case_column) or "")
        if not case:
            line = f"{where}: has no {config.case_column!r}, which data.case_column names"
            problems.add(line, site, f"entries have no {config.case_column!r}")
    return Item(name, formats.file(paths[0]), formats.file(paths[1]), case, part)


def _problem_of(base: Path, given: str) -> tuple[str, str] | None:
    """What is wrong with a path, and the words that sum up several such problems."""
    try:
        inside = (base / given).resolve().is_relative_to(base.resolve())
        exists = (base / given).exists()
    except (OSError, RuntimeError, ValueError) as error:  # A loop of links, a name too long, a zero byte.
        return f"can't be opened ({error})", "files can't be opened"
    if not inside:
        line = f"leaves the data folder {base}; lists may only name files inside it (data.root says which folder)"
        return line, f"files are not in the data folder {base}"
    return None if exists else (f"does not exist in {base}", f"files do not exist in {base}")
