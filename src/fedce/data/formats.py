"""File formats: one list of the formats that are read, with their endings and readers.

A new format is one more entry in `FORMATS`. A format of your own is named by `data.format`, as package.module:NAME, and
is read in addition to these.
"""

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedce.base.errors import ConfigError, DataError
from fedce.base.registry import find
from fedce.base.tables import DATA_KINDS, Colour
from fedce.data import dicom, dicom_seg, pixels, volumes
from fedce.data.pixels import (
    MAX_PIXELS,
    Bytes,
    Classes,
    Intensity,
    colour_labels,
    image_bytes,
    label_values,
    to_bytes,
    wide,
    with_channels,
)

Values = NDArray[Any]
MOST_CHANNELS = 64
EXPECTED = "expected an array of numbers, (height, width) or (height, width, 3)"


@dataclass(frozen=True)
class Format:
    """A kind of file: its name, its endings, whether it holds images or volumes, and how it is read.

    >>> import numpy as np
    >>> NUMPY = Format("NumPy", (".npy",), "image", np.load)
    >>> Formats((*FORMATS, NUMPY)).stem(Path("scan-7.npy"))
    'scan-7'
    """

    name: str
    endings: tuple[str, ...]
    """Endings in lower case, each with its dot."""
    holds: Literal["image", "volume"]
    read: Callable[..., Any]
    """Reads an image as an array, (height, width) or (height, width, 3); bytes stay as they are, wider numbers become
    bytes by data.intensity. Reads a volume as a SimpleITK image, whose place, orientation and spacing count."""
    read_mask: Callable[[Path], Any] | None = None
    """Reads a mask, if its values are read otherwise than those of an image."""
    is_colour: Callable[[Path], bool] | None = None
    """Whether an image has colours, by its header alone; without this function, the whole image is read to know."""
    is_lossy: bool = False
    """Whether compression changes values; then each value of a mask is replaced by the nearest known one."""
    beside: Callable[[Path], Sequence[Path]] | None = None
    """Further files that hold a part of the image, by its header."""
    n_channels: Callable[[Path], int] | None = None
    """The number of volumes (modalities) in a file, by its header; `read` then also takes the number of one of them."""
    read_on: Callable[[Path, Any], Any] | None = None
    """Reads a mask on the grid of its image, a SimpleITK image, if the file itself holds only a part of the grid."""
    is_folder: Callable[[Path], bool] | None = None
    """Whether a folder is one volume of this format; `endings` are then those of the files inside."""


def _pillow(name: str, endings: tuple[str, ...], *kinds: str, is_lossy: bool = False) -> Format:
    """A format that Pillow reads. `kinds` are Pillow's names of it; without any, every kind is read."""
    return Format(
        name=name,
        endings=endings,
        holds="image",
        read=partial(pixels.read_image, kinds=kinds),
        read_mask=partial(pixels.read_mask, kinds=kinds),
        is_colour=partial(pixels.is_colour, kinds=kinds),
        is_lossy=is_lossy,
    )


SEG = Format("DICOM SEG", (".dcm",), "volume", dicom_seg.read_alone, read_on=dicom_seg.read_on)
SEG_FOLDER = replace(SEG, is_folder=dicom_seg.holds_seg)
DICOM = Format("DICOM", dicom.ENDINGS, "volume", dicom.read_series, is_folder=dicom.holds_series)
NIFTI = Format("NIfTI", (".nii.gz", ".nii"), "volume", volumes.read_nifti, n_channels=volumes.nifti_channels)
FORMATS = (
    _pillow("PNG", (".png",), "PNG"),
    _pillow("JPEG", (".jpg", ".jpeg"), "JPEG", "MPO", is_lossy=True),
    _pillow("TIFF", (".tif", ".tiff"), "TIFF"),
    _pillow("BMP", (".bmp",), "BMP", "DIB"),
    NIFTI,
    Format("MetaImage", (".mha",), "volume", volumes.read_file),
    Format("MetaImage header", (".mhd",), "volume", volumes.read_file, beside=volumes.named_in_header),
    Format("NRRD", (".nrrd",), "volume", volumes.read_file),
    SEG,
    SEG_FOLDER,
    DICOM,
)
ANY_IMAGE = _pillow("image", ())
"""The format of a listed file whose ending is unknown."""
NOT_READ = (".gif", ".webp", ".npy", ".npz", ".jp2", ".svs", ".mat")
"""Endings of image files that fedce does not read: such a file beside a site's images is reported."""


@dataclass(frozen=True)
class File:
    """A file, or the folder of a series, and the format by which it is read; other modalities are files beside it."""

    path: Path
    format: Format
    others: tuple["File", ...] = ()
    """The files of further modalities, in the order of the channels."""

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def is_volume(self) -> bool:
        return self.format.holds == "volume"

    @property
    def files(self) -> tuple["File", ...]:
        """A file for each modality."""
        return (replace(self, others=()), *self.others)

    @property
    def has_modalities(self) -> bool:
        """Whether several channels would be modalities, and not colours."""
        return self.is_volume or bool(self.others)

    @property
    def beside(self) -> list[Path]:
        """Files that hold a part of this one."""
        return [path for path in self.format.beside(self.path) if path.is_file()] if self.format.beside else []

    @property
    def is_colour(self) -> bool:
        if self.has_modalities:
            return False
        if self.format.is_colour is not None:
            return self.format.is_colour(self.path)
        return bool(self._values(self.format.read).ndim == 3)

    def image(self, intensity: Intensity = "auto") -> Bytes:
        """The image, (1 or 3, height, width), or modalities, (modalities, height, width), 0 to 255."""
        own = image_bytes(self._values(self._as_image.read), intensity, self.path)
        if not self.others:
            return own
        images = [with_channels(one, 1) for one in (own, *(other.image(intensity) for other in self.others))]
        for other, image in zip(self.files, images, strict=True):
            if image.shape != images[0].shape:
                (h, w), (h0, w0) = image.shape[1:], images[0].shape[1:]
                raise DataError(
                    f"{other.path} is {w}x{h} pixels, the modality {self.name} {w0}x{h0}; both must have one size",
                    "modalities differ in size",
                )
        return np.concatenate(images)

    def labels(self, classes: Classes, colours: Sequence[Colour] = ()) -> Bytes:
        """A mask's values, (height, width); each of them is known to `classes`, or is the number of a colour."""
        by = self._as_image
        if colours:
            return colour_labels(self._values(by.read), colours, self.path, is_lossy=by.is_lossy)
        return label_values(self._values(by.read_mask or by.read), classes, self.path, is_lossy=by.is_lossy)

    def volume(self) -> Any:
        """The volume as a SimpleITK image: bounded, finite, one value for each voxel."""
        channels = self.channels()
        if len(channels) > 1:
            raise DataError(f"{self.path} holds {len(channels)} volumes, expected one; save one of them alone")
        return channels[0]

    def channels(self) -> list[Any]:
        """All modalities, each as a SimpleITK image: several files, or several volumes of one file, on one grid."""
        found = [(one, volume) for one in self.files for volume in one._volumes()]
        for one, volume in found[1:]:
            volumes.check_same_place(found[0][1], volume, self.path, one.path, "modality")
        return [volume for _, volume in found]

    def slices(self, plane: volumes.Plane, intensity: Intensity) -> Bytes:
        """All slices, (slices, modalities, rows, columns), 0 to 255; each modality has its own range."""
        return slices_of(self.channels(), plane, intensity, self.path)

    def mask_volume(self, image: Any) -> Any:
        """The mask of an image that is a volume."""
        if (read_on := self.format.read_on) is None:
            return self.volume()
        return volumes.checked(self._read(lambda path: read_on(path, image), "volume"), self.path)

    def _volumes(self) -> list[Any]:
        # ITK also reads single slices that were saved as pictures.
        read: Callable[..., Any] = self.format.read if self.is_volume else volumes.read_file
        n = self.format.n_channels(self.path) if self.is_volume and self.format.n_channels else 1
        if n > MOST_CHANNELS:
            raise DataError(f"{self.path} holds {n} volumes; at most {MOST_CHANNELS} modalities are read")
        reads = [read] if n == 1 else [partial(read, channel=i) for i in range(n)]
        return [volumes.checked(self._read(one, "volume"), self.path) for one in reads]

    @property
    def _as_image(self) -> Format:
        return ANY_IMAGE if self.is_volume else self.format

    def _values(self, read: Callable[[Path], Any]) -> Values:
        values = self._read(read, "image")
        if not isinstance(values, np.ndarray):
            raise DataError(f"{self.path}: {EXPECTED}, but got {type(values).__name__}")
        if not _is_picture(values.shape) or values.dtype.kind not in "buif":
            raise DataError(f"{self.path}: {EXPECTED}, but got {values.dtype} values of shape {values.shape}")
        if values.shape[0] * values.shape[1] > MAX_PIXELS:
            raise DataError(
                f"{self.path} has {values.shape[1]}x{values.shape[0]} pixels; at most {MAX_PIXELS} are read"
            )
        return values.astype(np.uint8) if values.dtype.kind == "b" else values

    def _read(self, read: Callable[[Path], Any], what: str) -> Any:
        try:
            return read(self.path)
        except DataError:
            raise
        except Exception as error:  # noqa: BLE001 (a user's own reader may raise anything)
            reason = str(error) or type(error).__name__
            raise DataError(f"can't read the {what} {self.path}: {reason}", f"{what}s can't be read") from None


def slices_of(channels: Sequence[Any], plane: volumes.Plane, intensity: Intensity, path: Path) -> Bytes:
    """The slices of modalities that were read, (slices, modalities, rows, columns), 0 to 255."""
    return np.stack([to_bytes(volumes.sliced(one, plane).values, wide(intensity), path) for one in channels], axis=1)


def _is_picture(shape: tuple[int, ...]) -> bool:
    return 0 not in shape and (len(shape) == 2 or (len(shape) == 3 and shape[2] == 3))


@dataclass(frozen=True)
class Formats:
    """The formats that an experiment's files may have."""

    known: tuple[Format, ...] = FORMATS
    version: str = ""
    """Digest of the code of a user's own format; empty without one."""

    @classmethod
    def named_by(cls, kind: str) -> "Formats":
        """The formats by data.format; a user's own comes first, so that it may take over an ending of `FORMATS`."""
        if kind in DATA_KINDS:
            return cls()
        own = find(kind, {}, Format, "fedce.formats", "data.format")
        if not own.endings or not all(re.fullmatch(r"(\.[^.A-Z/]+)+", end) for end in own.endings):
            raise ConfigError(f"data.format: {kind} has the endings {own.endings}, expected some such as ('.npy',)")
        return cls((own, *FORMATS), f"{kind} {_digest_of(own)}")

    def searched(self, kind: str) -> tuple[Format, ...]:
        """The formats that a folder is searched for."""
        wanted: dict[str, Callable[[Format], bool]] = {
            "images": lambda one: one.holds == "image",
            "volumes": lambda one: one.holds == "volume" and one.is_folder is None,
            "dicom": lambda one: one in (DICOM, SEG, SEG_FOLDER),
        }
        return tuple(one for one in self.known if kind not in wanted or wanted[kind](one))

    def file(self, path: Path, *others: Path) -> File:
        """The file of a path, with those of further modalities."""
        return File(path, self._of(path), tuple(self.file(other) for other in others))

    def stem(self, path: Path) -> str:
        """The file's name without its ending; .nii.gz counts as one ending."""
        end = ending(path, self.known)
        return path.name[: -len(end)] if end else path.name

    def _of(self, path: Path) -> Format:
        if path.is_dir():
            return next((one for one in self.known if one.is_folder and one.is_folder(path)), DICOM)
        end = ending(path, self.known)
        return next((one for one in _files(self.known) if end in one.endings), ANY_IMAGE)


def ending(path: Path, known: Sequence[Format]) -> str | None:
    """The longest ending of these formats that the file has; None if it has none of them, as the folder of a series."""
    lower = path.name.lower()
    ends = (end for one in _files(known) for end in one.endings if lower.endswith(end) and len(lower) > len(end))
    return max(ends, key=len, default=None)


def _files(known: Iterable[Format]) -> Iterable[Format]:
    return (one for one in known if one.is_folder is None)


def _digest_of(own: Format) -> str:
    """Digest of the module with the reader, because a changed reader may produce other pixels."""
    module = sys.modules.get(getattr(own.read, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    return sha256(Path(file).read_bytes()).hexdigest() if file else ""
