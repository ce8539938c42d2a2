"""A model as it travels: a vector, or a packet if the experiment packs models."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedce.base.errors import ReplyError
from fedce.base.tables import Pack
from fedce.core.packing import PacketError, packed, unpacked
from fedce.core.params import Layout, Params

Arrays = Mapping[str, NDArray[Any]]


def sent_as(model: Params, pack: Pack, base: Params | None) -> NDArray[Any]:
    """A model as it travels; a base of another layout is of no use."""
    if pack == "none":
        return model.vector
    return packed(model, base if base and base.layout == model.layout else None, halves=pack == "fp16")


def model_from(arrays: Arrays, key: str, layout: Layout, pack: Pack, base: Params | None) -> Params:
    """A model that came; `base` is the model that a packet may be a difference to."""
    vector = arrays.get(key)
    came = "nothing" if vector is None else f"{getattr(vector, 'dtype', '?')} {getattr(vector, 'shape', '?')}"
    if pack == "none":
        if not isinstance(vector, np.ndarray) or vector.dtype != np.float32 or vector.shape != (layout.size,):
            raise ReplyError(f"expected a model of {layout.size} numbers of 32 bits, got {came}")
        return Params(layout, vector)
    if not isinstance(vector, np.ndarray) or vector.dtype != np.uint8 or vector.ndim != 1:
        raise ReplyError(f"expected a packed model, because the experiment has pack = {pack!r}, got {came}")
    try:
        return unpacked(vector, layout, base if base and base.layout == layout else None)
    except PacketError as error:
        raise ReplyError(f"its packed model of {layout.size} numbers can't be read ({error})") from None
