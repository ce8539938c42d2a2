"""Volumes that the network sees as volumes: from a file to the network's spacing, and its masks back."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedce.base.errors import DataError
from fedce.base.tables import DataConfig
from fedce.data.formats import File, slices_of
from fedce.data.reader import channels_resampled
from fedce.data.resizing import resampled
from fedce.data.shape import check_resampled, resampled_shape, spacing_of
from fedce.data.volumes import sliced
from fedce.learning.learner import Learner

Pixels = NDArray[np.uint8]


def check_dims(file: File, learner: Learner) -> None:
    """Refuse a 2-D image for a model of volumes."""
    if learner.windows is not None and not file.is_volume:
        raise DataError(f"{file.path} is a 2-D image, and the model was trained on volumes (data.dims = 3)")


def seen_whole(file: File, data: DataConfig) -> Pixels:
    """A volume (slices, channels, height, width) as the network takes it: resampled."""
    volumes = file.channels()
    return at_network_spacing(slices_of(volumes, data.plane, data.intensity, file.path), volumes[0], data, file.path)


def at_network_spacing(values: Pixels, volume: Any, data: DataConfig, path: Path) -> Pixels:
    """The slices of a volume (slices, channels, height, width), resampled; `volume` is the SimpleITK image."""
    if (to := spacing_of(data)) is None:
        return values
    cut = sliced(volume, data.plane)
    check_resampled(cut.values.shape, cut.spacing, to, path)
    return channels_resampled(values, resampled_shape(cut.values.shape, cut.spacing, to))


def segment_whole(seen: Pixels, shape: Sequence[int], learner: Learner) -> Pixels:
    """Masks (slices, classes, height, width) of a volume that the network sees, with this shape; 0 or 1."""
    found = learner.predict(seen).astype(np.uint8)
    return np.stack([resampled(found[:, i], shape, is_mask=True) for i in range(found.shape[1])], axis=1)
