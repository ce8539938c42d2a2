"""Figures of a run and of its data, as inline SVG that follows the page's colours, or as files."""

import warnings
from collections.abc import Mapping, Sequence
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from PIL import Image

from fedce.data.inspection import N_BINS, SiteFacts
from fedce.data.overlays import COLOURS as OUTLINES
from fedce.errors import RunError

# Okabe and Ito's colours: told apart by colour-blind readers, on white and on black.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#999999")
MARKERS = "osD^vPX"
INK = "#010203"
"""Stands for the page's text colour until the SVG is written."""
STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    # Site names are text, whatever signs are in them.
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
CHANNELS = (("red", "#D55E00", "-"), ("green", "#009E73", "--"), ("blue", "#3A8FD6", "-."))
PANELS_A_ROW = 3
LONGEST_NAME = 30
MOST_NAMED = 20
"""Of more sites, lines and bars are drawn without their names."""
_ON_WHITE = {key: "black" for key, value in STYLE.items() if value == INK}
Rounds = Sequence[Mapping[str, Any]]
Bands = Sequence[Mapping[str, Any]]
"""Intervals of the sites' shares: round (from 1), low and high by site."""


def sites_of(rounds: Rounds) -> list[str]:
    """All that took part in any of the rounds."""
    return sorted({site for entry in rounds for site in entry["sites"]})


def contributions(rounds: Rounds, bands: Bands = ()) -> str:
    return _svg(_contributions(rounds, bands))


def save_contributions(rounds: Rounds, path: Path) -> Path:
    """Contributions over the rounds as a picture file."""
    with mpl.rc_context({**STYLE, **_ON_WHITE}):
        figure = _contributions(rounds)
        figure.set_facecolor("white")
        try:
            _save(figure, path, dpi=150, bbox_inches="tight")
        except (OSError, ValueError) as error:
            raise RunError(f"can't write the picture {path}: {error}") from None
    return path


def _contributions(rounds: Rounds, bands: Bands = ()) -> Figure:
    with mpl.rc_context(STYLE):
        figure, axes = _axes("round", "contribution, %")
        sites = sites_of(rounds)
        for i, site in enumerate(sites):
            known = [
                (entry["round"] + 1, 100 * entry["sites"][site]["share"]) for entry in rounds if site in entry["sites"]
            ]
            axes.plot(*zip(*known, strict=True), label=_label(site, len(sites)), **_look(i, len(known), len(sites)))
            ends = [(at["round"], 100 * at["low"][site], 100 * at["high"][site]) for at in bands if site in at["low"]]
            if ends:
                axes.fill_between(*zip(*ends, strict=True), color=COLOURS[i % len(COLOURS)], alpha=0.15, linewidth=0)
        axes.axhline(100 / len(sites), color=INK, linewidth=0.8, linestyle=":", label="equal share")
        # Room for a whole marker, which the margin of lines that lie close together is not.
        axes.set_ylim(0, 1.05 * axes.get_ylim()[1])
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def progress(rounds: Rounds) -> str:
    """Validation Dice of the common model at each site, and its mean."""
    with mpl.rc_context(STYLE):
        figure, axes = _axes("round", "validation Dice at its start")
        sites = sites_of(rounds)
        for i, site in enumerate(sites):
            known = [(entry["round"] + 1, entry["sites"][site]["score"]) for entry in rounds if site in entry["sites"]]
            look = {"alpha": 0.8, **_look(i, len(known), len(sites))}
            axes.plot(*zip(*known, strict=True), label=_label(site, len(sites)), **look)
        means = [(entry["round"] + 1, entry["mean_score"]) for entry in rounds]
        axes.plot(*zip(*means, strict=True), label="mean", color=INK, linewidth=2)
        axes.set_ylim(0, 1)
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return _svg(figure)


def dice(results: Mapping[str, Any], alone: Mapping[str, float]) -> str:
    """Test Dice at each site, what the others' model would reach there, and what the site reaches alone."""
    with mpl.rc_context(STYLE):
        figure, axes = _axes("", "test Dice")
        sites = list(results["dice"])
        axes.bar(range(len(sites)), [results["dice"][site] for site in sites], 0.6, color=COLOURS[0], label="the model")
        without = [(i, value) for i, site in enumerate(sites) if (value := results["dice_without"][site]) is not None]
        if without:
            axes.plot(*zip(*without, strict=True), "D", color=COLOURS[1], label="without the site")
        if alone:
            look = {"markerfacecolor": "white", "markeredgecolor": COLOURS[4], "markeredgewidth": 1.8}
            axes.plot(range(len(sites)), [alone[site] for site in sites], "s", label="trained alone", **look)
        for i, site in enumerate(sites if len(sites) <= MOST_NAMED else ()):
            axes.annotate(f"{results['dice'][site]:.2f}", (i, results["dice"][site]), ha="center", va="bottom")
        axes.axhline(results["fairness"]["mean"], color=INK, linewidth=0.8, linestyle=":", label="mean")
        if len(sites) <= MOST_NAMED:
            axes.set_xticks(range(len(sites)), sites)
        else:
            axes.set_xticks([])
            axes.set_xlabel(f"{len(sites)} sites, in the table's order")
        axes.set_ylim(0, 1.05)
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return _svg(figure)


def freerider(scores: Mapping[str, Sequence[float | None]]) -> str:
    """Each site's free-rider score so far, round by round."""
    with mpl.rc_context(STYLE):
        figure, axes = _axes("round", "free-rider score")
        for i, (site, values) in enumerate(scores.items()):
            known = [(number, value) for number, value in enumerate(values, 1) if value is not None]
            # A site without any score is still named.
            axes.plot(*(zip(*known, strict=True) if known else ((), ())), label=_label(site), **_look(i, len(known)))
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return _svg(figure)


def grey_values(sites: Sequence[SiteFacts]) -> str:
    """How bright each site's pixels are, a panel a site, before the average of all sites."""
    bins = np.linspace(0, 256, N_BINS + 1)
    histograms = np.array([100 * site.grey.histogram for site in sites])
    looks = CHANNELS if histograms.shape[1] > 1 else (("", COLOURS[0], "-"),)
    with mpl.rc_context(STYLE):
        n_columns = min(PANELS_A_ROW, len(sites))
        n_rows = -(-len(sites) // n_columns)
        figure = Figure(figsize=(8, 0.7 + 1.6 * n_rows), layout="constrained")
        panels = figure.subplots(n_rows, n_columns, sharex=True, sharey=True, squeeze=False).ravel()
        for panel, site, histogram in zip(panels, sites, histograms, strict=False):
            for values, average, (name, colour, line) in zip(histogram, histograms.mean(axis=0), looks, strict=True):
                panel.stairs(average, bins, fill=True, color=colour, alpha=0.18)
                panel.stairs(values, bins, baseline=None, color=colour, linestyle=line, linewidth=1.4, label=name)
            panel.set_title(short(site.name), fontsize=11)
        panels[0].set_xlim(0, 256)
        panels[0].set_xticks([0, 64, 128, 192, 256])
        # A black frame is one bin that would press everything else flat; constant images have nothing but such bins.
        panels[0].set_ylim(0, 1.1 * min(histograms.max(), 2 * np.percentile(histograms, 98)) or 100)
        for panel in panels[len(sites) - n_columns : len(sites)]:
            panel.tick_params(labelbottom=True)  # Also above a place that is left empty.
        for panel in panels[len(sites) :]:
            panel.remove()
        figure.supxlabel("grey value", fontsize=11)
        figure.supylabel("pixels, %", fontsize=11)
        if len(looks) > 1:
            figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(looks))
    return _svg(figure)


def mask_areas(sites: Sequence[SiteFacts]) -> str:
    """How much of an image is marked: all of a site's, the middle half, the median."""
    classes = list(sites[0].areas)
    with mpl.rc_context(STYLE):
        figure, axes = _axes("marked part of the image, %", "")
        figure.set_figheight(0.9 + len(sites) * (0.2 + 0.2 * len(classes)))
        axes.grid(axis="x", alpha=0.15, color=INK)
        for j, name in enumerate(classes):
            places = np.arange(len(sites)) + (j - (len(classes) - 1) / 2) * 0.8 / len(classes)
            spread = np.array([np.percentile(100 * site.areas[name], (0, 25, 50, 75, 100)) for site in sites]).T
            colour = "#{:02x}{:02x}{:02x}".format(*OUTLINES[j % len(OUTLINES)])
            axes.hlines(places, spread[0], spread[4], color=colour, linewidth=1.2)
            axes.hlines(places, spread[1], spread[3], color=colour, linewidth=6)
            axes.plot(spread[2], places, MARKERS[j % len(MARKERS)], label=_label(name), **_ringed(colour))
        axes.set_yticks(range(len(sites)), [short(site.name) for site in sites])
        axes.set_ylim(len(sites) - 0.5, -0.5)
        axes.set_xlim(left=0)
        if len(classes) > 1:
            axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return _svg(figure)


def _ringed(colour: str) -> dict[str, Any]:
    """A mark that is seen on a bar of its own colour."""
    return {"color": colour, "markersize": 6, "markerfacecolor": "white", "markeredgewidth": 1.5}


def short(name: str) -> str:
    """A name that fits over a small picture."""
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


def curves(lines: Mapping[str, tuple[Sequence[float], Sequence[float]]], y: str) -> str:
    """Raw and smoothed lines by name; the raw ones faint."""
    with mpl.rc_context(STYLE):
        figure, axes = _axes("round", y)
        for i, (name, (raw, smooth)) in enumerate(lines.items()):
            look = _look(i, len(smooth))
            rounds = range(1, len(smooth) + 1)
            axes.plot(rounds, raw, color=look["color"], alpha=0.25, linewidth=0.8)
            axes.plot(rounds, smooth, label=_label(name), **look)
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return _svg(figure)


def pairs(values: Mapping[str, tuple[float, float]], names: tuple[str, str]) -> str:
    """Two bars for each site, as shares in per cent."""
    with mpl.rc_context(STYLE):
        figure, axes = _axes("", "share, %")
        for i, name in enumerate(names):
            heights = [100 * pair[i] for pair in values.values()]
            axes.bar([x + 0.4 * (i - 0.5) for x in range(len(values))], heights, 0.38, color=COLOURS[i], label=name)
        axes.set_xticks(range(len(values)), list(values))
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return _svg(figure)


def points(rounds: Sequence[int], lines: Mapping[str, Sequence[float]], y: str) -> str:
    """Values at single rounds, on a logarithmic scale."""
    with mpl.rc_context(STYLE):
        figure, axes = _axes("round", y)
        for i, (name, values) in enumerate(lines.items()):
            axes.plot(rounds, values, label=_label(name), **_look(i, 1))
        axes.set_yscale("log", nonpositive="mask")
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return _svg(figure)


def cost(sizes: Sequence[int], seconds: Mapping[str, Sequence[float]]) -> str:
    """Seconds against the number of sites, both on logarithmic scales."""
    with mpl.rc_context(STYLE):
        figure, axes = _axes("sites", "seconds")
        for i, (name, values) in enumerate(seconds.items()):
            axes.plot(sizes, values, label=name, **_look(i, 1))
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return _svg(figure)


def heat_maps(maps: Mapping[str, Sequence[Sequence[float | None]]], names: Sequence[str]) -> str:
    """Square maps side by side, dark where high; each on its own scale, as only the order within one matters."""
    with mpl.rc_context(STYLE):
        n_columns = 3
        n_rows = -(-len(maps) // n_columns)
        figure = Figure(figsize=(8, 2.7 * n_rows), layout="constrained")
        for i, (title, rows) in enumerate(maps.items()):
            axes = figure.add_subplot(n_rows, n_columns, i + 1)
            values = np.array([[np.nan if value is None else value for value in row] for row in rows])
            axes.imshow(values, cmap="Blues", vmin=0)
            axes.set_title(title, fontsize=10)
            axes.set_xticks(range(len(names)), names, rotation=90, fontsize=8)
            axes.set_yticks(range(len(names)), names if i % n_columns == 0 else [], fontsize=8)
    return _svg(figure)


def panels(lines: Mapping[str, Mapping[str, Sequence[float | None]]], y: str) -> str:
    """A small panel for each name, in which that name's line is bold."""
    with mpl.rc_context(STYLE):
        n_columns = 3
        n_rows = -(-len(lines) // n_columns)
        figure = Figure(figsize=(8, 2.1 * n_rows), layout="constrained")
        for i, (title, by_site) in enumerate(lines.items()):
            axes = figure.add_subplot(n_rows, n_columns, i + 1)
            for j, (site, values) in enumerate(by_site.items()):
                known = [(n + 1, value) for n, value in enumerate(values) if value is not None]
                if known:
                    width = 2.2 if site == title else 0.8
                    label = _label(site) if i == 0 else None
                    axes.plot(*zip(*known, strict=True), color=COLOURS[j % len(COLOURS)], linewidth=width, label=label)
            axes.set_title(f"free rider: {title}", fontsize=9)
            axes.tick_params(labelsize=8)
            axes.xaxis.set_major_locator(_whole_numbers())
            if i % n_columns == 0:
                axes.set_ylabel(y, fontsize=9)
        figure.legend(loc="outside lower center", ncols=len(lines), fontsize=9)
    return _svg(figure)


def image_grid(rows: Sequence[tuple[str, Sequence[tuple[NDArray[np.uint8], str]]]], dpi: int = 110) -> bytes:
    """Rows of titled images, each row with a name, as a PNG file."""
    n_columns = max(len(row) for _, row in rows)
    with mpl.rc_context({**STYLE, **_ON_WHITE}):
        figure = Figure(figsize=(1.5 * n_columns, 1.8 * len(rows)), layout="constrained")
        figure.set_facecolor("white")
        for i, (name, row) in enumerate(rows):
            for j, (image, title) in enumerate(row):
                axes = figure.add_subplot(len(rows), n_columns, i * n_columns + j + 1)
                axes.imshow(image)
                axes.set_title(title, fontsize=6)
                axes.set_xticks([])
                axes.set_yticks([])
                for spine in axes.spines.values():
                    spine.set_visible(False)
                if j == 0:
                    axes.set_ylabel(name, fontsize=8)
        buffer = BytesIO()
        _save(figure, buffer, format="png", dpi=dpi, metadata={"Software": None})
    # A palette makes it a third as large, and nobody sees it.
    small = BytesIO()
    Image.open(buffer).convert("RGB").quantize(256).save(small, format="PNG", optimize=True)
    return small.getvalue()


def _label(site: str, n_sites: int = 1) -> str:
    """Of so many sites in one figure; matplotlib leaves labels with a leading underscore out of legends."""
    if n_sites > MOST_NAMED:
        return "_nolegend_"
    return f" {site}" if site.startswith("_") else site


def _axes(x: str, y: str) -> tuple[Figure, Any]:
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(axis="y", alpha=0.15, color=INK)
    if x == "round":
        axes.xaxis.set_major_locator(_whole_numbers())
    return figure, axes


def _whole_numbers() -> MaxNLocator:
    """There is no round 1.5."""
    return MaxNLocator(nbins="auto", integer=True, min_n_ticks=1)


def _look(i: int, n_points: int, n_sites: int = 1) -> dict[str, Any]:
    """Colour and marker, so that lines are told apart in black and white too; of many, how they lie together."""
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


def _save(figure: Figure, target: Any, **options: Any) -> None:
    with warnings.catch_warnings():
        # Names may be in any script. Browsers have fonts for them; in a picture file an empty box says enough.
        warnings.filterwarnings("ignore", r"Glyph .* missing from font", UserWarning)
        figure.savefig(target, **options)


def _svg(figure: Figure) -> str:
    buffer = StringIO()
    with mpl.rc_context(STYLE):
        _save(figure, buffer, format="svg", metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    return svg[svg.index("<svg") :].replace(INK, "currentColor")
