"""What all figures look like: colours, markers, names of lines, and how a figure becomes SVG or a file."""

import warnings
from io import BytesIO, StringIO
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedce.pictures.ink import PAGE_INK

# Okabe and Ito's colours: colour-blind readers can tell them apart, on white and on black.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#999999")
MARKERS = "osD^vPX"
INK = "#010203"
"""Stands for the page's text colour until the SVG is written."""
STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    # Site names are plain text, whatever characters they contain.
    "text.parse_math": False,
    "svg.hashsalt": "fedce",
    "font.family": "sans-serif",
    "font.size": 11,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "legend.frameon": False,
}
LONGEST_NAME = 30
MOST_NAMED = 20
"""With more sites in a figure, their lines and bars have no names."""
ON_WHITE = STYLE | {key: "black" for key, value in STYLE.items() if value == INK}
"""The style of a picture file: black on white, whatever the page's colours are."""
SHOWN_DPI = 144
"""Twice a screen's 72 pixels an inch; a notebook shows the picture at half of its size, so that it is sharp."""


def short(name: str) -> str:
    """A name that fits over a small picture."""
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


def label_of(site: str, n_sites: int = 1) -> str:
    """A site's name in the legend of a figure with `n_sites` sites; many sites are not named.

    matplotlib leaves labels with a leading underscore out of legends, so a space goes before one.
    """
    if n_sites > MOST_NAMED:
        return "_nolegend_"
    return f" {site}" if site.startswith("_") else site


class NotebookFigure(Figure):
    """A figure that a notebook shows as the result of a cell, also where pyplot was never imported."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        buffer = BytesIO()
        save(self, buffer, format="png", dpi=SHOWN_DPI)
        width, height = self.get_size_inches() * SHOWN_DPI / 2
        return buffer.getvalue(), {"width": round(width), "height": round(height)}


def on_white(figure: Figure) -> Figure:
    """The figure for a notebook or a picture file: black on white, whatever the page's colours are."""
    figure.set_facecolor("white")
    return figure


def new_axes(x: str, y: str) -> tuple[Figure, Any]:
    """An empty figure as wide as a page, and its axes with their names."""
    figure = NotebookFigure(figsize=(8, 3.4), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(axis="y", alpha=0.15, color=INK)
    if x.startswith("round"):
        axes.xaxis.set_major_locator(whole_numbers())
    return figure, axes


def legend_beside(axes: Any) -> None:
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))


def whole_numbers() -> MaxNLocator:
    """Ticks at whole numbers only: there is no round 1.5."""
    return MaxNLocator(nbins="auto", integer=True, min_n_ticks=1)


def look_of(i: int, n_points: int, n_sites: int = 1) -> dict[str, Any]:
    """Colour and marker of line `i`, so that lines differ in black and white too; many lines are thin and alike."""
    if n_sites > MOST_NAMED:
        return {"color": COLOURS[0], "linewidth": 0.6, "alpha": 0.35}
    every = max(1, n_points // 8)
    return {
        "color": COLOURS[i % len(COLOURS)],
        "linestyle": "-" if i < len(COLOURS) else "--",
        "marker": MARKERS[i % len(MARKERS)],
        "markersize": 5,
        "markevery": every,
    }


def save(figure: Figure, target: Any, **options: Any) -> None:
    with warnings.catch_warnings():
        # Names may be in any script. Browsers have fonts for them; in a picture file an empty box is acceptable.
        warnings.filterwarnings("ignore", r"Glyph .* missing from font", UserWarning)
        figure.savefig(target, **options)


def to_svg(figure: Figure) -> str:
    """The figure as inline SVG, in the colours of the page around it."""
    buffer = StringIO()
    with mpl.rc_context(STYLE):
        save(figure, buffer, format="svg", metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    return svg[svg.index("<svg") :].replace(INK, PAGE_INK.decode())
