"""A parcel as a Flower record and back."""

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedce.errors import ReplyError
from fedce.wire import Parcel

ABOUT, ARRAYS = "fedce.about", "fedce.arrays"


def to_record(parcel: Parcel) -> RecordDict:
    # Arrays are stored by content: one that goes to all sites is at the SuperLink once.
    arrays = ArrayRecord({name: Array(array) for name, array in parcel.arrays.items()})
    return RecordDict({ABOUT: ConfigRecord({"json": parcel.about}), ARRAYS: arrays})


def from_record(record: RecordDict) -> Parcel:
    about, arrays = record.get(ABOUT), record.get(ARRAYS)
    text = about.get("json") if isinstance(about, ConfigRecord) else None
    if not isinstance(text, str) or not isinstance(arrays, ArrayRecord):
        raise ReplyError("its message is not one of fedce's")
    try:
        return Parcel(text, {name: array.numpy() for name, array in arrays.items()})
    except (ValueError, TypeError, EOFError) as error:
        raise ReplyError(f"its arrays can't be read ({error})") from None
