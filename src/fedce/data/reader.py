"""A site's files as frames: decoded, with labels as classes and grey values as bytes, and resized to one size."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedce.base.errors import DataError, Problems
from fedce.base.tables import Colour
from fedce.data.cache import Bytes, Frame, Origin
from fedce.data.formats import File
from fedce.data.items import Item
from fedce.data.pixels import Classes, Intensity, checked_labels, class_masks, to_bytes, wide, with_channels
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
                n_channels = (3 if colour else 1) if is_single(item.images, image) else len(image)
                yield _frame(name, i, image, labels, spacing, how, n_channels)


Spacing = tuple[float, float, float]
"""Millimetres between slices, rows and columns."""
Picture = tuple[str, Bytes, Bytes, Spacing | None]


def _pictures(item: Item, how: Reading) -> Iterator[Picture]:
    """Name, image (channels, h, w), labels (h, w) and spacing of each picture."""
    if not item.is_volume:
        image = read_image(item.images, how.intensity)
        labels = item.mask.labels(how.classes, how.colours)
        if image.shape[1:] != labels.shape:
            (h, w), (mask_h, mask_w) = image.shape[1:], labels.shape
            raise DataError(
                f"mask {item.mask.path} is {mask_w}x{mask_h} pixels, its image {w}x{h}; both must have one size",
                OTHER_SIZE,
            )
        yield item.name, image, labels, None
        return
    channels = read_volumes(item.images)
    whole, drawn = channels[0], item.mask.mask_volume(channels[0])
    check_same_place(whole, drawn, item.image.path, item.mask.path)
    volume, mask = sliced(whole, how.plane), sliced(drawn, how.plane)
    values = volume_bytes(channels, how.plane, how.intensity, item.image)
    labels = checked_labels(mask.values, how.classes, item.mask.path)
    for z in range(len(values)):
        name = f"{item.name}#{z:03d}" if len(values) > 1 else item.name
        yield name, values[z], labels[z], volume.spacing


def read_image(files: Sequence[File], intensity: Intensity) -> Bytes:
    """An image, (1 or 3, height, width), or several grey ones as modalities, (modalities, height, width)."""
    if len(files) == 1:
        return files[0].image(intensity)
    images = [with_channels(one.image(intensity), 1) for one in files]
    for one, image in zip(files, images, strict=True):
        if image.shape != images[0].shape:
            (h, w), (h0, w0) = image.shape[1:], images[0].shape[1:]
            raise DataError(
                f"{one.path} is {w}x{h} pixels, the modality {files[0].name} {w0}x{h0}; both must have one size",
                "modalities differ in size",
            )
    return np.concatenate(images)


def read_volumes(files: Sequence[File]) -> list[Any]:
    """All modalities of a case: several files, or several channels of one file, on one grid."""
    channels = [(one, channel) for one in files for channel in one.channels()]
    for one, channel in channels[1:]:
        check_same_place(channels[0][1], channel, files[0].path, one.path, "modality")
    return [channel for _, channel in channels]


def volume_bytes(channels: Sequence[Any], plane: Plane, intensity: Intensity, file: File) -> Bytes:
    """The slices of a volume, (slices, modalities, rows, columns), 0 to 255; each modality has its own range."""
    return np.stack([to_bytes(sliced(one, plane).values, wide(intensity), file.path) for one in channels], axis=1)


def is_single(files: Sequence[File], image: Bytes) -> bool:
    """Whether channels are grey or colour, and not modalities."""
    return len(files) == 1 and (not files[0].is_volume or len(image) == 1)


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
