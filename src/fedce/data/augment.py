"""Random changes of training images, by name. Built on MONAI's transforms; the seed alone decides them."""

from collections.abc import Iterator
from contextlib import contextmanager
from math import pi
from typing import Any

import torch
from torch import Tensor

BOTH = ("image", "mask")


class Augment:
    """Applies one of the named sets of random transforms to batches of unit-range images (or patches) and masks."""

    def __init__(self, name: str, n_spatial: int = 2) -> None:
        from monai.transforms import Compose

        self._transform = Compose(_transforms(name, n_spatial))

    def seed(self, seed: int) -> None:
        self._transform.set_random_state(seed % 2**32)

    def __call__(self, images: Tensor, masks: Tensor) -> tuple[Tensor, Tensor]:
        with _plain_tensors():
            pairs = [self._transform({"image": image, "mask": mask}) for image, mask in zip(images, masks, strict=True)]
        changed, changed_masks = (torch.stack([pair[key] for pair in pairs]) for key in BOTH)
        return changed, changed_masks


@contextmanager
def _plain_tensors() -> Iterator[None]:
    """Switch off MONAI's metadata for every tensor: carrying it takes longer than the transforms."""
    from monai.data import get_track_meta, set_track_meta

    before = get_track_meta()
    set_track_meta(False)
    try:
        yield
    finally:
        set_track_meta(before)


def _transforms(name: str, n_spatial: int) -> list[Any]:
    from monai.transforms import RandAdjustContrastd, RandAffined, RandFlipd, RandScaleIntensityd

    flips = [RandFlipd(BOTH, prob=0.5, spatial_axis=axis) for axis in range(n_spatial)]
    if name == "flips":
        return flips
    return [
        *flips,
        RandAffined(
            BOTH,
            prob=0.8,
            # Volumes are turned about the axis of their slices alone: slices are mostly thicker than pixels.
            rotate_range=pi / 6 if n_spatial == 2 else (pi / 6, 0, 0),
            scale_range=0.15,
            mode=("bilinear", "nearest"),
            padding_mode="zeros",
        ),
        # Channel by channel, because cameras differ in colour as much as in brightness.
        RandScaleIntensityd("image", factors=0.2, prob=0.5, channel_wise=True),
        RandAdjustContrastd("image", prob=0.5, gamma=(0.7, 1.5)),
    ]
