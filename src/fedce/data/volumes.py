"""Volumes read by ITK and nibabel, as stacks of slices in the patient's own orientation."""

import gzip
from collections.abc import Iterator
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
UNREADABLE = "volumes can't be read"
MAX_VOXELS = 512_000_000
# NIfTI's axes point to the patient's right, front and head; DICOM's, and ITK's, to left, back and head.
TO_RAS = np.diag([-1.0, -1.0, 1.0])
TOLERANCE_MM = 0.1
"""A mask that lies further than this from its image belongs to another image."""
# How slices are shown: the axes of a (superior, posterior, left) array as slices, rows and columns. The head is up if
# rows run along the body; the patient's right is on the picture's left, as radiologists expect.
AXES = {"axial": (0, 1, 2), "coronal": (1, 0, 2), "sagittal": (2, 0, 1)}


@dataclass(frozen=True)
class Volume:
    """A volume as parallel slices."""

    values: NDArray[Any]
    """(slices, rows, columns)."""
    spacing: tuple[float, float, float]
    """Millimetres between slices, rows and columns."""


def sliced(image: Any, plane: Plane) -> Volume:
    import SimpleITK as sitk

    # A 2-D file, such as a slice that was saved alone, has no third direction to turn.
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
    """A compressed NIfTI file; equal images give equal bytes, because gzip's time stamp is left out."""
    import nibabel
    import SimpleITK as sitk

    values = sitk.GetArrayFromImage(image).T
    affine = np.diag([*image.GetSpacing()[:2], 1.0, 1.0])
    if values.ndim == 3:
        direction = np.array(image.GetDirection()).reshape(3, 3)
        affine[:3, :3] = TO_RAS @ direction * np.array(image.GetSpacing())
        affine[:3, 3] = TO_RAS @ np.array(image.GetOrigin())
    if values.dtype.itemsize == 8 and values.dtype.kind in "iu":  # NIfTI readers refuse such wide whole numbers.
        values = values.astype(np.int32 if np.abs(values).max(initial=0) < 2**31 else np.float64)
    content: bytes = nibabel.Nifti1Image(values, affine).to_bytes()
    return gzip.compress(content, mtime=0)


def checked(image: Any, path: Path) -> Any:
    """The image that a reader returned, after a check that it is bounded and finite with one value for each voxel."""
    import SimpleITK as sitk

    if not isinstance(image, sitk.Image):
        raise DataError(f"{path}: expected a SimpleITK image from its reader, got {type(image).__name__}")
    check_shape(image.GetSize(), path)
    if image.GetNumberOfComponentsPerPixel() != 1:
        n = image.GetNumberOfComponentsPerPixel()
        raise DataError(f"{path} has {n} values a voxel, expected 1; save one channel as a volume of its own")
    values = sitk.GetArrayViewFromImage(image)
    if not np.isfinite(values).all():
        raise DataError(
            f"{path} holds {int((~np.isfinite(values)).sum())} values that are not numbers (NaN or infinite)"
        )
    return image


@contextmanager
def itk_errors(path: Path) -> Iterator[None]:
    """Turn ITK's errors into one line, and silence its warnings, which it would write to stderr."""
    import SimpleITK as sitk

    sitk.ProcessObject.SetGlobalWarningDisplay(False)
    try:
        yield
    except RuntimeError as error:
        raise DataError(f"can't read the volume {path}: {_reason(error)}", UNREADABLE) from None


def read_file(path: Path) -> Any:
    """A volume of any format that ITK reads."""
    with itk_errors(path):
        reader = read_header(path)
        check_shape(reader.GetSize(), path)
        return reader.Execute()


def read_nifti(path: Path, channel: int | None = None) -> Any:
    """A NIfTI volume, read by nibabel: ITK would read a NaN, or the missing end of a file, as zero without a warning.

    `channel` chooses one of several volumes in a file.
    """
    with itk_errors(path):
        return _nifti(path, channel)


def _nifti(path: Path, channel: int | None) -> Any:
    import nibabel
    import SimpleITK as sitk

    try:
        file = nibabel.load(path)
        shape = _without_empty_axes(file.shape)
        several = len(shape) == 4 and channel is not None
        check_shape(shape[:3] if several else shape, path)
        values = np.asanyarray(file.dataobj[..., channel] if several else file.dataobj).reshape(shape[:3])
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
    if values.ndim == 2:
        image.SetSpacing([step if step > 0 else 1.0 for step in np.linalg.norm(affine[:3, :2], axis=0).tolist()])
    else:
        to_lps = TO_RAS @ affine[:3, :3]
        spacing = np.linalg.norm(to_lps, axis=0)
        direction = to_lps / np.where(spacing > 0, spacing, 1)
        if not np.isfinite(affine).all() or np.abs(direction.T @ direction - np.eye(3)).max() > 0.01:
            raise DataError(
                f"{path} has an affine whose axes are not at right angles; resample it, or correct its header"
            )
        image.SetSpacing(spacing.tolist())
        image.SetDirection(_nearest_rotation(direction).ravel().tolist())
        image.SetOrigin((TO_RAS @ affine[:3, 3]).tolist())
    return image


def _without_empty_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape without axes of length 1 behind the third: many programs save one volume as (x, y, z, 1).

    >>> _without_empty_axes((64, 64, 20, 1)), _without_empty_axes((64, 64, 1))
    ((64, 64, 20), (64, 64, 1))
    """
    while len(shape) > 3 and shape[-1] == 1:
        shape = shape[:-1]
    return shape


def _nearest_rotation(direction: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rotation nearest to a rounded header's: ITK wants axes at right angles to the last digit."""
    u, _, v = np.linalg.svd(direction)
    rotation: NDArray[np.float64] = u @ v
    return rotation


def read_header(path: Path) -> Any:
    """A file's header, without its voxels."""
    import SimpleITK as sitk

    with itk_errors(path):
        reader = sitk.ImageFileReader()
        reader.SetFileName(str(path))
        reader.ReadImageInformation()
        return reader


def named_in_header(path: Path) -> list[Path]:
    """The files with the voxels of a MetaImage header; empty if it can't be read, which `read_file` reports."""
    try:
        _, _, named = path.read_text("utf-8", errors="replace").partition("ElementDataFile")
    except OSError:
        return []
    return [path.parent / line.strip() for line in named.lstrip(" =").splitlines() if line.strip()]


def check_shape(size: tuple[int, ...], path: Path) -> None:
    if len(size) not in (2, 3):
        raise DataError(f"{path} has {len(size)} dimensions, expected 2 or 3; save one of its volumes alone")
    if 0 in size:
        raise DataError(f"{path} has no voxels ({'x'.join(map(str, size))}); save it again, or remove it", UNREADABLE)
    if prod(size) > MAX_VOXELS:
        raise DataError(f"{path} claims {'x'.join(map(str, size))} voxels; at most {MAX_VOXELS} are read")


def nifti_channels(path: Path) -> int:
    """The number of volumes in a NIfTI file, by its header; 1 if it can't be read, which `read_nifti` reports."""
    import nibabel

    try:
        shape = _without_empty_axes(nibabel.load(path).shape)
    except Exception:  # noqa: BLE001 (a damaged header may make the reader raise anything)
        return 1
    return max(int(shape[3]), 1) if len(shape) == 4 else 1


def check_same_place(image: Any, mask: Any, image_path: Path, mask_path: Path, what: str = "mask") -> None:
    """Check that an image and its mask, or another modality, lie on the same grid, at the same place."""
    if image.GetSize() != mask.GetSize():
        sizes = ["x".join(map(str, one.GetSize())) for one in (mask, image)]
        raise DataError(
            f"{what} {mask_path} is {sizes[0]} voxels, its image {image_path.name} {sizes[1]}; both must have one size",
            "masks differ in size from their volumes" if what == "mask" else "modalities differ in size",
        )
    # The corners depend on origin, spacing and direction at once, in millimetres.
    for corner in product(*((0, size - 1) for size in image.GetSize())):
        places = [np.array(one.TransformIndexToPhysicalPoint(corner)) for one in (image, mask)]
        distance = float(np.abs(places[0] - places[1]).max())
        if distance > TOLERANCE_MM:
            raise DataError(
                f"{what} {mask_path} lies {distance:.1f} mm away from its image {image_path.name}; "
                "is it another patient's, or saved without its affine?",
                "masks lie elsewhere than their volumes" if what == "mask" else "modalities lie elsewhere",
            )


def _reason(error: RuntimeError) -> str:
    """ITK's errors run over many lines; the last says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1].rpartition("): ")[2] if lines else "it is not a volume of a known kind"
