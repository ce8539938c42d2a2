"""dataset.json of nnU-Net and of the Medical Segmentation Decathlon: labels and the names of the channels."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedce.base.errors import DataError

FILE = "dataset.json"
NOT_CLASSES = ("background", "ignore")


@dataclass(frozen=True)
class Described:
    """What a data set says of itself."""

    classes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    channels: tuple[str, ...] = ()


def described(folder: Path) -> Described:
    """What the folder's dataset.json says; nothing without one."""
    path = folder / FILE
    if not path.is_file():
        return Described()
    try:
        content = json.loads(path.read_text("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON ({error}); correct it, or move it away") from None
    if not isinstance(content, dict):
        raise DataError(f"{path} holds no table; correct it, or move it away")
    return described_by(content, path)


def described_by(content: Mapping[str, Any], path: Path) -> Described:
    """What the content of a dataset.json or of a datalist says."""
    names = content.get("channel_names") or content.get("modality") or {}
    return Described(_classes(content.get("labels") or {}, path), _in_order(names, path))


def _classes(labels: Any, path: Path) -> dict[str, tuple[int, ...]]:
    """Class to values, by nnU-Net's {"PZ": 1, "whole": [1, 2]} or the Decathlon's {"1": "PZ"}."""
    if not isinstance(labels, dict):
        raise DataError(f'{path}: "labels" should be a table such as {{"background": 0, "PZ": 1}}')
    found: dict[str, tuple[int, ...]] = {}
    for key, value in labels.items():
        by_number = isinstance(value, str)
        name, values = (value, key) if by_number else (key, value)
        try:
            own = tuple(int(one) for one in (values if isinstance(values, list) else [values]))
        except (TypeError, ValueError):
            own = ()
        if not own or not all(0 <= one <= 255 for one in own):
            raise DataError(f'{path}: "labels" has {key!r}: {value!r}; expected whole numbers from 0 to 255')
        if str(name).lower() not in NOT_CLASSES and any(own):
            found[str(name)] = tuple(one for one in own if one)
    return found


def _in_order(names: Any, path: Path) -> tuple[str, ...]:
    """Names of the channels by their number: {"0": "T2", "1": "ADC"}; a list is taken as it is."""
    if isinstance(names, list):
        return tuple(map(str, names))
    if not isinstance(names, dict) or not all(str(key).isdigit() for key in names):
        raise DataError(f'{path}: expected "channel_names" (or "modality") such as {{"0": "T2"}}')
    return tuple(str(names[key]) for key in sorted(names, key=lambda key: int(str(key))))
