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
MASK_WORD = re.compile(r"mask|seg|label|roi|annot|contour|gt\b|truth", re.IGNORECASE)


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
    return f"{found}; {_keys(read) if read else _unread(groups)}"


def _is_read(path: Path, known: Sequence[Format]) -> bool:
    return ending(path, known) is not None or dicom.is_slice(path)


def _unread(groups: Iterable[tuple[str, str]]) -> str:
    ends = sorted({end for _, end in groups if end.startswith(".")})
    names = ", ".join(dict.fromkeys(one.name for one in FORMATS))
    what = f"{', '.join(ends)} files are not read" if ends else "none of these files is read"
    return f"{what}; save them as {names}, or name a reader of your own, --set data.format=package.module:NAME"


def _groups(folder: Path, known: Sequence[Format]) -> dict[tuple[str, str], list[str]]:
    """Files by the folder that they are in, with numbers and parts of a split as *, and by their ending."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    files = (path for path in folder.rglob("*") if path.is_file())
    for path in sorted(islice(files, MOST_FILES)):
        inside = path.relative_to(folder)
        if any(part.startswith(".") for part in inside.parts):
            continue
        where = "/".join(
            "*" if part.lower() in PART_FOLDERS else re.sub(r"\d+", "*", part) for part in inside.parts[:-1]
        )
        end = ending(path, known) or path.suffix.lower() or "files without ending"
        found[where, end].append(inside.as_posix())
    return dict(found)


def _keys(groups: Mapping[tuple[str, str], Sequence[str]]) -> str:
    """The keys that would fit, as options ready to paste; the folder with a word for masks is taken for the masks."""
    masks = [key for key in groups if MASK_WORD.search(key[0])]
    images = [key for key in groups if key not in masks]
    first, *rest = [*images, *masks]
    image, mask = first, (masks or rest or [("masks", first[1])])[0]
    if mask == image:
        mask = ("masks", image[1])
    # The slices of a DICOM series are one image: the pattern names their folder.
    of_series = image[0] if image[1] in dicom.ENDINGS and "*" in image[0] else None
    patterns = _paired(image, mask, groups) or (of_series or _pattern(*image), _pattern(*mask))
    stated = [f"--set data.{name}='{pattern}'" for name, pattern in zip(("images", "masks"), patterns, strict=True)]
    return f"state where images and masks are, for example {' '.join(stated)}"


def _paired(
    image: tuple[str, str], mask: tuple[str, str], groups: Mapping[tuple[str, str], Sequence[str]]
) -> tuple[str, str] | None:
    """Patterns that pair all files of two folders, if what their names have in common leaves the same texts."""
    stars = [_star([Path(name).name.removesuffix(key[1]) for name in groups.get(key, ())]) for key in (image, mask)]
    if not stars[0][1] or stars[0][1] != stars[1][1]:
        return None
    one, other = (_pattern(where, end, star) for (where, end), (star, _) in zip((image, mask), stars, strict=True))
    return one, other


def _star(names: Sequence[str]) -> tuple[str, frozenset[str]]:
    """A name with * for the part in which the names differ, and what the * stands for."""
    start = _common_start(names)
    end = _common_start([name[len(start) :][::-1] for name in names])[::-1]
    return f"{start}*{end}", frozenset(name[len(start) : len(name) - len(end)] for name in names)


def _common_start(names: Sequence[str]) -> str:
    same = takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    return "".join(letters[0] for letters in same)


def _pattern(where: str, end: str, star: str = "*") -> str:
    name = f"{star}{end if end.startswith('.') else ''}"
    return f"{where}/{name}" if where else name
