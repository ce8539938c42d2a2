"""New images without masks: which files are modalities of one case."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fedce.base.errors import DataError
from fedce.base.tables import DataConfig
from fedce.data.formats import File
from fedce.data.patterns import SUFFIX

Stem = tuple[File, Path]
"""A file, and the path of its mask without an ending."""


def by_case(stems: Sequence[Stem], data: DataConfig, n_channels: int) -> list[Stem]:
    """The cases of a network whose input is this number of modalities; a case's file has the others beside it.

    Files are put together by the names in data.images if these are a table, otherwise by nnU-Net's suffix (case_0000,
    case_0001). Without such names all files of a folder are one case, in the order of their names, if the folder has
    one file for each modality. A file that holds all modalities is a case of its own.
    """
    if n_channels == 1 or all(_is_whole(file, n_channels) for file, _ in stems):
        return list(stems)
    grouped: dict[Path, dict[str, Stem]] = {}
    for file, stem in stems:
        name, modality = _parts(file, stem, data)
        own = grouped.setdefault(stem.with_name(name), {})
        if modality and modality in own:
            raise DataError(f"{own[modality][0].path} and {file.path} are one modality of one case; leave out one")
        own[modality] = (file, stem)
    # The order of the training is that of the table, or that of the names.
    order = list(data.images) if isinstance(data.images, dict) else sorted(next(iter(grouped.values())))
    few = next((own for own in grouped.values() if set(own) != set(order) or len(own) != n_channels), None)
    if few is None:
        return [_joined(own, order, stem) for stem, own in grouped.items()]
    if not isinstance(data.images, dict) and (folders := _folders(stems, n_channels)):
        return folders
    raise DataError(_misfit(few, data, n_channels))


def _misfit(given: Mapping[str, Stem], data: DataConfig, n_channels: int) -> str:
    patterns = data.images.values() if isinstance(data.images, dict) else ("case_0000", "case_0001")
    named = f" ({', '.join(sorted(given))})" if all(given) else ""
    return (
        f"{next(iter(given.values()))[0].path}: the network takes {n_channels} modalities, and {len(given)} of them"
        f"{named} {'was' if len(given) == 1 else 'were'} given for this case; give a file for each, "
        f"named as in training (such as {' and '.join(patterns)})"
    )


def _is_whole(file: File, n_channels: int) -> bool:
    """Whether one file has all modalities, by its header."""
    if not file.is_volume or file.format.n_channels is None:
        return False
    return file.format.n_channels(file.path) == n_channels


def _parts(file: File, stem: Path, data: DataConfig) -> tuple[str, str]:
    """The case and the modality in a file's name; the modality is "" if the name does not say it."""
    if not isinstance(data.images, dict):
        match = SUFFIX.fullmatch(stem.name)
        return (match[1], match[2]) if match else (stem.name, "")
    for modality, pattern in data.images.items():
        # New images lie elsewhere than those of the training: only the name counts, or the folder if all names are one.
        expression = re.escape(pattern.rpartition("/")[2]).replace(r"\*", "(.+)")
        if match := re.fullmatch(expression, file.name) or re.fullmatch(expression, stem.name):
            return "_".join(match.groups()) or file.path.resolve().parent.name, modality
    return stem.name, ""


def _joined(own: Mapping[str, Stem], order: Sequence[str], stem: Path) -> Stem:
    first, *others = (own[name][0] for name in order)
    return replace(first, others=tuple(others)), stem


def _folders(stems: Sequence[Stem], n_channels: int) -> list[Stem]:
    """A case for each folder, named by it, if every folder has a file for each modality; otherwise nothing."""
    inside: dict[Path, list[Stem]] = {}
    for file, stem in sorted(stems, key=lambda one: one[0].path):
        inside.setdefault(file.path.parent, []).append((file, stem))
    if any(len(own) != n_channels for own in inside.values()):
        return []
    return [
        _joined({file.name: (file, stem) for file, stem in own}, [file.name for file, _ in own], _named_by(folder, own))
        for folder, own in inside.items()
    ]


def _named_by(folder: Path, own: Sequence[Stem]) -> Path:
    return own[0][1].with_name(folder.resolve().name)
