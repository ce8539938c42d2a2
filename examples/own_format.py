"""A file format of your own: images and masks as NumPy arrays.

    fedce run --data DIR --set data.format=examples.own_format:NUMPY

reads DIR/<site>/images/*.npy and masks/*.npy beside PNG, NIfTI and all other formats. `read` gives an image as an
array, (height, width) or (height, width, 3); a format that holds volumes gives a SimpleITK image. An installed package
may give it a shorter name, by an entry point of the group fedce.formats.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedce.data.formats import Format


def read(path: Path) -> NDArray[Any]:
    # Never pickled objects: to load one is to run what somebody wrote into the file.
    values: NDArray[Any] = np.load(path, allow_pickle=False)
    return values


NUMPY = Format(name="NumPy", endings=(".npy",), holds="image", read=read)
