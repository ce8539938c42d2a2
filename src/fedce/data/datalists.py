"""MONAI's datalists: images and labels by name, with sections or folds as the split."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedce.base.errors import DataError, Problems
from fedce.base.tables import DataConfig
from fedce.data.dataset_json import Described, described_by
from fedce.data.formats import Formats
from fedce.data.items import Item, SiteFiles, with_cases
from fedce.data.splits import NAMES

SECTIONS = dict(zip(("training", "validation", "testing"), NAMES, strict=True))
FOLD, SITE = "fold", "site"
"""Keys of an entry."""
LISTS = "datalists"


def lists_in(root: Path, config: DataConfig) -> dict[str, Path]:
    """Site to its datalist in a folder of client_<site>.json, as NVFlare's examples have it."""
    if not root.is_dir() or config.format in ("images", "volumes", "dicom"):
        return {}
    files = {path.stem.removeprefix("client_"): path for path in sorted(root.glob("client_*.json"))}
    # NVFlare's examples keep a list of all sites' images beside the lists of the single sites.
    files = {site: path for site, path in files.items() if site.lower() != "all"}
    if not files and config.format == "datalist" and not list_of_all(root):
        raise DataError(f"{root} holds no client_<site>.json; expected one datalist for each site")
    return files


def list_of_all(root: Path) -> Path | None:
    """One datalist of all sites: the file itself, or the only datalist in a folder without site folders."""
    if root.is_file():
        return root if root.suffix == ".json" else None
    if not root.is_dir() or (root / "imagesTr").is_dir():  # Their dataset.json only describes the folders.
        return None
    lists = [path for path in sorted(root.glob("*.json")) if _is_list(path)]
    return lists[0] if len(lists) == 1 else None


def _is_list(path: Path) -> bool:
    try:
        content = json.loads(path.read_text("utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return False
    training = content.get("training") if isinstance(content, dict) else None
    return isinstance(training, list) and bool(training) and isinstance(training[0], dict) and "image" in training[0]


def listed(site: str, path: Path, config: DataConfig, problems: Problems) -> SiteFiles:
    """The items of a datalist, with the split that its sections or folds state."""
    base = Path(config.root) if config.root else path.parent
    try:
        content = json.loads(path.read_text("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        problems.add(f"site {site!r}: {path} is not a JSON datalist ({error})")
        return SiteFiles()
    if not isinstance(content, dict) or not isinstance(content.get("training"), list):
        problems.add(f"site {site!r}: {path} has no list 'training'; expected a MONAI or Decathlon datalist")
        return SiteFiles()
    for name in SECTIONS:
        if not isinstance(content.get(name, []), list):
            problems.add(f"site {site!r}: {path}: {name!r} is not a list")
            return SiteFiles()
    sections = {name: content[name] for name in SECTIONS if content.get(name)}
    if "testing" in sections and not any(_has_label(entry) for entry in sections["testing"]):
        del sections["testing"]  # Images of a challenge, whose labels are not public.
    folds = [entry.get(FOLD) for entry in sections.get("training", []) if isinstance(entry, dict)]
    has_folds = bool(folds) and all(isinstance(fold, int) for fold in folds)
    if not sections:
        problems.add(f"site {site!r}: {path} lists nothing")
    if len(sections) == 2 and not (has_folds and "testing" in sections):
        missing = next(name for name in SECTIONS if name not in sections)
        problems.add(
            f"site {site!r}: {path} lists {' and '.join(sections)} but no {missing}; add it, or list all under training"
        )
        return SiteFiles()
    how = _Entries(f"site {site!r}", path, base, config, Formats.named_by(config.format), problems)
    items: list[Item] = []
    for section, entries in sections.items():
        part = SECTIONS[section] if len(sections) > 1 else None
        items += [item for i, entry in enumerate(entries) if (item := how.item(f"{section}[{i}]", entry, part))]
    has_folds = has_folds and len(sections) < len(SECTIONS)
    if has_folds:
        items = _by_folds(items, config.fold, "testing" in sections, how)
    names = [item.name for item in items]
    for name in sorted({name for name in names if names.count(name) > 1}):
        problems.add(f"site {site!r}: {path.name} lists {name!r} twice", f"site {site!r}", "images are listed twice")
    items = items if config.case_column else with_cases(site, items, config, {}, problems)
    layout = f"datalist with {len(set(folds))} folds" if has_folds else LISTS
    about = Described()
    with problems.collected(f"site {site!r}"):
        about = described_by(content, path)
    return SiteFiles(items, layout, about.channels, about.classes)


def _has_label(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("label"), str)


def _by_folds(items: Sequence[Item], fold: int, has_test: bool, how: "_Entries") -> list[Item]:
    """Fold `fold` validates, the next one tests unless the list has a test section, and the rest trains."""
    known = sorted({how.folds[item.name] for item in items if item.name in how.folds})
    needed = 2 if has_test else 3
    if len(known) < needed or fold not in known:
        how.problems.add(
            f"{how.site}: {how.path} has the folds {known}; data.fold = {fold} must be one of them, and at least "
            f"{needed} are needed (one validates, the next one tests)"
        )
        return list(items)
    following = known[(known.index(fold) + 1) % len(known)]
    part_by_fold = {fold: "validation"} if has_test else {following: "test", fold: "validation"}
    return [
        replace(item, part=part_by_fold.get(how.folds[item.name], "train")) if item.name in how.folds else item
        for item in items
    ]


@dataclass(frozen=True)
class _Entries:
    """How the entries of one list become items."""

    site: str
    path: Path
    base: Path
    config: DataConfig
    formats: Formats
    problems: Problems
    folds: dict[str, int] = field(default_factory=dict)
    """Name to fold, of the items so far."""

    def item(self, place: str, entry: Any, part: str | None) -> Item | None:
        where = f"{self.site}: {self.path.name} {place}"
        given = _images_of(entry)
        if not given or not _has_label(entry) or not all(Path(path).name for path in (*given, entry["label"])):
            line = f'{where}: expected {{"image": PATH, "label": PATH}}, got {json.dumps(entry)[:80]}'
            self.problems.add(line, self.site, "entries don't name an image and a label")
            return None
        paths = []
        for key, path in (*(("image", image) for image in given), ("label", entry["label"])):
            if problem := _problem_of(self.base, path):
                self.problems.add(f"{where}: {key} {path!r} {problem[0]}", self.site, problem[1])
                return None
            paths.append(self.base / path)
        # Named by its place in the data folder: two spellings of one path are one file, and names hold no path outside.
        inside = paths[0].resolve().relative_to(self.base.resolve())
        name = inside.with_name(self.formats.stem(paths[0])).as_posix()
        if isinstance(entry.get(FOLD), int):
            self.folds[name] = entry[FOLD]
        site = str(entry.get(self.config.site_column or SITE) or "")
        return Item(
            name,
            self.formats.file(*paths[:-1]),
            self.formats.file(paths[-1]),
            self._case(where, name, entry),
            part,
            site,
        )

    def _case(self, where: str, name: str, entry: Mapping[str, Any]) -> str:
        if (column := self.config.case_column) is None:
            return name
        case = str(entry.get(column) or "")
        if not case:
            line = f"{where}: has no {column!r}, which data.case_column names"
            self.problems.add(line, self.site, f"entries have no {column!r}")
        return case


def _images_of(entry: Any) -> list[str]:
    """The files of an entry's image: one path, or a list with a path for each modality."""
    given = entry.get("image") if isinstance(entry, dict) else None
    given = [given] if isinstance(given, str) else given
    return given if isinstance(given, list) and all(isinstance(path, str) for path in given) else []


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
