"""What a run's model found in one image or volume: masks, and how they are shown and saved."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedce.base.errors import ConfigError
from fedce.base.files import write_bytes, writing
from fedce.data.overlays import overlay
from fedce.data.pixels import Classes, mask_values
from fedce.data.volumes import Plane, nifti_bytes, unsliced

Pixels = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Segmentation:
    """What a model found in one image or volume, in its own size.

    >>> disc = np.array([[[0, 1], [1, 1]]], np.uint8)
    >>> found = Segmentation("eye", np.zeros((3, 2, 2), np.uint8), disc, {"disc": [255]})
    >>> found
    <Segmentation of eye: disc 75.0 %>
    >>> found.masks["disc"]
    array([[False,  True],
           [ True,  True]])
    >>> found.labels
    array([[  0, 255],
           [255, 255]], dtype=uint8)
    >>> found.picture.size
    (2, 2)
    """

    name: str
    pixels: Pixels = field(repr=False)
    """The image, (channels, height, width), or the slices of a volume, (slices, channels, rows, columns); 0 to 255."""
    found: Pixels = field(repr=False)
    """(classes, height, width), or (slices, classes, rows, columns); 0 or 1."""
    classes: Classes = field(repr=False)
    """The values that each class has in `labels`: those of the training masks."""
    volume: Any = field(default=None, repr=False)
    """For a volume: the SimpleITK image, which says where the volume lies."""
    plane: Plane = "axial"

    def __repr__(self) -> str:
        parts = ", ".join(f"{name} {100 * mask.mean():.1f} %" for name, mask in self.masks.items())
        return f"<Segmentation of {self.name}: {parts}>"

    @property
    def is_volume(self) -> bool:
        return self.found.ndim == 4

    @property
    def masks(self) -> Mapping[str, NDArray[np.bool_]]:
        """Where each class is: (height, width), or (slices, rows, columns) along the run's data.plane."""
        return {name: self.found[..., i, :, :] > 0 for i, name in enumerate(self.classes)}

    @cached_property
    def labels(self) -> Pixels:
        """One array with the values of the training masks; 0 where no class is."""
        if not self.is_volume:
            return mask_values(self.found, self.classes)
        return np.stack([mask_values(one, self.classes) for one in self.found])

    @property
    def picture(self) -> Image.Image:
        """The image with each class outlined; of a volume, the slice in which most was found."""
        if not self.is_volume:
            return overlay(self.pixels, self.found)
        most = int(self.found.any(axis=1).sum(axis=(1, 2)).argmax())
        return overlay(self.pixels[most], self.found[most])

    def save(self, path: str | Path) -> Path:
        """Write the mask: of an image as PNG, of a volume as NIfTI, in the volume's place and orientation."""
        path, end = Path(path), ".nii.gz" if self.is_volume else ".png"
        if not path.name.endswith(end):
            kind = "a volume" if self.is_volume else "an image"
            raise ConfigError(f"{self.name} is {kind}, whose mask is written to a file that ends in {end}, got {path}")
        if self.is_volume:
            write_bytes(path, nifti_bytes(unsliced(self.labels, self.volume, self.plane)))
        else:
            save_picture(path, Image.fromarray(self.labels))
        return path


def save_picture(path: Path, picture: Image.Image) -> None:
    with writing(path) as aside:
        picture.save(aside, format="PNG")
