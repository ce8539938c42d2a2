"""DICOM segmentation objects (SEG), read as masks and written for a series, by highdicom (the extra dicom-seg)."""

import re
import warnings
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedce.base.errors import DataError
from fedce.base.words import install_command
from fedce.data.dicom import is_slice

SOP_CLASSES = ("1.2.840.10008.5.1.4.1.1.66.4", "1.2.840.10008.5.1.4.1.1.66.7")
"""Segmentation Storage, and Label Map Segmentation Storage."""
KIND = re.compile(rb"\x02\x00\x02\x00UI..([0-9.]+)", re.DOTALL)
"""The element of a file's head that says what the file holds (0002,0002)."""
MARK_AT = 128
OFF_GRID = 0.1
"""Part of a voxel; a frame that lies further from the image's grid belongs to another image."""
NEEDED = f"DICOM SEG needs highdicom: {install_command('dicom-seg')}"
SEG_ENDING = ".dcm"
LONGEST_LABEL = 64
LARGEST_NUMBER = 255
"""Of a segment: masks hold bytes."""
SERIES_NUMBER = 1000
"""Series numbers have no meaning across devices; the unique identifier tells series apart."""
OTHER_IMAGE = "segmentations belong to another image"


def is_seg(path: Path) -> bool:
    """Whether the file is a DICOM segmentation, by its header."""
    try:
        with path.open("rb") as file:
            head = file.read(1024)
    except OSError:
        return False
    kind = KIND.search(head)
    return head[MARK_AT : MARK_AT + 4] == b"DICM" and kind is not None and kind[1].decode() in SOP_CLASSES


def holds_seg(folder: Path) -> bool:
    """Whether a folder holds one DICOM segmentation and nothing else."""
    if not folder.is_dir():
        return False
    inside = _seen_files(folder)
    return len(inside) == 1 and inside[0].is_file() and is_seg(inside[0])


def _seen_files(folder: Path) -> list[Path]:
    """What is in a folder, without the hidden files of file managers."""
    return [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]


def read_alone(path: Path) -> Any:
    """Refuse a DICOM file as an image."""
    raise DataError(
        f"{path} is a single DICOM file, which is read only as a mask (SEG); give each series a folder of its own",
        "single DICOM files are not read as images",
    )


def read_on(path: Path, image: Any) -> Any:
    """The segments on the grid of the image that they were drawn on; a voxel's value is its segment's number.

    Where segments overlap, the one with the largest number counts.
    """
    import SimpleITK as sitk

    file = path if path.is_file() else next(iter(_seen_files(path)), path)
    if not is_seg(file):
        raise DataError(f"{file} is not a DICOM segmentation (SEG); RTSTRUCT is not read, convert it (docs/data.md)")
    with _without_warnings():
        dataset = _highdicom().seg.segread(file)
    mask = np.zeros(image.GetSize()[::-1], np.uint8)
    frames = dataset.pixel_array if dataset.pixel_array.ndim == 3 else dataset.pixel_array[None]
    if frames.shape[1:] != mask.shape[1:]:
        sizes = [f"{shape[2]}x{shape[1]}" for shape in (frames.shape, mask.shape)]
        raise DataError(f"{file} has frames of {sizes[0]}, its image {sizes[1]}", OTHER_IMAGE)
    is_labelmap = str(dataset.SegmentationType) == "LABELMAP"
    if is_labelmap and frames.max(initial=0) > LARGEST_NUMBER:
        raise DataError(f"{file} has the segment {frames.max()}; at most {LARGEST_NUMBER} are read")
    # In a fractional SEG a voxel belongs to a segment where at least half of it does.
    least = int(getattr(dataset, "MaximumFractionalValue", 1)) / 2
    shared = _by_name(dataset.SharedFunctionalGroupsSequence[0])
    for frame, about in zip(frames, dataset.PerFrameFunctionalGroupsSequence, strict=True):
        # A file with one segment says its number only once, for all frames.
        groups = ChainMap(_by_name(about), shared)
        number = 1 if is_labelmap else int(groups["SegmentIdentificationSequence"].ReferencedSegmentNumber)
        if number > LARGEST_NUMBER:
            raise DataError(f"{file} has the segment {number}; at most {LARGEST_NUMBER} are read")
        height = _height(groups["PlanePositionSequence"].ImagePositionPatient, image, file)
        values = frame.astype(np.uint8) if is_labelmap else np.where(frame >= least, number, 0).astype(np.uint8)
        mask[height] = np.maximum(mask[height], values)
    found = sitk.GetImageFromArray(mask)
    found.CopyInformation(image)
    return found


def _by_name(groups: Any) -> dict[str, Any]:
    """The first item of each functional group by its name."""
    return {element.keyword: element.value[0] for element in groups if element.VR == "SQ" and element.value}


def _height(position: Sequence[float], image: Any, file: Path) -> int:
    """The slice of the image at which a frame lies."""
    index = np.asarray(image.TransformPhysicalPointToContinuousIndex([float(part) for part in position]))
    column, row, height = np.rint(index).astype(int).tolist()
    off = float(np.abs(index - np.rint(index)).max())
    if (column, row) != (0, 0) or not 0 <= height < image.GetSize()[2] or off > OFF_GRID:
        raise DataError(
            f"{file} has a frame at {list(position)} mm, where its image has no slice; expected its own image",
            OTHER_IMAGE,
        )
    return int(height)


def seg_bytes(masks: Mapping[str, Any], series: Path) -> bytes:
    """A SEG file for a DICOM series: class to its mask, a SimpleITK image of 0 and 1 on the grid of the series.

    Class number i becomes segment i, counted from 1. The patient's data in the header are those of the series.
    """
    import SimpleITK as sitk

    values = np.stack([sitk.GetArrayFromImage(mask) > 0 for mask in masks.values()], axis=-1).astype(np.uint8)
    hd = _highdicom()
    try:
        with _without_warnings():
            return _written(hd, list(masks), values, series)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{series}: no SEG can be written for this series ({error}); leave out --to seg") from None


def _written(hd: Any, names: Sequence[str], values: NDArray[np.uint8], series: Path) -> bytes:
    from pydicom.sr.coding import Code
    from pydicom.uid import generate_uid

    by = hd.AlgorithmIdentificationSequence(
        name="fedce", family=Code("123109", "DCM", "Artificial Intelligence"), version=version("fedce")
    )
    # The names of the classes are a user's own words; the codes therefore say no more than that it is tissue.
    kinds = [Code("91723000", "SCT", "Anatomical Structure"), Code("85756007", "SCT", "Tissue")]
    made = hd.seg.Segmentation(
        source_images=_slices(series),
        pixel_array=values,
        segmentation_type="BINARY",
        omit_empty_frames=bool(values.any()),  # A file without any frame is not allowed.
        segment_descriptions=[
            hd.seg.SegmentDescription(i, name[:LONGEST_LABEL], *kinds, "AUTOMATIC", by)
            for i, name in enumerate(names, start=1)
        ],
        series_instance_uid=generate_uid(),
        series_number=SERIES_NUMBER,
        sop_instance_uid=generate_uid(),
        instance_number=1,
        manufacturer="fedce",
        manufacturer_model_name="fedce predict",
        software_versions=version("fedce"),
        device_serial_number="0",
    )
    buffer = BytesIO()
    made.save_as(buffer)
    return buffer.getvalue()


def _slices(series: Path) -> list[Any]:
    """The datasets of a series, in the order of its slices as dicom.py reads them."""
    from pydicom import dcmread

    read = [dcmread(path) for path in sorted(series.iterdir()) if is_slice(path)]
    row, column = np.split(np.array(read[0].ImageOrientationPatient, float), 2)
    normal = np.cross(row, column)
    return sorted(read, key=lambda one: float(np.dot(np.array(one.ImagePositionPatient, float), normal)))


@contextmanager
def _without_warnings() -> Iterator[None]:
    """pydicom warns about every value that breaks the standard a little, as values of many scanners do."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _highdicom() -> Any:
    try:
        import highdicom
    except ImportError:
        raise DataError(NEEDED) from None
    return highdicom
