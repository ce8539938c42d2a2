"""Volumes (NIfTI, MetaImage, NRRD, DICOM series) as stacks of slices in the patient's own orientation."""

import gzip
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedce.base.errors import DataError

Plane = Literal["axial", "coronal", "sagittal"]
ENDINGS = (".nii.gz", ".nii", ".mha", ".mhd", ".nrrd")
NIFTI = (".nii", ".nii.gz")
UNREADABLE = "volumes can't be read"
MAX_VOXELS = 512_000_000
# NIfTI's axes point to the patient's right, front and head; DICOM's, and ITK's, to left, back and head.
TO_RAS = np.diag([-1.0, -1.0, 1.0])
TOLERANCE_MM = 0.1
"""A mask that lies further than this from its image belongs to another."""
# How slices are looked at: the axes of a (superior, posterior, left) array as slices, rows and columns. Head up where
# rows run along the body; the patient's right is on the picture's left, as radiologists expect.
AXES = {"axial": (0, 1, 2), "coronal": (1, 0, 2), "sagittal": (2, 0, 1)}


@dataclass(frozen=True)
class Volume:
    """Slices of one plane."""

    values: NDArray[Any]
    """(slices, rows, columns)."""
    spacing: tuple[float, float, float]
    """Millimetres between slices, rows and columns."""


def read_pair(image: Path, mask: Path, plane: Plane) -> tuple[Volume, Volume]:
    """An image and its mask on the same grid, turned to the same plane."""
    read_image, read_mask = read_itk(image), read_itk(mask)
    _check_same_place(read_image, read_mask, image, mask)
    # A 2D file, as a slice that was saved alone, has no third direction to turn.
    return sliced(read_image, plane), sliced(read_mask, plane)


def sliced(image: Any, plane: Plane) -> Volume:
    import SimpleITK as sitk

    if image.GetDimension() == 2:
        rows, columns = image.GetSpacing()[::-1]
        return Volume(sitk.GetArrayFromImage(image)[None], (1.0, rows, columns))
    turned = sitk.DICOMOrient(image, "LPS")
    axes = AXES[plane]
    values = sitk.GetArrayFromImage(turned).transpose(axes)
    if plane != "axial":
        values = values[:, ::-1]
    spacing = turned.GetSpacing()[::-1]
    return Volume(values, (spacing[axes[0]], spacing[axes[1]], spacing[axes[2]]))


def unsliced(values: NDArray[Any], like: Any, plane: Plane) -> Any:
    """The inverse of `sliced`: an image of these values with the place and orientation of another."""
    import SimpleITK as sitk

    if like.GetDimension() == 2:
        image = sitk.GetImageFromArray(values[0])
    else:
        upright = values if plane == "axial" else values[:, ::-1]
        image = sitk.GetImageFromArray(np.ascontiguousarray(upright.transpose(np.argsort(AXES[plane]))))
        image.CopyInformation(sitk.DICOMOrient(like, "LPS"))
        orientation = sitk.DICOMOrientImageFilter.GetOrientationFromDirectionCosines(like.GetDirection())
        image = sitk.DICOMOrient(image, orientation)
    image.CopyInformation(like)
    return image


def nifti_bytes(image: Any) -> bytes:
    """A compressed NIfTI file; the same for the same image, as gzip is not told the time."""
    import nibabel
    import SimpleITK as sitk

    values = sitk.GetArrayFromImage(image).T
    affine = np.eye(4)
    if values.ndim == 3:
        direction = np.array(image.GetDirection()).reshape(3, 3)
        affine[:3, :3] = TO_RAS @ direction * np.array(image.GetSpacing())
        affine[:3, 3] = TO_RAS @ np.array(image.GetOrigin())
    if values.dtype.itemsize == 8 and values.dtype.kind in "iu":  # NIfTI readers refuse such wide whole numbers.
        values = values.astype(np.int32 if np.abs(values).max(initial=0) < 2**31 else np.float64)
    content: bytes = nibabel.Nifti1Image(values, affine).to_bytes()
    return gzip.compress(content, mtime=0)


def read_itk(path: Path, channel: int | None = None) -> Any:
    """A SimpleITK image: bounded, finite, one value a voxel; of several volumes in a NIfTI file one, if asked for."""
    import SimpleITK as sitk

    with _itk_errors(path):
        if path.is_dir():
            image = _series(path)
        else:
            image = _nifti(path, channel) if path.name.lower().endswith(NIFTI) else _file(path)
    if image.GetNumberOfComponentsPerPixel() != 1:
        n = image.GetNumberOfComponentsPerPixel()
        raise DataError(f"{path} has {n} values a voxel, expected 1; save one channel as a volume of its own")
    values = sitk.GetArrayViewFromImage(image)
    if not np.isfinite(values).all():
        raise DataError(
            f"{path} holds {int((~np.isfinite(values)).sum())} values that are no numbers (NaN or infinite)"
        )
    return image


@contextmanager
def _itk_errors(path: Path) -> Iterator[None]:
    """ITK's errors as one line, and its warnings, which it would write to stderr by itself, not at all."""
    import SimpleITK as sitk

    sitk.ProcessObject.SetGlobalWarningDisplay(False)
    try:
        yield
    except RuntimeError as error:
        raise DataError(f"can't read the volume {path}: {_reason(error)}", UNREADABLE) from None


def _file(path: Path) -> Any:
    reader = read_header(path)
    _check_shape(reader.GetSize(), path)
    return reader.Execute()


def _nifti(path: Path, channel: int | None) -> Any:
    """By nibabel: ITK reads a NaN, and what is missing of a truncated file, as zero and says nothing."""
    import nibabel
    import SimpleITK as sitk

    try:
        file = nibabel.load(path)
        several = len(file.shape) == 4 and channel is not None
        _check_shape(file.shape[:3] if several else file.shape, path)
        values = np.asanyarray(file.dataobj[..., channel] if several else file.dataobj)
        affine = np.asarray(file.affine, np.float64)
        if values.dtype.kind not in "iuf":
            raise DataError(f"{path} holds {values.dtype} values, expected one number a voxel")
        values = values.astype(values.dtype.newbyteorder("="), copy=False)
    except DataError:
        raise
    except Exception as error:  # noqa: BLE001 (a damaged header may make the reader raise anything)
        raise DataError(f"can't read the volume {path}: {str(error) or type(error).__name__}", UNREADABLE) from None
    values = values.astype(np.float32) if values.dtype.kind == "f" else values
    image = sitk.GetImageFromArray(np.ascontiguousarray(values.T))
    if values.ndim == 3:
        to_lps = TO_RAS @ affine[:3, :3]
        spacing = np.linalg.norm(to_lps, axis=0)
        direction = to_lps / np.where(spacing > 0, spacing, 1)
        if not np.isfinite(affine).all() or np.abs(direction.T @ direction - np.eye(3)).max() > 0.01:
            raise DataError(f"{path} has an affine whose axes are not at right angles; resample it, or mend its header")
        image.SetSpacing(spacing.tolist())
        image.SetDirection(_nearest_rotation(direction).ravel().tolist())
        image.SetOrigin((TO_RAS @ affine[:3, 3]).tolist())
    return image


def _nearest_rotation(direction: NDArray[np.float64]) -> NDArray[np.float64]:
    """Headers are rounded; ITK wants axes at right angles to the last digit."""
    u, _, v = np.linalg.svd(direction)
    rotation: NDArray[np.float64] = u @ v
    return rotation


def _series(folder: Path) -> Any:
    import SimpleITK as sitk

    series = sitk.ImageSeriesReader.GetGDCMSeriesIDs(str(folder))
    if not series:
        raise DataError(f"{folder} holds no DICOM series; a folder is one volume, images are given as {folder}/*")
    if len(series) > 1:
        raise DataError(f"{folder} holds {len(series)} DICOM series, expected one; give each a folder of its own")
    names = sitk.ImageSeriesReader.GetGDCMSeriesFileNames(str(folder), series[0])
    first = read_header(Path(names[0]))
    _check_shape((*first.GetSize()[:2], len(names) * first.GetSize()[-1]), folder)
    return read_slices([Path(name) for name in names]) if len(names) > 1 else first.Execute()


def read_slices(files: Sequence[Path]) -> Any:
    """DICOM slices along their normal, whatever their names; a gap or two slices in one place can't be a volume."""
    import SimpleITK as sitk

    folder = files[0].parent
    with _itk_errors(folder):
        headers = [read_header(path) for path in files]
        if len({(header.GetSize(), *np.round(header.GetDirection(), 3)) for header in headers}) > 1:
            raise DataError(f"{folder} holds slices of several sizes or directions; expected one series")
        normal = np.asarray(headers[0].GetDirection()).reshape(3, 3)[:, 2]
        heights = np.array([np.dot(header.GetOrigin(), normal) for header in headers])
        order = np.argsort(heights)
        gaps = np.diff(heights[order])
        if gaps.min() <= 0.5 * np.median(gaps) or gaps.max() > 1.5 * np.median(gaps):
            raise DataError(
                f"{folder} is no whole series: its slices are {np.median(gaps):.1f} mm apart, "
                f"but also {gaps.min():.1f} and {gaps.max():.1f}; download it again, or move it away"
            )
        reader = sitk.ImageSeriesReader()
        reader.SetFileNames([str(files[i]) for i in order])
        return reader.Execute()


def read_header(path: Path) -> Any:
    """What a file says of itself, without its voxels."""
    import SimpleITK as sitk

    with _itk_errors(path):
        reader = sitk.ImageFileReader()
        reader.SetFileName(str(path))
        reader.ReadImageInformation()
        return reader


def _check_shape(size: tuple[int, ...], path: Path) -> None:
    if len(size) not in (2, 3):
        raise DataError(f"{path} has {len(size)} dimensions, expected 2 or 3; save one of its volumes alone")
    if prod(size) > MAX_VOXELS:
        raise DataError(f"{path} claims {'x'.join(map(str, size))} voxels; at most {MAX_VOXELS} are read")


def _check_same_place(image: Any, mask: Any, image_path: Path, mask_path: Path) -> None:
    if image.GetSize() != mask.GetSize():
        sizes = ["x".join(map(str, one.GetSize())) for one in (mask, image)]
        raise DataError(
            f"mask {mask_path} is {sizes[0]}, its image {image_path.name} {sizes[1]}; they must be the same",
            "masks have another size than their volumes",
        )
    # The corners tell of origin, spacing and direction at once, in millimetres.
    for corner in product(*((0, size - 1) for size in image.GetSize())):
        places = [np.array(one.TransformIndexToPhysicalPoint(corner)) for one in (image, mask)]
        distance = float(np.abs(places[0] - places[1]).max())
        if distance > TOLERANCE_MM:
            raise DataError(
                f"mask {mask_path} lies {distance:.1f} mm away from its image {image_path.name}; "
                "is it another patient's, or saved without its affine?",
                "masks lie elsewhere than their volumes",
            )


def _reason(error: RuntimeError) -> str:
    """ITK's errors run over many lines; the last says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1].rpartition("): ")[2] if lines else "it is no volume of a known kind"
