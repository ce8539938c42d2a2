"""A parcel as a Flower record and back."""

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedce.base.errors import ReplyError
from fedce.core.messages import MAX_MODELS
from fedce.core.packing import Packet
from fedce.core.params import Vector
from fedce.site.wire import Parcel

ABOUT, ARRAYS = "fedce.about", "fedce.arrays"
RAW = {"float32": "fedce.float32", "uint8": "fedce.packed"}
"""What an array is called, by the type of its numbers: a vector, or a packet."""


def to_record(parcel: Parcel) -> RecordDict:
    # Flower stores arrays by content: an array that goes to all sites is at the SuperLink once. They are plain bytes,
    # because Flower's own format is a file that must be parsed before it is known to be harmless.
    arrays = ArrayRecord(
        {
            name: Array(kind := str(array.dtype), array.shape, RAW[kind], array.tobytes())
            for name, array in parcel.arrays.items()
        }
    )
    return RecordDict({ABOUT: ConfigRecord({"json": parcel.about}), ARRAYS: arrays})


def from_record(record: RecordDict) -> Parcel:
    about, arrays = record.get(ABOUT), record.get(ARRAYS)
    text = about.get("json") if isinstance(about, ConfigRecord) else None
    if not isinstance(text, str) or not isinstance(arrays, ArrayRecord):
        raise ReplyError("its message is not a message of fedce")
    if len(arrays) > MAX_MODELS + 1:
        raise ReplyError(f"it sent {len(arrays)} arrays, at most {MAX_MODELS + 1} are read")
    return Parcel(text, {name: _vector(array) for name, array in arrays.items()})


def _vector(array: Array) -> Vector | Packet:
    if array.stype == RAW["uint8"]:
        return np.frombuffer(array.data, np.uint8)
    if array.stype != RAW["float32"] or len(array.data) % 4:
        raise ReplyError("its arrays are neither vectors of 32-bit numbers nor packed ones")
    return np.frombuffer(array.data, "<f4").astype(np.float32)  # A copy, because received data can't be written to.
