"""What a network sees in training and in scoring: 2-D images in batches, or patches of volumes and whole volumes.

`Batch` and `Volumes` offer the same, so that the learner does not know which of them it has. All random choices use
torch's generator, which the learner seeds; where and by how many processes a site is trained therefore changes nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fedce.base.tables import DataConfig, TrainConfig
from fedce.data.shape import Patch, Stack, patch_of
from fedce.data.splits import spread_out

Pixels = NDArray[np.uint8]
Normalize = Literal["unit", "zscore"]
Labelled = tuple[int, ...] | None
"""Numbers of the classes that a site labels, which alone count in the loss; None: all."""
WINDOWS_AT_A_TIME = 4
MOST_MARKED = 10_000
"""Marked voxels of a class that a volume keeps to choose the centres of patches from."""


def to_unit(images: Tensor) -> Tensor:
    """Grey values 0 to 255 as numbers from 0 to 1."""
    return images.float().div_(255.0)


@dataclass(frozen=True)
class Seen:
    """Some images or patches, (n, channels, ...), as numbers from 0 to 1, with their masks."""

    unit: Tensor
    masks: Tensor
    moments: Tensor | None = None
    """Mean and deviation of the volume that each patch is of, (2, n, channels, 1, 1, 1); None: an image has its own."""


def to_input(unit: Tensor, normalize: Normalize, moments: Tensor | None = None) -> Tensor:
    """Grey values from 0 to 1, normalised as the network expects them."""
    if normalize == "unit":
        return unit
    if moments is None:
        mean, deviation = unit.mean((2, 3), keepdim=True), unit.std((2, 3), keepdim=True)
    else:
        mean, deviation = moments
    return (unit - mean) / deviation.clamp(min=1e-6)


class Images(Protocol):
    """A site's images of one split."""

    @property
    def masks(self) -> Tensor:
        """The masks of all 2-D images and slices, (n, classes, height, width)."""

    @property
    def labelled(self) -> Labelled:
        """The classes that the site labels."""

    @property
    def n_in_order(self) -> int:
        """Images or patches that `in_order` yields in all."""

    def __len__(self) -> int:
        """Images or volumes."""

    def epoch(self, config: TrainConfig) -> Iterator[Seen]:
        """The batches of one epoch, in an order and at places that torch's generator decides."""

    def in_order(self, size: int) -> Iterator[Seen]:
        """Everything once, in batches in a fixed order."""

    def whole(self, size: int) -> Iterator[Seen]:
        """Whole images in batches, or whole volumes one by one."""

    def slices(self, masks: Tensor, place: int) -> Tensor:
        """Masks for whole image or volume number `place`, as rows (n, classes, height, width)."""


@dataclass(frozen=True)
class Batch:
    """2-D images and masks on the device."""

    images: Tensor
    masks: Tensor
    labelled: Labelled = None

    def __len__(self) -> int:
        return len(self.images)

    @property
    def n_in_order(self) -> int:
        return len(self)

    def epoch(self, config: TrainConfig) -> Iterator[Seen]:
        for rows in torch.split(torch.randperm(len(self)).to(self.images.device), config.batch_size):
            yield Seen(to_unit(self.images[rows]), self.masks[rows].float())

    def in_order(self, size: int) -> Iterator[Seen]:
        """Without copies of the bytes."""
        for images, masks in zip(torch.split(self.images, size), torch.split(self.masks, size), strict=True):
            yield Seen(to_unit(images), masks)

    def whole(self, size: int) -> Iterator[Seen]:
        return self.in_order(size)

    def slices(self, masks: Tensor, place: int) -> Tensor:
        return masks


@dataclass(frozen=True, eq=False)
class Volume:
    """One volume, as views of the rows that hold its slices."""

    images: Pixels
    """(slices, channels, height, width)."""
    masks: Pixels
    labelled: Labelled = None

    @property
    def shape(self) -> Patch:
        slices, _, height, width = self.images.shape
        return slices, height, width

    @cached_property
    def moments(self) -> NDArray[np.float32]:
        """(2, channels, 1, 1, 1): mean and standard deviation of the grey values, from 0 to 1."""
        greys = np.arange(256) / 255.0
        found = []
        for channel in range(self.images.shape[1]):
            share = np.bincount(self.images[:, channel].ravel(), minlength=256) / np.prod(self.shape)
            mean = float(share @ greys)
            found.append((mean, float(np.sqrt(share @ (greys - mean) ** 2))))
        return np.array(found, np.float32).T[:, :, None, None, None]

    @cached_property
    def marked(self) -> tuple[NDArray[np.int64], ...]:
        """For each class that is labelled and marked, some of its voxels as (n, 3)."""
        found = []
        for i in range(self.masks.shape[1]) if self.labelled is None else self.labelled:
            places = np.flatnonzero(self.masks[:, i])
            some = spread_out(places, min(1.0, MOST_MARKED / max(len(places), 1)))
            if len(some):
                found.append(np.stack(np.unravel_index(some, self.shape), axis=1))
        return tuple(found)

    def drawn(self, patch: Patch, *, on_marked: bool) -> Patch:
        """Where a random patch begins; with `on_marked` its centre is a marked voxel, as far as the border allows."""
        if on_marked and self.marked:
            voxels = self.marked[_one_of(len(self.marked))]
            middle = voxels[_one_of(len(voxels))].tolist()
            at = [min(max(m - p // 2, 0), max(n - p, 0)) for m, p, n in zip(middle, patch, self.shape, strict=True)]
        else:
            at = [_one_of(max(n - p, 0) + 1) for p, n in zip(patch, self.shape, strict=True)]
        return _begun(at, patch, self.shape)

    def tiles(self, patch: Patch) -> Iterator[Patch]:
        """Where the patches begin that cover the volume."""
        axes = []
        for p, n in zip(patch, self.shape, strict=True):
            count = -(-n // p)
            axes.append([round(i * max(n - p, 0) / max(count - 1, 1)) for i in range(count)])
        for at in product(*axes):
            yield _begun(at, patch, self.shape)


def _one_of(n: int) -> int:
    return int(torch.randint(n, (1,)))


def _begun(at: Sequence[int], patch: Patch, shape: Patch) -> Patch:
    """The place of a patch; along an axis on which the volume is smaller, the volume lies in the patch's middle."""
    z, y, x = (a if n >= p else -((p - n) // 2) for a, p, n in zip(at, patch, shape, strict=True))
    return z, y, x


def cut(array: Pixels, at: Patch, size: Patch) -> Pixels:
    """A part (channels, *size) of an array (slices, channels, height, width), black where it leaves the array."""
    found = np.zeros((array.shape[1], *size), np.uint8)
    inner, outer = [], []
    for a, n, whole in zip(at, size, (array.shape[0], *array.shape[2:]), strict=True):
        first, last = max(a, 0), min(a + n, whole)
        inner.append(slice(first, last))
        outer.append(slice(first - a, last - a))
    found[:, outer[0], outer[1], outer[2]] = array[inner[0], :, inner[1], inner[2]].swapaxes(0, 1)
    return found


def is_on_marked(i: int, part: float) -> bool:
    """Whether patch i of an epoch has a marked centre: this part of the patches has, at even distances.

    >>> [is_on_marked(i, 1 / 3) for i in range(6)]
    [False, False, True, False, False, True]
    """
    return int((i + 1) * part + 1e-9) > int(i * part + 1e-9)


class Volumes:
    """Volumes in the computer's memory, or mapped from the disk; only patches go to the device."""

    def __init__(
        self, volumes: Sequence[Volume], patch: Patch, device: torch.device, labelled: Labelled = None
    ) -> None:
        self.volumes, self.patch, self.device, self.labelled = tuple(volumes), patch, device, labelled
        self._height = max(volume.shape[1] for volume in volumes)
        self._width = max(volume.shape[2] for volume in volumes)

    @classmethod
    def of(
        cls,
        images: Pixels,
        masks: Pixels,
        stacks: Sequence[Stack],
        patch: Patch,
        device: torch.device,
        labelled: Labelled = None,
    ) -> "Volumes":
        """The volumes of a site, whose slices are rows of these arrays."""
        return cls([Volume(stack.of(images), stack.of(masks), labelled) for stack in stacks], patch, device, labelled)

    @classmethod
    def unmarked(cls, images: Sequence[Pixels], patch: Patch, device: torch.device) -> "Volumes":
        """Volumes (slices, channels, height, width) without masks."""
        return cls([Volume(one, np.zeros_like(one[:, :1])) for one in images], patch, device)

    def __len__(self) -> int:
        return len(self.volumes)

    @property
    def masks(self) -> Tensor:
        return torch.cat([self._row_sized(torch.tensor(volume.masks).bool()) for volume in self.volumes])

    @cached_property
    def n_in_order(self) -> int:
        return sum(len(list(volume.tiles(self.patch))) for volume in self.volumes)

    def epoch(self, config: TrainConfig) -> Iterator[Seen]:
        order = torch.randperm(len(self) * config.patches).tolist()
        for start in range(0, len(order), config.batch_size):
            batch = []
            for i in range(start, min(start + config.batch_size, len(order))):
                volume = self.volumes[order[i] % len(self)]
                batch.append((volume, volume.drawn(self.patch, on_marked=is_on_marked(i, config.foreground))))
            yield self._seen(batch, self.patch)

    def in_order(self, size: int) -> Iterator[Seen]:
        places = [(volume, at) for volume in self.volumes for at in volume.tiles(self.patch)]
        for start in range(0, len(places), size):
            yield self._seen(places[start : start + size], self.patch)

    def whole(self, size: int) -> Iterator[Seen]:
        for volume in self.volumes:
            yield self._seen([(volume, _begun((0, 0, 0), self.patch, volume.shape))], self._whole_size(volume))

    def slices(self, masks: Tensor, place: int) -> Tensor:
        """Without what was added around a volume that is smaller than a patch."""
        volume = self.volumes[place]
        z, y, x = (-at for at in _begun((0, 0, 0), self.patch, volume.shape))
        n, height, width = volume.shape
        return self._row_sized(masks[0, :, z : z + n, y : y + height, x : x + width].movedim(0, 1))

    def _row_sized(self, masks: Tensor) -> Tensor:
        """Slices padded to the largest of all volumes, so that all slices fit into one tensor."""
        return functional.pad(masks, (0, self._width - masks.shape[3], 0, self._height - masks.shape[2]))

    def _whole_size(self, volume: Volume) -> Patch:
        z, y, x = (max(n, p) for n, p in zip(volume.shape, self.patch, strict=True))
        return z, y, x

    def _seen(self, places: Sequence[tuple[Volume, Patch]], size: Patch) -> Seen:
        images, masks = (
            torch.from_numpy(np.stack([cut(array, at, size) for array, at in arrays])).to(self.device)
            for arrays in (
                [(volume.images, at) for volume, at in places],
                [(volume.masks, at) for volume, at in places],
            )
        )
        moments = torch.from_numpy(np.stack([volume.moments for volume, _ in places], axis=1)).to(self.device)
        return Seen(to_unit(images), masks.float(), moments)


@dataclass(frozen=True)
class Windows:
    """How the network sees volumes: in patches, and whole volumes by windows that overlap by a part of the patch."""

    patch: Patch
    overlap: float = 0.25

    @classmethod
    def asked_by(cls, data: DataConfig) -> "Windows | None":
        patch = patch_of(data)
        return cls(patch, data.overlap) if patch else None

    @cached_property
    def inferer(self) -> Any:
        from monai.inferers import SlidingWindowInferer

        return SlidingWindowInferer(
            self.patch, WINDOWS_AT_A_TIME, self.overlap, mode="gaussian", cache_roi_weight_map=True
        )
