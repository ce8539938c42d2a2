"""Models in fewer bytes: as differences to a model that both sides hold, and updates as 16-bit numbers.

A packet holds a model exactly. What it costs depends on the model: floats near those of the base share their leading
bits, and an update whose numbers have 16 bits (`rounded`) needs only these.
"""

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedce.core.params import Layout, Params, Vector

Packet = NDArray[np.uint8]
Halves = NDArray[np.float16]
DIFFERENCES, HALVES = 0, 1
"""What a packet holds, as its first byte: differences only, or 16-bit numbers for the trainable entries."""
LARGEST_HALF = float(np.finfo(np.float16).max)
CHUNK = 2**16
"""Numbers whose first bytes, second bytes and so on are packed together; zlib adapts to each of these."""
SIGN = np.uint32(2**31)


class PacketError(ValueError):
    """A packet that can't be read."""


def packed(model: Params, base: Params | None = None, *, halves: bool = False) -> Packet:
    """The model as a packet; `base` is a model of the same layout that the reader holds.

    `halves` asks for 16-bit numbers where they give the model exactly, as they do after `rounded`.

    >>> from fedce.core.params import Entry
    >>> layout = Layout((Entry("weight", (1000,), "trainable"),))
    >>> w = Params(layout, np.linspace(0, 1, 1000, dtype=np.float32))
    >>> len(packed(w, w)) < 100 < len(packed(w))
    True
    """
    start = base.vector if base is not None else np.zeros_like(model.vector)
    n = model.layout.n_trainable
    if halves and base is not None and np.isfinite(base.trainable).all() and np.isfinite(model.trainable).all():
        found = _halves(model.trainable.astype(np.float64) - base.trainable)
        if _same_bits(_moved(base.trainable, found), model.trainable):
            return _deflated(HALVES, [found.view("<u2"), _differences(model.vector[n:], start[n:])])
    return _deflated(DIFFERENCES, [_differences(model.vector, start)])


def unpacked(packet: Packet, layout: Layout, base: Params | None = None) -> Params:
    """The model in a packet; never reads more than the layout's size, whatever the packet holds."""
    kind = packet[:1].tolist()
    if kind not in ([DIFFERENCES], [HALVES]) or (kind == [HALVES] and base is None):
        raise PacketError(f"it begins with {kind}")
    n = layout.n_trainable if kind == [HALVES] else 0
    content = _inflated(packet[1:].tobytes(), 2 * n + 4 * (layout.size - n))
    start = base.vector if base is not None else np.zeros(layout.size, np.float32)
    halves = _numbers(content[: 2 * n], "<u2").view(np.float16)
    rest = _undone(_numbers(content[2 * n :], "<u4"), start[n:])
    return Params(layout, np.concatenate([_moved(start[:n], halves), rest]))


def rounded(start: Params, model: Params, rest: Vector | None) -> tuple[Params, Vector | None]:
    """The model whose update from `start` has 16-bit numbers, and what this leaves out of the update.

    `rest` is what earlier rounds left out; it is added first (error feedback), so nothing is lost for good. Running
    statistics and counters stay as they are: they are few, and a variance must not be rounded below zero. A model with
    numbers that are not finite stays as it is; the border refuses it.
    """
    if not np.isfinite(model.trainable).all():
        return model, rest
    aim = model.trainable.astype(np.float64) - start.trainable
    if rest is not None:
        aim += rest
    sent = _moved(start.trainable, _halves(aim))
    # The reader gets no halves that the two models do not tell: where rounding hides them, the entry waits.
    unclear = _moved(start.trainable, _halves(sent.astype(np.float64) - start.trainable)) != sent
    sent[unclear] = start.trainable[unclear] + np.float32(0)
    left = aim - (sent.astype(np.float64) - start.trainable)
    vector = np.concatenate([sent, model.vector[model.layout.n_trainable :]])
    return Params(model.layout, vector), left.astype(np.float32)


def _halves(update: NDArray[np.float64]) -> Halves:
    # Plus zero, because a negative zero would be another number for the reader, who finds halves from models.
    return np.clip(update, -LARGEST_HALF, LARGEST_HALF).astype(np.float16) + np.float16(0)


def _moved(start: Vector, halves: Halves) -> Vector:
    """The one addition that both sides make, in float32."""
    moved: Vector = start + halves.astype(np.float32)
    return moved


def _same_bits(one: Vector, other: Vector) -> bool:
    return bool(np.array_equal(one.view(np.uint32), np.ascontiguousarray(other).view(np.uint32)))


def _differences(vector: Vector, base: Vector) -> NDArray[np.uint32]:
    """For each number, how many floats lie between it and the base's; small and positive where the two are close."""
    steps = (_place(vector) - _place(base)).view(np.int32)
    return ((steps << 1) ^ (steps >> 31)).view(np.uint32)


def _undone(differences: NDArray[np.uint32], base: Vector) -> Vector:
    steps = (differences >> np.uint32(1)) ^ (np.uint32(0) - (differences & np.uint32(1)))
    place = _place(base) + steps
    bits = np.where(place & SIGN, place ^ SIGN, ~place)
    return bits.astype(np.uint32).view(np.float32)


def _place(vector: Vector) -> NDArray[np.uint32]:
    """Each float's place among all floats, in their order."""
    bits = np.ascontiguousarray(vector).view(np.uint32)
    return np.where(bits & SIGN, ~bits, bits ^ SIGN)


def _deflated(kind: int, parts: list[NDArray[Any]]) -> Packet:
    # Runs of equal bytes, and bytes by how often they occur: the noise of low bits has no other pattern to find.
    stream = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS, 9, zlib.Z_RLE)
    pieces = [bytes([kind])]
    for part in parts:
        for at in range(0, len(part), CHUNK):
            chunk = part[at : at + CHUNK].astype(part.dtype.newbyteorder("<"))
            planes = chunk.view(np.uint8).reshape(len(chunk), -1).T
            pieces.append(stream.compress(planes.tobytes()))
    return np.frombuffer(b"".join([*pieces, stream.flush()]), np.uint8)


def _inflated(content: bytes, n_bytes: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(content, n_bytes + 1)
    except zlib.error as error:
        raise PacketError(f"its content is damaged: {error}") from None
    if len(found) != n_bytes or not stream.eof or stream.unused_data:
        raise PacketError(f"expected {n_bytes} bytes of content")
    return found


def _numbers(content: bytes, kind: str) -> NDArray[Any]:
    dtype = np.dtype(kind)
    numbers = np.empty(len(content) // dtype.itemsize, dtype)
    for at in range(0, len(numbers), CHUNK):
        part = numbers[at : at + CHUNK]
        planes = np.frombuffer(content, np.uint8, part.nbytes, at * dtype.itemsize)
        part.view(np.uint8).reshape(len(part), -1)[:] = planes.reshape(-1, len(part)).T
    return numbers.astype(dtype.newbyteorder("="))
