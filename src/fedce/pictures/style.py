"""What all figures look like: colours, markers, names of lines, and how a figure becomes SVG or a file."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from io import BytesIO, StringIO
from types import MappingProxyType
from typing import Any, ParamSpec

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
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
    "figure.figsize": (8, 3.4),
}
NARROW: dict[str, Any] = STYLE | {
    "figure.figsize": (4.2, 3.4),
    # Other names inside the SVG: a page holds both renderings, and one of them is hidden.
    "svg.hashsalt": "fedce-narrow",
}
"""The style of a figure for a phone: letters stay as large, and the legend is below."""
NARROWEST_WITH_LEGEND_BESIDE = 6
"""Inches."""
LETTER = 0.09
"""The width of a letter of a site's name, inches."""
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
        save_png(self, buffer, SHOWN_DPI)
        width, height = self.get_size_inches() * SHOWN_DPI / 2
        return buffer.getvalue(), {"width": round(width), "height": round(height)}


def on_white(figure: Figure) -> Figure:
    """The figure for a notebook or a picture file: black on white, whatever the page's colours are."""
    figure.set_facecolor("white")
    return figure


P = ParamSpec("P")


@dataclass(frozen=True)
class Drawing:
    """One figure as inline SVG, drawn twice: for a page as wide as a screen, and for one as narrow as a phone."""

    wide: str
    narrow: str


def for_pages(draw: Callable[P, Figure]) -> Callable[P, Drawing]:
    """The same figure, drawn in both widths."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Drawing:
        def in_style(style: dict[str, Any]) -> str:
            with mpl.rc_context(style):
                return to_svg(draw(*args, **kwargs))

        return Drawing(in_style(STYLE), in_style(NARROW))

    return drawn


def for_notebooks(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """The figure itself, as wide as a screen."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with mpl.rc_context(STYLE):
            return draw(*args, **kwargs)

    return drawn


def is_narrow(figure: Figure) -> bool:
    return bool(figure.get_figwidth() < NARROWEST_WITH_LEGEND_BESIDE)


def new_axes(x: str, y: str) -> tuple[Figure, Any]:
    """An empty figure as wide as the style says, and its axes with their names."""
    figure = NotebookFigure(layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(axis="y", alpha=0.15, color=INK)
    if x.startswith("round"):
        axes.xaxis.set_major_locator(whole_numbers())
    return figure, axes


def legend_beside(axes: Any) -> None:
    """A legend at the right of the axes; in a narrow figure below them, which makes the figure higher."""
    figure = axes.figure
    if not is_narrow(figure):
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
        return
    _, labels = axes.get_legend_handles_labels()
    if labels:
        column = LETTER * max(len(label) for label in labels) + 0.75  # With the line that it names, and a gap.
        n_columns = max(1, int(figure.get_figwidth() / column))
        figure.set_figheight(figure.get_figheight() + 0.22 * -(-len(labels) // n_columns))
        figure.legend(loc="outside lower center", ncols=n_columns)


def name_bars(axes: Any, names: Sequence[str]) -> None:
    """Name the bars at 0, 1, ...; names that do not fit side by side are turned, and the figure is made higher."""
    shown = [short(name) for name in names]
    if longest := turned(axes, shown):
        axes.figure.set_figheight(axes.figure.get_figheight() + LETTER * longest)
        axes.set_xticks(range(len(shown)), shown, rotation=90)
    else:
        axes.set_xticks(range(len(shown)), shown)


def turned(axes: Any, texts: Sequence[str]) -> int:
    """The number of letters of the longest text if these do not fit side by side over the bars; otherwise 0."""
    longest = max(len(text) for text in texts)
    room = axes.figure.get_figwidth() - (0.7 if is_narrow(axes.figure) else 2.2)  # Without the axis and the legend.
    return longest if len(texts) * (longest + 1) * LETTER > room else 0


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


@contextmanager
def _names_in_any_script() -> Iterator[None]:
    """Browsers have fonts for them; in a picture file an empty box is acceptable."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph .* missing from font", UserWarning)
        yield


def save_png(figure: Figure, target: BytesIO, dpi: int, metadata: Mapping[str, None] = MappingProxyType({})) -> None:
    """As Figure.savefig, which draws everything twice, the first time for the layout alone."""
    figure.set_dpi(dpi)
    with _names_in_any_script():
        FigureCanvasAgg(figure).print_png(target, metadata=metadata)


def to_svg(figure: Figure) -> str:
    """The figure as inline SVG, in the colours of the page around it; call it in the style of the drawing."""
    buffer = StringIO()
    with _names_in_any_script():
        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    return svg[svg.index("<svg") :].replace(INK, PAGE_INK.decode())
