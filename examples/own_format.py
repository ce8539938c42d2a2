"""A file format of your own: images and masks as NumPy arrays.

    fedce run --data DIR --set data.format=examples.own_format:NUMPY

reads DIR/<site>/images/*.npy and masks/*.npy in addition to PNG, NIfTI and all other formats. `read` returns an image
as an array, (height, width) or (height, width, 3); the reader of a format for volumes returns a SimpleITK image. An
installed package may give the format a shorter name, by an entry point of the group fedce.formats.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedce.data.formats import Format


def read(path: Path) -> NDArray[Any]:
    # No pickled objects: loading one would run code from the file.
    values: NDArray[Any] = np.load(path, allow_pickle=False)
    return values


NUMPY = Format(name="NumPy", endings=(".npy",), holds="image", read=read)
