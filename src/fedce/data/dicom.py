"""A DICOM series: a folder whose files are the slices of one volume."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedce.base.errors import DataError
from fedce.data.volumes import check_shape, itk_errors, read_header

ENDINGS = (".dcm", ".ima")
"""Endings of DICOM slices; a slice may also have no ending."""


def holds_series(folder: Path) -> bool:
    """Whether the folder may be a DICOM series."""
    return folder.is_dir() and any(is_slice(child) for child in folder.iterdir())


def is_slice(path: Path) -> bool:
    """Whether the file is DICOM by its ending or by the mark at byte 128: many archives name files by their UID."""
    if path.name.startswith(".") or not path.is_file():
        return False
    if path.suffix.lower() in ENDINGS:
        return True
    try:
        with path.open("rb") as file:
            return file.read(132)[128:] == b"DICM"
    except OSError:
        return False


def read_series(folder: Path) -> Any:
    import SimpleITK as sitk

    with itk_errors(folder):
        series = sitk.ImageSeriesReader.GetGDCMSeriesIDs(str(folder))
        if not series:
            raise DataError(
                f"{folder} holds no DICOM series; a folder stands for one volume, so give images as {folder}/*"
            )
        if len(series) > 1:
            raise DataError(f"{folder} holds {len(series)} DICOM series, expected one; give each a folder of its own")
        names = sitk.ImageSeriesReader.GetGDCMSeriesFileNames(str(folder), series[0])
        first = read_header(Path(names[0]))
        check_shape((*first.GetSize()[:2], len(names) * first.GetSize()[-1]), folder)
        return read_slices([Path(name) for name in names]) if len(names) > 1 else first.Execute()


def read_slices(files: Sequence[Path]) -> Any:
    """A volume of DICOM slices in the order of their positions; a gap or two slices at one position are refused."""
    import SimpleITK as sitk

    folder = files[0].parent
    with itk_errors(folder):
        headers = [read_header(path) for path in files]
        if len({(header.GetSize(), *np.round(header.GetDirection(), 3)) for header in headers}) > 1:
            raise DataError(f"{folder} holds slices of several sizes or directions; expected one series")
        normal = np.asarray(headers[0].GetDirection()).reshape(3, 3)[:, 2]
        heights = np.array([np.dot(header.GetOrigin(), normal) for header in headers])
        order = np.argsort(heights)
        gaps = np.diff(heights[order])
        if gaps.min() <= 0.5 * np.median(gaps) or gaps.max() > 1.5 * np.median(gaps):
            raise DataError(
                f"{folder} is not a complete series: its slices are {np.median(gaps):.1f} mm apart (median), "
                f"but some {gaps.min():.1f} mm and some {gaps.max():.1f} mm; download it again, or move it away"
            )
        reader = sitk.ImageSeriesReader()
        reader.SetFileNames([str(files[i]) for i in order])
        return reader.Execute()
