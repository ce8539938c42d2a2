"""Figures of a run, as inline SVG that follows the page's colours, or as files."""

from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

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
Rounds = Sequence[Mapping[str, Any]]


def contributions(rounds: Rounds) -> str:
    return _svg(_contributions(rounds))


def save_contributions(rounds: Rounds, path: Path) -> Path:
    """Contributions over the rounds as a picture file."""
    with mpl.rc_context({**STYLE, **{key: "black" for key, value in STYLE.items() if value == INK}}):
        figure = _contributions(rounds)
        figure.set_facecolor("white")
        try:
            figure.savefig(path, dpi=150, bbox_inches="tight")
        except (OSError, ValueError) as error:
            raise RunError(f"can't write the picture {path}: {error}") from None
    return path


def _contributions(rounds: Rounds) -> Figure:
    with mpl.rc_context(STYLE):
        figure, axes = _axes("round", "contribution, %")
        sites = sorted({site for entry in rounds for site in entry["sites"]})
        for i, site in enumerate(sites):
            known = [
                (entry["round"] + 1, 100 * entry["sites"][site]["share"]) for entry in rounds if site in entry["sites"]
            ]
            axes.plot(*zip(*known, strict=True), label=_label(site), **_look(i, len(known)))
        axes.axhline(100 / len(sites), color=INK, linewidth=0.8, linestyle=":", label="equal share")
        axes.set_ylim(bottom=0)
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def progress(rounds: Rounds) -> str:
    """Validation Dice of the common model at each site, and its mean."""
    with mpl.rc_context(STYLE):
        figure, axes = _axes("round", "validation Dice at its start")
        sites = sorted({site for entry in rounds for site in entry["sites"]})
        for i, site in enumerate(sites):
            known = [(entry["round"] + 1, entry["sites"][site]["score"]) for entry in rounds if site in entry["sites"]]
            axes.plot(*zip(*known, strict=True), label=_label(site), alpha=0.8, **_look(i, len(known)))
        means = [(entry["round"] + 1, entry["mean_score"]) for entry in rounds]
        axes.plot(*zip(*means, strict=True), label="mean", color=INK, linewidth=2)
        axes.set_ylim(0, 1)
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return _svg(figure)


def dice(results: Mapping[str, Any]) -> str:
    """Test Dice at each site, and what the others' model alone would reach there."""
    with mpl.rc_context(STYLE):
        figure, axes = _axes("", "test Dice")
        sites = list(results["dice"])
        axes.bar(range(len(sites)), [results["dice"][site] for site in sites], 0.6, color=COLOURS[0], label="the model")
        without = [(i, value) for i, site in enumerate(sites) if (value := results["dice_without"][site]) is not None]
        if without:
            axes.plot(*zip(*without, strict=True), "D", color=COLOURS[1], label="without the site")
        for i, site in enumerate(sites):
            axes.annotate(f"{results['dice'][site]:.2f}", (i, results["dice"][site]), ha="center", va="bottom")
        axes.axhline(results["fairness"]["mean"], color=INK, linewidth=0.8, linestyle=":", label="mean")
        axes.set_xticks(range(len(sites)), sites)
        axes.set_ylim(0, 1.05)
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return _svg(figure)


def _label(site: str) -> str:
    """matplotlib leaves labels with a leading underscore out of legends; a space before it changes that."""
    return f" {site}" if site.startswith("_") else site


def _axes(x: str, y: str) -> tuple[Figure, Any]:
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(axis="y", alpha=0.15, color=INK)
    return figure, axes


def _look(i: int, n_points: int) -> dict[str, Any]:
    """Colour and marker, so that lines are told apart in black and white too."""
    every = max(1, n_points // 8)
    return {
        "color": COLOURS[i % len(COLOURS)],
        "marker": MARKERS[i % len(MARKERS)],
        "markersize": 5,
        "markevery": every,
    }


def _svg(figure: Figure) -> str:
    buffer = StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    return svg[svg.index("<svg") :].replace(INK, "currentColor")
