"""A public data set as it is published: where it comes from, and which files make a case."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedce.data.dicom import ENDINGS

Files = tuple[Path, ...]
"""The files of one image or mask: one, or the slices of a DICOM series."""
Role = Mapping[str, list[Files]]
"""For each case, the files that were found for it; more than one is ambiguous."""
Note = Callable[[str], None]
"""Receives remarks about a case that is being converted."""
Outputs = dict[str, bytes]
"""Contents of the files of a case, by their path below the site's folder."""


@dataclass(frozen=True)
class Case:
    """One patient's files by role: image, mask, disc, expert 3, ..."""

    name: str
    files: Mapping[str, Files]

    @property
    def all_files(self) -> list[Path]:
        """All files of the case; with a .mhd header, also the file that holds its voxels."""
        named = [path for files in self.files.values() for path in files]
        voxels = [path.with_suffix(".raw") for path in named if path.suffix == ".mhd"]
        return named + [path for path in voxels if path.exists()]


@dataclass(frozen=True)
class Found:
    """The files in a source's folder."""

    cases: tuple[Case, ...]
    unmatched: tuple[str, ...] = ()
    """Files without their counterpart, one line each; they are left out."""
    problems: tuple[str, ...] = ()
    """Ambiguous file names, one line each; nothing is converted before they are resolved."""
    published: int | None = None
    """Number of cases of this edition of the source, if it is not the usual edition."""


@dataclass(frozen=True)
class Source:
    """One published data set, which becomes one site."""

    site: str
    title: str
    folder: str
    """The source's folder, below the user's folder."""
    url: str
    licence: str
    download: str
    layout: str
    masks: str
    """How the published masks are converted."""
    published: int
    """Number of cases with masks, as the source states for its usual edition."""
    find: Callable[[Path], Found]
    convert: Callable[[Case, Note], Outputs]
    defects: Mapping[str, str]
    """Published cases that are known to be broken, and why; they are left out."""


def files_below(folder: Path, *suffixes: str) -> Iterator[Path]:
    """Files with one of these suffixes at any depth, sorted; hidden ones (._name in Mac archives) are left out."""
    for path in sorted(folder.rglob("*")):
        if path.name.lower().endswith(suffixes) and not path.name.startswith(".") and path.is_file():
            yield path


def by_case(paths: Iterable[Path], name: str, numbered_by_folder: bool = False) -> Role:
    """Files whose whole name matches the pattern `name`, by case: the pattern's first group, or folder and group."""
    found: dict[str, list[Files]] = {}
    for path in paths:
        if match := re.fullmatch(name, path.name):
            case = f"{path.parent.name}_{match[1]}" if numbered_by_folder else match[1]
            found.setdefault(case, []).append((path,))
    return found


def series_by_case(folders: Iterable[Path], case: Callable[[Path], str]) -> Role:
    """Folders that hold the slices of one DICOM series each."""
    found: dict[str, list[Files]] = {}
    for folder in folders:
        if slices := tuple(sorted(path for path in folder.glob("[!.]*") if is_dicom(path) and path.is_file())):
            found.setdefault(case(folder), []).append(slices)
    return found


def is_dicom(path: Path) -> bool:
    return path.suffix.lower() in (*ENDINGS, "")


def pair(root: Path, roles: Mapping[str, Role]) -> Found:
    """Cases that have exactly one file or series in every role. Only names decide, never the order of files."""
    cases, unmatched, problems = [], [], []
    for name in sorted(set().union(*roles.values())):
        found = {role: candidates.get(name, []) for role, candidates in roles.items()}
        if ambiguous := [role for role, files in found.items() if len(files) > 1]:
            places = " and ".join(place(files, root) for files in found[ambiguous[0]])
            problems.append(
                f"case {name!r} has more than one {ambiguous[0]}: {places}; keep the one that belongs to it"
            )
        elif missing := [role for role, files in found.items() if not files]:
            there = next(files[0] for files in found.values() if files)
            unmatched.append(f"{place(there, root)}: no {' and no '.join(missing)} of case {name!r}")
        else:
            cases.append(Case(name, {role: files[0] for role, files in found.items()}))
    return Found(tuple(cases), tuple(unmatched), tuple(problems))


def place(files: Files, root: Path) -> str:
    """The file, or the folder of a series, as seen from `root`."""
    return str((files[0] if len(files) == 1 else files[0].parent).relative_to(root))
