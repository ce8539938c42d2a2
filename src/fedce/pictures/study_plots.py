"""Figures that only studies draw, as inline SVG."""

from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from fedce.pictures.style import COLOURS, INK, STYLE, label_of, legend_beside, look_of, new_axes, to_svg, whole_numbers


def curves(lines: Mapping[str, tuple[Sequence[float], Sequence[float]]], y: str) -> str:
    """Raw (faint) and smoothed lines by name, from before the first round to after the last."""
    with mpl.rc_context(STYLE):
        figure, axes = new_axes("rounds done", y)
        for i, (name, (raw, smooth)) in enumerate(lines.items()):
            look = look_of(i, len(smooth))
            rounds = range(len(smooth))
            axes.plot(rounds, raw, color=look["color"], alpha=0.25, linewidth=0.8)
            axes.plot(rounds, smooth, label=label_of(name), **look)
        legend_beside(axes)
        return to_svg(figure)


def bars(values: Mapping[str, Sequence[float]], y: str) -> str:
    """A bar up to the mean of each name's values, and the values as dots; the axis begins a little below the lowest."""
    with mpl.rc_context(STYLE):
        figure, axes = new_axes("", y)
        for i, own in enumerate(values.values()):
            axes.bar(i, float(np.mean(own)), 0.6, color=COLOURS[i % len(COLOURS)], alpha=0.6)
            axes.plot([i] * len(own), own, "o", color=INK, markersize=3)
        axes.set_xticks(range(len(values)), [label_of(name) for name in values], fontsize=8)
        known = [value for own in values.values() for value in own]
        margin = 0.2 * (max(known) - min(known)) or 1.0
        axes.set_ylim(min(known) - margin, max(known) + margin)
        return to_svg(figure)


def pairs(values: Mapping[str, tuple[float, float]], names: tuple[str, str]) -> str:
    """Two bars for each site, as shares in per cent."""
    with mpl.rc_context(STYLE):
        figure, axes = new_axes("", "share, %")
        for i, name in enumerate(names):
            heights = [100 * pair[i] for pair in values.values()]
            axes.bar([x + 0.4 * (i - 0.5) for x in range(len(values))], heights, 0.38, color=COLOURS[i], label=name)
        axes.set_xticks(range(len(values)), list(values))
        legend_beside(axes)
        return to_svg(figure)


def points(rounds: Sequence[int], lines: Mapping[str, Sequence[float]], y: str) -> str:
    """Values at single rounds, on a logarithmic scale."""
    with mpl.rc_context(STYLE):
        figure, axes = new_axes("round", y)
        for i, (name, values) in enumerate(lines.items()):
            axes.plot(rounds, values, label=label_of(name), **look_of(i, 1))
        axes.set_yscale("log", nonpositive="mask")
        legend_beside(axes)
        return to_svg(figure)


def cost(sizes: Sequence[int], seconds: Mapping[str, Sequence[float]]) -> str:
    """Seconds against the number of sites, both on logarithmic scales."""
    with mpl.rc_context(STYLE):
        figure, axes = new_axes("sites", "seconds")
        for i, (name, values) in enumerate(seconds.items()):
            axes.plot(sizes, values, label=name, **look_of(i, 1))
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(sizes, [str(size) for size in sizes])
        legend_beside(axes)
        return to_svg(figure)


def heat_maps(maps: Mapping[str, Sequence[Sequence[float | None]]], names: Sequence[str]) -> str:
    """Square maps side by side, dark where high; each has its own scale, because only the order within it matters."""
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
        return to_svg(figure)


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
                    label = label_of(site) if i == 0 else None
                    axes.plot(*zip(*known, strict=True), color=COLOURS[j % len(COLOURS)], linewidth=width, label=label)
            axes.set_title(f"free rider: {title}", fontsize=9)
            axes.tick_params(labelsize=8)
            axes.xaxis.set_major_locator(whole_numbers())
            if i % n_columns == 0:
                axes.set_ylabel(y, fontsize=9)
        figure.legend(loc="outside lower center", ncols=len(lines), fontsize=9)
        return to_svg(figure)
