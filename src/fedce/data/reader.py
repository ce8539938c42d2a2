"""A site's files as frames: decoded, with labels as classes and grey values as bytes, and resized to one size."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from fedce.base.errors import DataError, Problems
from fedce.base.tables import Colour
from fedce.data.cache import Bytes, Frame, Origin
from fedce.data.formats import slices_of
from fedce.data.items import Item
from fedce.data.pixels import Classes, Intensity, checked_labels, class_masks, with_channels
from fedce.data.resizing import How, resized_spacing, to_size
from fedce.data.volumes import Plane, check_same_place, sliced

OTHER_SIZE = "masks differ in size from their images"


@dataclass(frozen=True)
class Reading:
    """How files become images."""

    classes: Classes
    size: int | None
    resize: How
    intensity: Intensity
    plane: Plane
    colours: Sequence[Colour] = ()
    """Colours of masks by their label, from 1; empty if masks hold values."""


def read_frames(site: str, items: Sequence[Item], how: Reading, problems: Problems) -> Iterator[Frame]:
    """All frames of a site, with every slice of a volume; a file that can't be read is noted, and the next is read."""
    colour = False
    for item in items:
        with suppress(DataError):  # The error is reported when the image is read.
            colour = colour or item.image.is_colour
    for i, item in enumerate(items):
        with problems.collected(f"site {site!r}"):
            for name, image, labels, spacing in _pictures(item, how):
                n_channels = len(image) if item.image.has_modalities else 3 if colour else 1
                yield _frame(name, i, image, labels, spacing, how, n_channels)


Spacing = tuple[float, float, float]
"""Millimetres between slices, rows and columns."""
Picture = tuple[str, Bytes, Bytes, Spacing | None]


def _pictures(item: Item, how: Reading) -> Iterator[Picture]:
    """Name, image (channels, h, w), labels (h, w) and spacing of each picture."""
    if not item.is_volume:
        image, labels = item.image.image(how.intensity), item.mask.labels(how.classes, how.colours)
        if image.shape[1:] != labels.shape:
            (h, w), (mask_h, mask_w) = image.shape[1:], labels.shape
            raise DataError(
                f"mask {item.mask.path} is {mask_w}x{mask_h} pixels, its image {w}x{h}; both must have one size",
                OTHER_SIZE,
            )
        yield item.name, image, labels, None
        return
    channels = item.image.channels()
    whole, drawn = channels[0], item.mask.mask_volume(channels[0])
    check_same_place(whole, drawn, item.image.path, item.mask.path)
    volume, mask = sliced(whole, how.plane), sliced(drawn, how.plane)
    values = slices_of(channels, how.plane, how.intensity, item.image.path)
    labels = checked_labels(mask.values, how.classes, item.mask.path)
    for z in range(len(values)):
        name = f"{item.name}#{z:03d}" if len(values) > 1 else item.name
        yield name, values[z], labels[z], volume.spacing


def _frame(
    name: str,
    item: int,
    image: Bytes,
    labels: Bytes,
    spacing: Spacing | None,
    how: Reading,
    n_channels: int,
) -> Frame:
    height, width = labels.shape
    masks = class_masks(labels, how.classes)
    voxel = spacing
    if how.size is not None:
        size = (how.size, how.size)
        image, masks = to_size(image, size, how.resize), to_size(masks, size, how.resize, is_mask=True)
        voxel = spacing and (spacing[0], *resized_spacing(spacing[1:], (height, width), size, how.resize))
    origin = Origin(name, item, height, width, spacing and spacing[1:], _values(labels), voxel)
    return Frame(with_channels(image, n_channels), masks, origin)


def _values(labels: Bytes) -> tuple[int, ...]:
    """The values of a mask other than 0."""
    return tuple(value for value in np.unique(labels).tolist() if value)
