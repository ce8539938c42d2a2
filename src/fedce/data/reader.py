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
from fedce.data.resizing import How, Shape, resampled, resized_spacing, to_size
from fedce.data.shape import Spacing, check_resampled, resampled_shape
from fedce.data.volumes import Plane, check_same_place, sliced

OTHER_SIZE = "masks differ in size from their images"
NO_VOLUME = "images are 2-D, and data.dims = 3 needs volumes"


@dataclass(frozen=True)
class Reading:
    """How files become images."""

    classes: Classes
    size: Shape | None
    """None: images stay as they are."""
    resize: How
    intensity: Intensity
    plane: Plane
    colours: Sequence[Colour] = ()
    """Colours of masks by their label, from 1; empty if masks hold values."""
    is_3d: bool = False
    """Whether the network sees volumes; then there must be no 2-D image."""
    spacing: Spacing | None = None
    """Millimetres to which volumes are resampled; None: they stay as they are."""


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


Picture = tuple[str, Bytes, Bytes, Spacing | None]


def _pictures(item: Item, how: Reading) -> Iterator[Picture]:
    """Name, image (channels, h, w), labels (h, w) and spacing of each picture."""
    if not item.is_volume:
        if how.is_3d:
            raise DataError(
                f"{item.image.path} is a 2-D image, and data.dims = 3 needs volumes; leave out data.dims", NO_VOLUME
            )
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
    check_resampled(labels.shape, volume.spacing, how.spacing, item.image.path)
    values, labels, spacing = at_spacing(values, labels, volume.spacing, how.spacing)
    for z in range(len(values)):
        name = f"{item.name}#{z:03d}" if len(values) > 1 else item.name
        yield name, values[z], labels[z], spacing


def volume_frames(
    name: str, item: int, values: Bytes, labels: Bytes, spacing: Spacing, how: Reading
) -> Iterator[Frame]:
    """The frames of a grey volume (slices, rows, columns) that is in memory."""
    values, labels, spacing = at_spacing(values[:, None], labels, spacing, how.spacing)
    for z in range(len(values)):
        yield _frame(f"{name}#{z:03d}", item, values[z], labels[z], spacing, how, 1)


def at_spacing(values: Bytes, labels: Bytes, spacing: Spacing, to: Spacing | None) -> tuple[Bytes, Bytes, Spacing]:
    """A volume (slices, modalities, rows, columns) and its labels (slices, rows, columns), resampled.

    The spacing is what whole voxels allow.
    """
    if to is None:
        return values, labels, spacing
    before = (len(labels), labels.shape[1], labels.shape[2])
    shape = resampled_shape(before, spacing, to)
    slices, rows, columns = (a * n / m for a, n, m in zip(spacing, before, shape, strict=True))
    return channels_resampled(values, shape), resampled(labels, shape, is_mask=True), (slices, rows, columns)


def channels_resampled(values: Bytes, shape: Sequence[int]) -> Bytes:
    """A volume (slices, modalities, rows, columns) whose every modality has these slices, rows and columns."""
    return np.stack([resampled(values[:, i], shape) for i in range(values.shape[1])], axis=1)


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
        image, masks = to_size(image, how.size, how.resize), to_size(masks, how.size, how.resize, is_mask=True)
        voxel = spacing and (spacing[0], *resized_spacing(spacing[1:], (height, width), how.size, how.resize))
    origin = Origin(name, item, height, width, spacing and spacing[1:], _values(labels), voxel)
    return Frame(with_channels(image, n_channels), masks, origin)


def _values(labels: Bytes) -> tuple[int, ...]:
    """The values of a mask other than 0."""
    return tuple(value for value in np.unique(labels).tolist() if value)
