"""Model parameters as one flat float32 vector and a layout that says what lies where.

All arithmetic on models is here. It walks the vectors in blocks that fit the cache and accumulates in float64,
so that results depend neither on the engine nor on the number of threads.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from hashlib import sha256
from math import prod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

Vector = NDArray[np.float32]
Kind = Literal["trainable", "buffer", "counter"]
KINDS: tuple[Kind, ...] = ("trainable", "buffer", "counter")

# A multiple of the cache line; small enough that a block of some ten sites in float64 stays in the L2 cache.
BLOCK = 4096
FEW = 32
MAX_EXACT_COUNT = 2**24
"""Whole numbers up to this one are exact in float32."""


@dataclass(frozen=True)
class Entry:
    """One tensor of a model."""

    name: str
    shape: tuple[int, ...]
    kind: Kind
    norm: bool = False
    """Whether the tensor belongs to a normalisation layer."""

    @property
    def size(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """Where each tensor lies in the vector: trainable entries first, then float buffers, then counters.

    >>> layout = Layout((Entry("conv.weight", (2, 3), "trainable"), Entry("norm.running_mean", (2,), "buffer")))
    >>> layout.size, layout.n_trainable
    (8, 6)
    """

    entries: tuple[Entry, ...]

    def __post_init__(self) -> None:
        order = [KINDS.index(entry.kind) for entry in self.entries]
        if order != sorted(order):
            raise ValueError("layout entries must be ordered: trainable, buffer, counter")

    @cached_property
    def size(self) -> int:
        return sum(entry.size for entry in self.entries)

    @cached_property
    def n_trainable(self) -> int:
        return sum(entry.size for entry in self.entries if entry.kind == "trainable")

    @cached_property
    def n_averaged(self) -> int:
        """Number of trainable values and float buffers: everything that a weighted mean applies to."""
        return sum(entry.size for entry in self.entries if entry.kind != "counter")

    def slices(self) -> Iterator[tuple[Entry, slice]]:
        start = 0
        for entry in self.entries:
            yield entry, slice(start, start + entry.size)
            start += entry.size

    @cached_property
    def running_statistics(self) -> tuple[tuple[slice, slice], ...]:
        """Where each batch norm's running means and running variances lie."""
        places = {entry.name: where for entry, where in self.slices()}
        layers = [name.removesuffix("running_mean") for name in places if name.endswith("running_mean")]
        pairs = [(places[f"{layer}running_mean"], places.get(f"{layer}running_var")) for layer in layers]
        return tuple((means, variances) for means, variances in pairs if variances is not None)

    @cached_property
    def norm(self) -> NDArray[np.bool_]:
        """Which entries belong to normalisation layers."""
        return np.concatenate([np.full(entry.size, entry.norm) for entry in self.entries])

    @cached_property
    def digest(self) -> str:
        return sha256(repr(self.entries).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class Params:
    """A model: its vector, read by its layout.

    >>> layout = Layout((Entry("weight", (2,), "trainable"),))
    >>> a, b = Params(layout, np.float32([0, 0])), Params(layout, np.float32([4, 8]))
    >>> weighted_sum([a, b], [0.25, 0.75]).vector
    array([3., 6.], dtype=float32)
    """

    layout: Layout
    vector: Vector

    def __post_init__(self) -> None:
        if self.vector.shape != (self.layout.size,) or self.vector.dtype != np.float32:
            raise ValueError(
                f"expected a float32 vector of length {self.layout.size}, "
                f"got {self.vector.dtype} of shape {self.vector.shape}"
            )

    @property
    def trainable(self) -> Vector:
        return self.vector[: self.layout.n_trainable]

    @property
    def digest(self) -> str:
        return sha256(np.ascontiguousarray(self.vector).data).hexdigest()


def blocks(size: int) -> Iterator[slice]:
    """The blocks in which long vectors are processed."""
    return (slice(start, min(start + BLOCK, size)) for start in range(0, size, BLOCK))


def weighted_sum(parts: Sequence[Params], weights: Sequence[float]) -> Params:
    """Sum of weights times parts; counters, which count batches and can't be averaged, take their maximum."""
    layout = parts[0].layout
    vector = np.empty(layout.size, np.float32)
    for block in blocks(layout.n_averaged):
        total, term = np.zeros((2, block.stop - block.start))
        for part, weight in zip(parts, weights, strict=True):
            term[:] = part.vector[block]
            term *= weight
            total += term
        vector[block] = total
    counters = slice(layout.n_averaged, None)
    vector[counters] = np.max([part.vector[counters] for part in parts], axis=0)
    return Params(layout, vector)


def leave_out(mean: Params, weight: float, part: Params) -> Params:
    """The mean without one of its parts: (mean - weight * part) / (1 - weight); counters stay."""
    vector = mean.vector.copy()
    for block in blocks(mean.layout.n_averaged):
        rest = mean.vector[block].astype(np.float64) - weight * part.vector[block].astype(np.float64)
        vector[block] = rest / (1.0 - weight)
    return Params(mean.layout, vector)


def splice(trainable: Params, rest: Params) -> Params:
    """The trainable entries of one model with the buffers and counters of another."""
    n = trainable.layout.n_trainable
    return Params(trainable.layout, np.concatenate([trainable.vector[:n], rest.vector[n:]]))


Stays = Literal["nothing", "statistics", "norms"]
"""The part of a model that is never exchanged: nothing, running statistics of batch norms, or all norm layers."""


def shared_layout(layout: Layout, stays: Stays) -> Layout:
    """The entries of a model that sites exchange.

    >>> scale, mean = Entry("norm.weight", (2,), "trainable", norm=True), Entry("norm.mean", (2,), "buffer", norm=True)
    >>> [entry.name for entry in shared_layout(Layout((scale, mean)), "statistics").entries]
    ['norm.weight']
    """
    if stays == "nothing":
        return layout
    kept = [
        entry for entry in layout.entries if not entry.norm or (stays == "statistics" and entry.kind == "trainable")
    ]
    return Layout(tuple(kept))


def part_of(whole: Params, layout: Layout) -> Params:
    """The entries of a model that a smaller layout names."""
    return whole if whole.layout == layout else Params(layout, whole.vector[_places(whole.layout, layout)])


def completed(part: Params, whole: Params) -> Params:
    """A part of a model, with everything it lacks taken from another model."""
    if part.layout == whole.layout:
        return part
    vector = whole.vector.copy()
    vector[_places(whole.layout, part.layout)] = part.vector
    return Params(whole.layout, vector)


def pooled(parts: Sequence[Params]) -> Params:
    """The mean of models with equal weights; variances also include how far the models' running means lie apart."""
    mean = weighted_sum(parts, [1 / len(parts)] * len(parts))
    for at_mean, at_variance in mean.layout.running_statistics:
        mean.vector[at_variance] += np.var([part.vector[at_mean] for part in parts], axis=0)
    return mean


@lru_cache(maxsize=8)
def _places(whole: Layout, part: Layout) -> NDArray[np.int64]:
    """Where the entries of a part lie in the whole."""
    by_name = {entry.name: where for entry, where in whole.slices()}
    ranges = [np.arange(by_name[entry.name].start, by_name[entry.name].stop) for entry in part.entries]
    return np.concatenate([np.empty(0, np.int64), *ranges])


def gram(parts: Sequence[Params], origin: Params) -> NDArray[np.float64]:
    """Inner products of the updates (part - origin), trainable entries only."""
    return inner_products([part.trainable for part in parts], origin.trainable)


def inner_products(vectors: Sequence[Vector], origin: Vector | None = None) -> NDArray[np.float64]:
    """Inner products of the vectors, or of the vectors minus an origin."""
    n = len(vectors)
    products = np.zeros((n, n))
    room = np.empty(n * BLOCK)
    # A product of few rows with themselves takes three times as long as with a copy of them.
    is_few = n < FEW
    with one_blas_thread():
        for block in blocks(len(vectors[0])):
            rows = room[: n * (block.stop - block.start)].reshape(n, -1)
            for row, vector in zip(rows, vectors, strict=True):
                row[:] = vector[block]
            if origin is not None:
                rows -= origin[block].astype(np.float64)
            products += rows @ (rows.copy() if is_few else rows).T
    return products


def one_blas_thread() -> AbstractContextManager[Any]:
    """One thread: for products of this size, a second thread makes them several times slower."""
    limited: AbstractContextManager[Any] = _blas().limit(limits=1)
    return limited


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


SKETCH, WIDE = 64, 4096
"""Lengths of a short sketch and of a wide one, which is folded to the short one."""
ROWS = 16
"""A wide sketch is summed this many rows at a time, because they fit the cache."""


def sketch(vector: Vector) -> list[float]:
    """A few numbers whose inner products estimate those of the vectors; linear, and equal for equal vectors.

    Every entry goes to one of the numbers with a random sign (a count sketch).
    """
    return folded(wide_sketch(vector))


def folded(wide: NDArray[np.float64]) -> list[float]:
    """The short sketch of the vector that has this wide sketch."""
    return [float(value) for value in wide.reshape(-1, SKETCH).sum(axis=0)]


def wide_sketch(vector: Vector, origin: Vector | None = None) -> NDArray[np.float64]:
    """A sketch of 4,096 numbers of the vector, or of the vector minus an origin; cosines are off by about 0.016."""
    signs, whole = _signs(len(vector)), len(vector) - len(vector) % WIDE
    total, room = np.zeros(WIDE), np.empty((ROWS, WIDE), np.float32)
    for start in range(0, whole, ROWS * WIDE):
        part = slice(start, min(start + ROWS * WIDE, whole))
        rows = room[: (part.stop - start) // WIDE]
        rows[:] = vector[part].reshape(-1, WIDE)
        if origin is not None:
            rows -= origin[part].reshape(-1, WIDE)
        rows *= signs[part].reshape(-1, WIDE)
        total += rows.sum(axis=0)
    rest = vector[whole:] if origin is None else vector[whole:] - origin[whole:]
    total[: len(rest)] += rest * signs[whole : len(vector)]
    return total


@lru_cache(maxsize=2)
def _signs(length: int) -> Vector:
    size = -(-length // SKETCH) * SKETCH
    return np.random.default_rng(0).choice(np.array([-1, 1], np.float32), size)


def cosine(a: Vector, b: Vector) -> float | None:
    """Cosine of two vectors, in [-1, 1]; None if one of them is zero and has no direction."""
    ab = aa = bb = 0.0
    for block in blocks(len(a)):
        x, y = a[block].astype(np.float64), b[block].astype(np.float64)
        ab, aa, bb = ab + float(x @ y), aa + float(x @ x), bb + float(y @ y)
    # Rounding may carry the quotient past its bounds.
    return min(max(ab / float(np.sqrt(aa) * np.sqrt(bb)), -1.0), 1.0) if aa > 0 and bb > 0 else None


def to_named(params: Params) -> dict[str, NDArray[Any]]:
    """The model's tensors by name, as a network's state; counters are whole numbers."""
    return {
        entry.name: params.vector[where]
        .reshape(entry.shape)
        .astype(np.int64 if entry.kind == "counter" else np.float32, copy=False)
        for entry, where in params.layout.slices()
    }


def from_named(layout: Layout, tensors: Mapping[str, NDArray[Any]]) -> Params:
    """The inverse of to_named; a missing tensor, or one of another shape, is a ValueError."""
    vector = np.empty(layout.size, np.float32)
    for entry, where in layout.slices():
        if entry.name not in tensors or tensors[entry.name].shape != entry.shape:
            found = tensors[entry.name].shape if entry.name in tensors else "nothing"
            raise ValueError(f"expected {entry.name!r} of shape {entry.shape}, found {found}")
        vector[where] = tensors[entry.name].reshape(-1)
    return Params(layout, vector)
