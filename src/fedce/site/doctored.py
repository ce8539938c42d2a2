"""Images and masks of sites that cheat with their data. The test images stay, to measure the damage."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedce.data import SiteData
from fedce.data.splits import Split


def with_one_image(data: SiteData) -> SiteData:
    """The paper's free rider: a site that has one image and repeats it. Its test images stay, to measure the damage."""
    n_train = data.n_by_part["train"]
    n_copies = n_train + data.n_by_part["validation"]
    # One image, or all slices of one volume.
    one = data.stacks(data.split.train)[0].rows if data.patch else data.split.train[:1]
    n = len(one)
    rows = np.concatenate([np.tile(one, n_copies), data.split.test])
    # Every copy counts as an image of its own case.
    copies = tuple(f"copy {i // n}" for i in range(n * n_copies))
    origins = [data.origins[row] for row in rows] if data.origins else []
    ends = np.cumsum([n * n_train, n * (n_copies - n_train), len(data.split.test)])
    return replace(
        data,
        images=data.images[rows],
        masks=data.masks[rows],
        files=(*copies, *(data.files[row] for row in data.split.test)),
        cases=(*copies, *(data.cases[row] for row in data.split.test)),
        split=Split(*(np.arange(start, end) for start, end in zip((0, *ends), ends, strict=False))),
        origins=tuple(replace(one, item=-1 - i // n) if i < ends[1] else one for i, one in enumerate(origins)),
    )


def with_inverted_labels(data: SiteData) -> SiteData:
    """Background as foreground, in training and validation. The test images stay, to measure the damage."""
    return _with_own(data, masks=1 - data.masks)


def with_dilated_masks(pixels: float) -> Callable[[SiteData], SiteData]:
    """Masks in training and validation grow by some pixels."""

    def change(data: SiteData) -> SiteData:
        from scipy.ndimage import grey_dilation

        side = 2 * round(pixels) + 1
        return _with_own(data, masks=grey_dilation(data.masks, (1, 1, side, side)))

    return change


def with_inverted_images(data: SiteData) -> SiteData:
    return _with_own(data, images=data.images.max() - data.images)


def _with_own(
    data: SiteData, images: NDArray[np.uint8] | None = None, masks: NDArray[np.uint8] | None = None
) -> SiteData:
    """The site with other images or masks; those of the test split stay, to measure the damage."""
    images, masks = data.images.copy() if images is None else images, data.masks.copy() if masks is None else masks
    test = data.split.test
    images[test], masks[test] = data.images[test], data.masks[test]
    return replace(data, images=images, masks=masks)
