"""What a folder holds, in words, where no layout fits: counts by folder and ending, an example, keys that would fit."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, takewhile
from pathlib import Path

from fedce.data import dicom
from fedce.data.formats import FORMATS, Format, ending
from fedce.data.splits import PART_FOLDERS

MOST_FILES = 5000
"""A folder is searched for at most this many files: it may be somebody's whole disk."""
MOST_GROUPS = 4
DIGITS = "0123456789"
MASK_WORDS = frozenset(
    [
        "mask",
        "masks",
        "seg",
        "segs",
        "segmentation",
        "segmentations",
        "label",
        "labels",
        "roi",
        "rois",
        "gt",
        "truth",
        "groundtruth",
        "annotation",
        "annotations",
    ]
)
"""Words in names of masks. A name counts only if it has such a word whole: there may be a hospital in Detroit."""
MASK_WORD = re.compile(r"mask|seg|label|roi|annot|contour|gt\b|truth", re.IGNORECASE)
"""The same in advice, which a person reads before following it."""
IMAGE_WORD = re.compile(r"image|img|scan|original|photo", re.IGNORECASE)


def seen_in(folder: Path, known: Sequence[Format]) -> str:
    """A sentence about the files in a folder, and the keys that could be set; "" if there is no file."""
    groups = _groups(folder, known)
    if not groups:
        return ""
    largest = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
    parts = [f"{len(names)} {end} in {where or '.'}" for (where, end), names in largest[:MOST_GROUPS]]
    more = len(largest) - MOST_GROUPS
    parts += [f"files in {more} more folders"] * (more > 0)
    found = f"found {', '.join(parts)} (such as {largest[0][1][0]})"
    read = {key: names for key, names in largest if any(_is_read(folder / name, known) for name in names)}
    return f"{found}; {_keys(_in_any_folder(read)) if read else _unread(groups)}"


def patterns_in(folder: Path, known: Sequence[Format]) -> tuple[str, str] | None:
    """Patterns of images and masks, if a folder holds just these two kinds of files, and every file has its pair.

    The masks are those whose folder, or the end of whose names, has a word for masks.
    """
    read = _two_kinds(folder, known)
    masks = [key for key, names in read.items() if names_masks(f"{key[0]} {_star(_stems(key, names))[0]}")]
    if len(masks) != 1:
        return None
    (image,) = read.keys() - set(masks)
    return _paired(image, masks[0], read)


def can_be_paired(folder: Path, known: Sequence[Format]) -> bool:
    """Whether a folder holds just two kinds of files whose names fit each other, whichever of them are the masks."""
    read = _two_kinds(folder, known)
    one, other = read or (("", ""), ("", ""))
    return _paired(one, other, read) is not None


def _two_kinds(folder: Path, known: Sequence[Format]) -> dict[tuple[str, str], list[str]]:
    """The readable files by folder and ending, if there are two such kinds; otherwise nothing."""
    read = {key: names for key, names in _groups(folder, known).items() if ending(Path(names[0]), known)}
    return read if len(read) == 2 and not any("*" in where for where, _ in read) else {}


def names_masks(text: str) -> bool:
    """Whether a name has a word for masks.

    >>> names_masks("Ground Truth"), names_masks("*_seg"), names_masks("Detroit")
    (True, True, False)
    """
    return not MASK_WORDS.isdisjoint(re.split(r"[\W\d_]+", text.lower()))


def _in_any_folder(groups: Mapping[tuple[str, str], Sequence[str]]) -> dict[tuple[str, str], Sequence[str]]:
    """The groups, with * for folders that images and masks have in common, such as patients or sites."""
    below: dict[tuple[str, str], set[str]] = defaultdict(set)
    for where, end in groups:
        above, _, last = where.rpartition("/")
        if above and "*" not in where:
            below[above, end].add(last)
    shared = {key for key, names in below.items() if len(names) > 1 and list(below.values()).count(names) == 2}
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (where, end), names in groups.items():
        above = where.rpartition("/")[0]
        found[(f"{above}/*" if (above, end) in shared else where), end] += names
    return dict(found)


def _is_read(path: Path, known: Sequence[Format]) -> bool:
    return ending(path, known) is not None or dicom.is_slice(path)


def _unread(groups: Iterable[tuple[str, str]]) -> str:
    ends = sorted({end for _, end in groups if end.startswith(".")})
    names = ", ".join(dict.fromkeys(one.name for one in FORMATS))
    what = f"{', '.join(ends)} files are not read" if ends else "none of these files is read"
    return f"{what}; save them as {names}, or name a reader of your own, --set data.format=package.module:NAME"


def _groups(folder: Path, known: Sequence[Format]) -> dict[tuple[str, str], list[str]]:
    """Files by the folder that they are in and by their ending; folders that differ only in numbers count as one."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    places: dict[tuple[str, str], set[str]] = defaultdict(set)
    files = (path for path in folder.rglob("*") if path.is_file())
    for path in sorted(islice(files, MOST_FILES)):
        inside = path.relative_to(folder)
        if any(part.startswith(".") for part in inside.parts):
            continue
        place = "/".join("*" if part.lower() in PART_FOLDERS else part for part in inside.parts[:-1])
        key = (re.sub(r"\d+", "*", place), ending(path, known) or path.suffix.lower() or "files without ending")
        found[key].append(inside.as_posix())
        places[key].add(place)
    return {(min(places[key]) if len(places[key]) == 1 else key[0], key[1]): names for key, names in found.items()}


def _keys(groups: Mapping[tuple[str, str], Sequence[str]]) -> str:
    """The keys that would fit, as options ready to paste; the folder with a word for masks is taken for the masks."""
    masks = [key for key in groups if MASK_WORD.search(key[0])]
    images = sorted((key for key in groups if key not in masks), key=lambda key: not IMAGE_WORD.search(key[0]))
    first, *rest = [*images, *masks]
    image, mask = first, (masks or rest or [("masks", first[1])])[0]
    if mask == image:
        mask = ("masks", image[1])
    # The slices of a DICOM series are one image: the pattern names their folder.
    of_series = image[0] if image[1] in dicom.ENDINGS and "*" in image[0] else None
    patterns = _paired(image, mask, groups) or (of_series or _pattern(*image), _pattern(*mask))
    stated = [f"--set data.{name}='{pattern}'" for name, pattern in zip(("images", "masks"), patterns, strict=True)]
    line = f"state where images and masks are, for example {' '.join(stated)}"
    if all(where.endswith("/*") for where, _ in (image, mask)):
        line += " (if each * folder is a site, add --set data.site_pattern='([^/]+)/.*')"
    return line


def _paired(
    image: tuple[str, str], mask: tuple[str, str], groups: Mapping[tuple[str, str], Sequence[str]]
) -> tuple[str, str] | None:
    """Patterns that pair all files of two folders, if what their names have in common leaves the same texts."""
    stars = [_star(_stems(key, groups.get(key, ()))) for key in (image, mask)]
    if not stars[0][1] or stars[0][1] != stars[1][1]:
        return None
    one, other = (
        _pattern(where, _as_written(end, groups[where, end][0]), star)
        for (where, end), (star, _) in zip((image, mask), stars, strict=True)
    )
    return one, other


def _stems(key: tuple[str, str], names: Sequence[str]) -> list[str]:
    return [Path(name).name.removesuffix(_as_written(key[1], name)) for name in names]


def _as_written(end: str, name: str) -> str:
    """A file's ending in its own capitals."""
    return name[-len(end) :] if name.lower().endswith(end) else end


def _star(names: Sequence[str]) -> tuple[str, frozenset[str]]:
    """A name with * for the part in which the names differ, and what the * stands for.

    Digits belong to the *: files of another site may have other numbers.
    """
    start = _common_start(names).rstrip(DIGITS)
    end = _common_start([name[len(start) :][::-1] for name in names]).rstrip(DIGITS)[::-1]
    return f"{start}*{end}", frozenset(name[len(start) : len(name) - len(end)] for name in names)


def _common_start(names: Sequence[str]) -> str:
    same = takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    return "".join(letters[0] for letters in same)


def _pattern(where: str, end: str, star: str = "*") -> str:
    name = f"{star}{end if end.startswith('.') else ''}"
    return f"{where}/{name}" if where else name
