"""Volumes of any published format as NIfTI, with their geometry, and masks on the grid of their image."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedce.base.errors import DataError
from fedce.data.dicom import read_slices
from fedce.data.formats import NIFTI, ending
from fedce.data.prepare.segmentations import union_of_segments
from fedce.data.prepare.sources import Case, Files, Note, Outputs, is_dicom
from fedce.data.volumes import checked, nifti_bytes, read_file, read_header, read_nifti

SAME_PLACE_MM = 0.5
SAME_SPACING = 0.02
SAME_DIRECTION = 0.02
KEPT_VOLUME = 0.9


def convert_volume(case: Case, note: Note) -> Outputs:
    """A T2-weighted volume and its whole gland, 0 or 1, on the same grid."""
    image, drawn = (read_volume(case.files[role]) for role in ("image", "mask"))
    if is_segmentation(case.files["mask"]):
        mask = whole_gland(union_of_segments(image, drawn, case.files["mask"][0]), case)
    else:
        mask = on_grid_of(image, whole_gland(drawn, case), case, note)
    return {
        f"images/{case.name}.nii.gz": nifti_bytes(image),
        f"masks/{case.name}.nii.gz": nifti_bytes(mask),
    }


def read_volume(files: Files) -> Any:
    """The volume in one file or in a DICOM series; if a file holds several sequences, the first, which is T2."""
    if len(files) > 1:
        return read_slices(files)
    read = partial(read_nifti, channel=0) if ending(files[0], [NIFTI]) else read_file
    return checked(read(files[0]), files[0])


def is_segmentation(files: Files) -> bool:
    """A DICOM segmentation object, which is a single file among series of slices."""
    return len(files) == 1 and is_dicom(files[0]) and _tag(files[0], "0008|0060") == "SEG"


def series_uid(files: Files) -> str:
    return _tag(files[0], "0020|000e")


def _tag(path: Path, tag: str) -> str:
    header = read_header(path)
    return str(header.GetMetaData(tag)).strip("\0 ") if header.HasMetaDataKey(tag) else ""


def whole_gland(mask: Any, case: Case) -> Any:
    """The mask of the whole gland: all zones together."""
    import SimpleITK as sitk

    gland = sitk.Cast(mask != 0, sitk.sitkUInt8)
    if not sitk.GetArrayViewFromImage(gland).any():
        raise DataError(f"the mask {_name(case)} is empty; expected the prostate in it")
    return gland


def on_grid_of(image: Any, mask: Any, case: Case, note: Note) -> Any:
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


def _difference(image: Any, mask: Any) -> str | None:
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


def _volume(mask: Any) -> float:
    import SimpleITK as sitk

    return float(sitk.GetArrayViewFromImage(mask).sum() * np.prod(mask.GetSpacing()))


def _name(case: Case) -> str:
    files = case.files["mask"]
    return str(files[0] if len(files) == 1 else files[0].parent)


def _size(volume: Any) -> str:
    return "x".join(str(n) for n in volume.GetSize())
