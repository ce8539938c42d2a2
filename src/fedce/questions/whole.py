"""Volumes that the network sees as volumes: from a file to the network's spacing, and its masks back."""

import numpy as np
from numpy.typing import NDArray

from fedce.base.errors import DataError
from fedce.base.tables import DataConfig
from fedce.data.formats import File, slices_of
from fedce.data.pixels import with_channels
from fedce.data.reader import channels_resampled
from fedce.data.resizing import resampled
from fedce.data.shape import resampled_shape, spacing_of
from fedce.data.volumes import sliced
from fedce.learning.learner import Learner

Pixels = NDArray[np.uint8]


def check_dims(file: File, learner: Learner) -> None:
    """Refuse a 2-D image for a model of volumes."""
    if learner.windows is not None and not file.is_volume:
        raise DataError(f"{file.path} is a 2-D image, and the model was trained on volumes (data.dims = 3)")


def seen_whole(file: File, data: DataConfig, n_channels: int) -> Pixels:
    """A volume (slices, channels, height, width) as the network takes it: resampled, with its number of channels."""
    volumes, to = file.channels(), spacing_of(data)
    values = slices_of(volumes, data.plane, data.intensity, file.path)
    if to is not None:
        cut = sliced(volumes[0], data.plane)
        values = channels_resampled(values, resampled_shape(cut.values.shape, cut.spacing, to))
    return np.stack([with_channels(one, n_channels) for one in values])


def segment_whole(file: File, data: DataConfig, learner: Learner, n_channels: int) -> Pixels:
    """Masks (slices, classes, height, width) of a volume, on the grid of its file; 0 or 1."""
    found = learner.predict(seen_whole(file, data, n_channels)).astype(np.uint8)
    shape = sliced(file.channels()[0], data.plane).values.shape
    return np.stack([resampled(found[:, i], shape, is_mask=True) for i in range(found.shape[1])], axis=1)
