"""Volumes of any published format as NIfTI, with their geometry, and masks on the grid of their image."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedce.data.prepare.segmentations import union_of_segments
from fedce.data.prepare.sources import Case, Files, Note, Outputs, is_dicom
from fedce.errors import DataError

if TYPE_CHECKING:
    import SimpleITK as sitk

SAME_PLACE_MM = 0.5
SAME_SPACING = 0.02
SAME_DIRECTION = 0.02
KEPT_VOLUME = 0.9


def convert_volume(case: Case, note: Note) -> Outputs:
    """A T2-weighted volume and its whole gland, 0 or 1, on the same grid."""
    image = first_channel(read_volume(case.files["image"]))
    drawn = read_volume(case.files["mask"])
    if is_segmentation(case.files["mask"]):
        mask = whole_gland(union_of_segments(image, drawn, case.files["mask"][0]), case)
    else:
        mask = on_grid_of(image, whole_gland(drawn, case), case, note)
    return {
        f"images/{case.name}.nii.gz": nifti_bytes(image),
        f"masks/{case.name}.nii.gz": nifti_bytes(mask),
    }


def read_volume(files: Files) -> "sitk.Image":
    """One file, or a DICOM series in the order of its slices' positions, whatever they are called."""
    import SimpleITK as sitk

    place = files[0] if len(files) == 1 else files[0].parent
    sitk.ProcessObject.SetGlobalWarningDisplay(False)  # ITK would write its warnings to stderr by itself.
    try:
        return sitk.ReadImage(str(files[0])) if len(files) == 1 else _read_series(files)
    except RuntimeError as error:
        raise _unreadable(place, error) from None


def _read_series(files: Files) -> "sitk.Image":
    """Slices along their normal, evenly spaced; a gap or two slices in one place can't be a volume."""
    import SimpleITK as sitk

    headers = [_header(path) for path in files]
    if len({(header.GetSize(), *np.round(header.GetDirection(), 3)) for header in headers}) > 1:
        raise DataError(f"{files[0].parent} holds slices of several sizes or directions; expected one series")
    normal = np.asarray(headers[0].GetDirection()).reshape(3, 3)[:, 2]
    heights = np.array([np.dot(header.GetOrigin(), normal) for header in headers])
    order = np.argsort(heights)
    gaps = np.diff(heights[order])
    if len(gaps) and (gaps.min() <= 0.5 * np.median(gaps) or gaps.max() > 1.5 * np.median(gaps)):
        raise DataError(
            f"{files[0].parent} is no whole series: its slices are {np.median(gaps):.1f} mm apart, "
            f"but also {gaps.min():.1f} and {gaps.max():.1f}; download it again, or move it away"
        )
    reader = sitk.ImageSeriesReader()
    reader.SetFileNames([str(files[i]) for i in order])
    return reader.Execute()


def is_segmentation(files: Files) -> bool:
    """A DICOM segmentation object, which is a single file among series of slices."""
    return len(files) == 1 and is_dicom(files[0]) and _tag(files[0], "0008|0060") == "SEG"


def series_uid(files: Files) -> str:
    return _tag(files[0], "0020|000e")


def _tag(path: Path, tag: str) -> str:
    try:
        header = _header(path)
    except RuntimeError as error:
        raise _unreadable(path, error) from None
    return str(header.GetMetaData(tag)).strip("\0 ") if header.HasMetaDataKey(tag) else ""


def _header(path: Path) -> "sitk.ImageFileReader":
    import SimpleITK as sitk

    sitk.ProcessObject.SetGlobalWarningDisplay(False)
    reader = sitk.ImageFileReader()
    reader.SetFileName(str(path))
    reader.ReadImageInformation()
    return reader


def first_channel(image: "sitk.Image") -> "sitk.Image":
    """T2 of a volume that holds several sequences, which stand along the fourth axis."""
    return image[:, :, :, 0] if image.GetDimension() == 4 else image


def whole_gland(mask: "sitk.Image", case: Case) -> "sitk.Image":
    """Any zone is gland."""
    import SimpleITK as sitk

    gland = sitk.Cast(mask != 0, sitk.sitkUInt8)
    if not sitk.GetArrayViewFromImage(gland).any():
        raise DataError(f"the mask {_name(case)} is empty; expected the prostate in it")
    return gland


def on_grid_of(image: "sitk.Image", mask: "sitk.Image", case: Case, note: Note) -> "sitk.Image":
    """The mask, turned to the image's axes, and moved by the nearest voxel where the two grids differ."""
    import SimpleITK as sitk

    turned = sitk.DICOMOrient(
        mask, sitk.DICOMOrientImageFilter_GetOrientationFromDirectionCosines(image.GetDirection())
    )
    if turned.GetSize() != image.GetSize():
        raise DataError(
            f"the mask {_name(case)} is {_size(turned)} voxels, its image {_size(image)}; "
            "expected the same number of rows, columns and slices"
        )
    if (difference := _difference(image, turned)) is None:
        turned.CopyInformation(image)
        return turned
    moved = sitk.Resample(turned, image, sitk.Transform(), sitk.sitkNearestNeighbor, 0, sitk.sitkUInt8)
    if (kept := _volume(moved) / _volume(turned)) < KEPT_VOLUME:
        raise DataError(
            f"the mask {_name(case)} lies elsewhere than its image: {difference}, and only {100 * kept:.0f} % of it "
            "falls inside; expected the mask of this image"
        )
    note(f"the mask's grid differs from the image's ({difference}); resampled to the nearest voxel")
    return moved


def _difference(image: "sitk.Image", mask: "sitk.Image") -> str | None:
    """How two grids of the same size differ, or None if they don't."""
    spacings, directions, origins = (
        (np.asarray(getattr(image, name)()), np.asarray(getattr(mask, name)()))
        for name in ("GetSpacing", "GetDirection", "GetOrigin")
    )
    if not np.allclose(*spacings, rtol=SAME_SPACING):
        return f"spacing {np.round(spacings[1], 3).tolist()} mm, not {np.round(spacings[0], 3).tolist()}"
    if not np.allclose(*directions, atol=SAME_DIRECTION):
        return "another direction"
    if (apart := float(np.linalg.norm(origins[0] - origins[1]))) > SAME_PLACE_MM:
        return f"origin {apart:.1f} mm away"
    return None


def _volume(mask: "sitk.Image") -> float:
    import SimpleITK as sitk

    return float(sitk.GetArrayViewFromImage(mask).sum() * np.prod(mask.GetSpacing()))


def nifti_bytes(volume: "sitk.Image") -> bytes:
    """A .nii.gz file, the same bytes for the same volume."""
    import SimpleITK as sitk

    for key in volume.GetMetaDataKeys():  # What a DICOM header says of the patient stays behind.
        volume.EraseMetaData(key)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "volume.nii.gz"
        sitk.WriteImage(volume, str(path), useCompression=True)
        return path.read_bytes()


def _unreadable(place: Path, error: RuntimeError) -> DataError:
    """With the last sentence of an ITK error, which is the only one for people."""
    reason = [line.strip().rstrip(".") for line in str(error).splitlines() if line.strip()][-1:]
    return DataError(f"can't read {place} ({''.join(reason)}); download it again, or move it away")


def _name(case: Case) -> str:
    files = case.files["mask"]
    return str(files[0] if len(files) == 1 else files[0].parent)


def _size(volume: "sitk.Image") -> str:
    return "x".join(str(n) for n in volume.GetSize())
