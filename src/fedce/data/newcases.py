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
    """The cases of a network with this number of input channels; a case's file has the other modalities beside it.

    Files are put together by nnU-Net's suffix (case_0000, case_0001), or by the names in data.images if these are a
    table. Otherwise all files of a folder are one case, in the order of their names, if the folder has one file for
    each modality. A file that holds all modalities, and an image in colour, is a case of its own.
    """
    if n_channels == 1 or all(_is_whole(file, n_channels) for file, _ in stems):
        return list(stems)
    grouped: dict[Path, dict[str, Stem]] = {}
    for file, stem in stems:
        name, modality = _parts(file, stem, data)
        grouped.setdefault(stem.with_name(name), {})[modality] = (file, stem)
    if all(len(own) == n_channels for own in grouped.values()):
        order = list(data.images) if isinstance(data.images, dict) else None
        return [_joined(own, order, stem) for stem, own in grouped.items()]
    if folders := _folders(stems, n_channels):
        return folders
    few = next(own for own in grouped.values() if len(own) != n_channels)
    file = next(iter(few.values()))[0]
    raise DataError(
        f"{file.path}: the network takes {n_channels} modalities, and {len(few)} of them "
        f"{'was' if len(few) == 1 else 'were'} given for this case; give a file for each, "
        "named as in training (such as case_0000 and case_0001)"
    )


def _is_whole(file: File, n_channels: int) -> bool:
    """Whether one file has all channels, by its header."""
    if not file.is_volume:
        return n_channels == 3 and not SUFFIX.fullmatch(file.path.stem)
    return file.format.n_channels is not None and file.format.n_channels(file.path) == n_channels


def _parts(file: File, stem: Path, data: DataConfig) -> tuple[str, str]:
    """The case and the modality in a file's name; the modality is "" if the name does not say it."""
    if isinstance(data.images, dict):
        for modality, pattern in data.images.items():
            # New images lie elsewhere than those of the training: only the name counts.
            expression = re.escape(pattern.rpartition("/")[2]).replace(r"\*", "(.+)")
            if match := re.fullmatch(expression, file.name) or re.fullmatch(expression, stem.name):
                return "_".join(match.groups()) or stem.name, modality
    match = SUFFIX.fullmatch(stem.name)
    return (match[1], match[2]) if match else (stem.name, "")


def _joined(own: Mapping[str, Stem], order: Sequence[str] | None, stem: Path) -> Stem:
    first, *others = (own[name][0] for name in order or sorted(own))
    return replace(first, others=tuple(others)), stem


def _folders(stems: Sequence[Stem], n_channels: int) -> list[Stem]:
    """A case for each folder, named by it, if every folder has a file for each modality; otherwise nothing."""
    inside: dict[Path, list[Stem]] = {}
    for file, stem in sorted(stems, key=lambda one: one[0].path):
        inside.setdefault(file.path.parent, []).append((file, stem))
    if any(len(own) != n_channels for own in inside.values()):
        return []
    return [
        _joined({file.name: (file, stem) for file, stem in own}, None, own[0][1].with_name(folder.name))
        for folder, own in inside.items()
    ]
