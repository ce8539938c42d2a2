"""Images in rows, as one picture file."""

from collections.abc import Sequence
from io import BytesIO

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from fedce.pictures.style import ON_WHITE, save_png

Titled = tuple[NDArray[np.uint8], str]
"""An image (height, width, 3) and the text above it."""


INCHES = 1.5
"""The width of an image."""


def image_grid(rows: Sequence[tuple[str, Sequence[Titled]]], dpi: int = 110, points: float = 6) -> bytes:
    """Rows of titled images, each row with a name, as a PNG file; `points` is the size of the titles."""
    n_columns = max(len(row) for _, row in rows)
    with mpl.rc_context(ON_WHITE):
        figure = Figure(figsize=(INCHES * n_columns, (INCHES + 0.05 * points) * len(rows)), layout="constrained")
        figure.set_facecolor("white")
        for i, (name, row) in enumerate(rows):
            for j, (image, title) in enumerate(row):
                axes = figure.add_subplot(len(rows), n_columns, i * n_columns + j + 1)
                axes.imshow(image)
                axes.set_title(title, fontsize=points)
                axes.set_xticks([])
                axes.set_yticks([])
                for spine in axes.spines.values():
                    spine.set_visible(False)
                if j == 0:
                    axes.set_ylabel(name, fontsize=8)
        buffer = BytesIO()
        save_png(figure, buffer, dpi, metadata={"Software": None})
    # A palette makes the file a third as large, without a visible difference.
    small = BytesIO()
    Image.open(buffer).convert("RGB").quantize(256).save(small, format="PNG", optimize=True)
    return small.getvalue()
