"""DICOM segmentation objects: frames of several segments in one file, each with its position.

SimpleITK decodes the frames, but not the nested tables with their positions; the few that are needed are read here.
"""

import struct
from pathlib import Path
from typing import Any

import numpy as np

from fedce.base.errors import DataError

Elements = dict[int, Any]
"""Bytes of an element, or the items of a sequence, by tag."""

EXPLICIT_LITTLE_ENDIAN = "1.2.840.10008.1.2.1"
TRANSFER_SYNTAX = 0x0002_0010
SERIES_UID = 0x0020_000E
REFERENCED_SERIES = 0x0008_1115
FRAMES = 0x5200_9230
PLANE_POSITION = 0x0020_9113
POSITION = 0x0020_0032
ITEM_END, SEQUENCE_END = 0xFFFE_E00D, 0xFFFE_E0DD
UNDEFINED = 0xFFFF_FFFF
WITH_LONG_LENGTH = {b"OB", b"OD", b"OF", b"OL", b"OV", b"OW", b"SQ", b"SV", b"UC", b"UN", b"UR", b"UT", b"UV"}
OFF_GRID = 0.1
"""Part of a voxel; a frame that lies further from the image's grid belongs to another image."""


def referenced_series(path: Path) -> str:
    """The series that the segments were drawn on."""
    return _text(_read(path)[REFERENCED_SERIES][0][SERIES_UID])


def union_of_segments(image: Any, segmentation: Any, path: Path) -> Any:
    """All segments together, 0 or 1, on the grid of the image that they were drawn on."""
    import SimpleITK as sitk

    frames = sitk.GetArrayViewFromImage(segmentation)
    mask = np.zeros(image.GetSize()[::-1], np.uint8)
    if frames.shape[1:] != mask.shape[1:]:
        raise DataError(f"{path} has frames of {frames.shape[2]}x{frames.shape[1]}, its image {_slice_size(image)}")
    for frame, about in zip(frames, _read(path)[FRAMES], strict=True):
        position = [float(part) for part in _text(about[PLANE_POSITION][0][POSITION]).split("\\")]
        index = np.asarray(image.TransformPhysicalPointToContinuousIndex(position))
        column, row, height = np.rint(index).astype(int)
        if (column, row) != (0, 0) or not 0 <= height < len(mask) or np.abs(index - np.rint(index)).max() > OFF_GRID:
            raise DataError(
                f"{path} has a frame at {position} mm, where its image has no slice; expected its own image"
            )
        mask[height] |= frame > 0
    union = sitk.GetImageFromArray(mask)
    union.CopyInformation(image)
    return union


def _read(path: Path) -> Elements:
    content = path.read_bytes()
    try:
        elements, _ = _elements(content, 132, len(content))
        syntax = _text(elements[TRANSFER_SYNTAX])
        if syntax != EXPLICIT_LITTLE_ENDIAN:
            raise DataError(f"{path} is stored as {syntax}; only explicit little-endian segmentations are read")
        if not elements[FRAMES] or not elements[REFERENCED_SERIES]:
            raise ValueError
    except (struct.error, KeyError, IndexError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} is not a complete DICOM segmentation; download it again, or move it away") from None
    return elements


def _elements(content: bytes, at: int, stop: int) -> tuple[Elements, int]:
    """The elements up to `stop` or to the end of the item, and the place after them."""
    elements: Elements = {}
    while at < stop:
        group, number, kind = struct.unpack_from("<HH2s", content, at)
        tag = group << 16 | number
        if tag == ITEM_END:
            return elements, at + 8
        is_long = kind in WITH_LONG_LENGTH
        (length,) = struct.unpack_from("<I" if is_long else "<H", content, at + (8 if is_long else 6))
        at += 12 if is_long else 8
        if kind == b"SQ":
            elements[tag], at = _items(content, at, stop if length == UNDEFINED else at + length)
        else:
            elements[tag] = content[at : at + length]
            at += length
    return elements, at


def _items(content: bytes, at: int, stop: int) -> tuple[list[Elements], int]:
    items: list[Elements] = []
    while at < stop:
        group, number, length = struct.unpack_from("<HHI", content, at)
        at += 8
        if group << 16 | number == SEQUENCE_END:
            break
        item, at = _elements(content, at, stop if length == UNDEFINED else at + length)
        items.append(item)
    return items, at


def _text(value: bytes) -> str:
    return value.decode("ascii").strip("\0 ")


def _slice_size(image: Any) -> str:
    width, height, _ = image.GetSize()
    return f"{width}x{height}"
