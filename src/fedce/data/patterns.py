"""Files of a folder by patterns: what the stars stand for pairs an image with its mask."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedce.data.formats import Format, ending

SUFFIX = re.compile(r"(.+)_(\d{4})")
"""nnU-Net's names of modalities: case_0000, case_0001, ..."""
Doubles = list[tuple[Path, Path]]


@dataclass(frozen=True)
class Match:
    """Images and masks of a folder by one layout, by the name that they share."""

    layout: str
    images: Mapping[str, Mapping[str, Path]]
    """Name to modality to file."""
    masks: Mapping[str, Path]
    doubles: Sequence[tuple[Path, Path]] = ()
    cases: Mapping[str, str] = field(default_factory=dict)
    """Name to case, if the layout says which files are of one patient."""
    stated: tuple[str, ...] = ()
    """The modalities in the order that the experiment states."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """Name to train, validation or test, if the layout says it."""

    @property
    def both(self) -> list[str]:
        return sorted(self.images.keys() & self.masks.keys())

    @property
    def modalities(self) -> tuple[str, ...]:
        """Modalities in the order of the channels: as stated, or sorted by name."""
        return self.stated or tuple(sorted({name for key in self.both for name in self.images[key]}))

    @property
    def complete(self) -> list[str]:
        """Names that have a mask and every modality."""
        return [key for key in self.both if all(name in self.images[key] for name in self.modalities)]

    @property
    def files(self) -> set[Path]:
        return {*self.masks.values(), *(path for own in self.images.values() for path in own.values())}

    def problems(self, site: str, titles: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Line and cause of each file without a counterpart, of each missing modality, and of each name used twice.

        `titles` are the names that the data set gives to modalities with numbers.
        """
        for key in sorted(self.images.keys() - self.masks.keys()):
            line = f"site {site!r}: image {next(iter(self.images[key].values())).name!r} has no mask of the same name"
            yield line, "images have no mask of the same name"
        for key in sorted(self.masks.keys() - self.images.keys()):
            line = f"site {site!r}: mask {self.masks[key].name!r} has no image of the same name"
            yield line, "masks have no image of the same name"
        for key in self.both:
            for name in self.modalities:
                if name not in self.images[key]:
                    title = f" ({titles[name]})" if name in titles else ""
                    line = f"site {site!r}: case {key!r} has no modality {name!r}{title}; add its file, or leave out "
                    yield line + "the case; data.images states which modalities are used", "cases lack a modality"
        for first, second in self.doubles:
            line = f"site {site!r}: {first.name!r} and {second.name!r} have the same name; remove or rename one"
            yield line, "files have the name of another"


def by_patterns(
    folder: Path, layout: str, images: str | Mapping[str, str], masks: str, searched: Sequence[Format]
) -> Match:
    """Images and masks by two patterns, or by a pattern for each modality."""
    doubles: Doubles = []
    mask_files = _by_key(folder, masks, searched, doubles, frozenset())
    taken = frozenset(mask_files.values())
    if isinstance(images, str):
        found = _by_key(folder, images, searched, doubles, taken)
        return Match(layout, _with_suffixes(found, mask_files), mask_files, doubles)
    by_name: dict[str, dict[str, Path]] = {}
    for modality, pattern in images.items():
        for key, path in _by_key(folder, pattern, searched, doubles, taken).items():
            by_name.setdefault(key, {})[modality] = path
    return Match(layout, by_name, mask_files, doubles, stated=tuple(images))


def _with_suffixes(images: Mapping[str, Path], masks: Mapping[str, Path]) -> dict[str, dict[str, Path]]:
    """Name to modality to file; case_0000 and case_0001 are two modalities if the mask is called case."""
    found: dict[str, dict[str, Path]] = {}
    for key, path in images.items():
        match = SUFFIX.fullmatch(key)
        name, modality = match.groups() if match and key not in masks and match[1] in masks else (key, "")
        found.setdefault(name, {})[modality] = path
    return found


def _by_key(
    folder: Path, pattern: str, searched: Sequence[Format], doubles: Doubles, taken: frozenset[Path]
) -> dict[str, Path]:
    """Files (or folders of DICOM series) by the parts of their path that the pattern's stars stand for."""
    expression = re.compile(re.escape(pattern).replace(r"\*", "([^/]+)"))
    has_ending = ending(Path(pattern), searched) is not None
    found: dict[str, Path] = {}
    for path in sorted(folder.glob("/".join("*" for _ in pattern.split("/")))):
        whole = path.relative_to(folder).as_posix()
        end = (ending(path, searched) or "") if path.is_file() else ""
        if path in taken or not is_readable(path, searched) or any(part.startswith(".") for part in whole.split("/")):
            continue
        if match := expression.fullmatch(whole if has_ending else whole[: len(whole) - len(end)]):
            key = "/".join(match.groups())
            if key in found:
                doubles.append((found[key], path))
            found.setdefault(key, path)
    return found


def is_readable(path: Path, searched: Sequence[Format]) -> bool:
    """Whether the path is a file of a known format, or the folder of a series."""
    if path.is_file():
        return ending(path, searched) is not None
    return any(one.is_folder and one.is_folder(path) for one in searched)
