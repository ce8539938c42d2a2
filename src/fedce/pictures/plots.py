"""Figures of a run and of its data, as inline SVG that follows the page's colours, or as files."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from fedce.core.recorded import Rounds
from fedce.data.inspection import N_BINS, SiteFacts
from fedce.data.overlays import COLOURS as OUTLINES
from fedce.pictures.style import (
    COLOURS,
    INK,
    MARKERS,
    MOST_NAMED,
    for_notebooks,
    for_pages,
    is_narrow,
    label_of,
    legend_beside,
    look_of,
    name_bars,
    new_axes,
    short,
    turned,
)

CHANNELS = (("red", "#D55E00", "-"), ("green", "#009E73", "--"), ("blue", "#3A8FD6", "-."))
PANELS_A_ROW, PANELS_A_ROW_NARROW = 3, 2
Bands = Sequence[Mapping[str, Any]]
"""Intervals of the sites' shares: round (from 1), low and high by site."""


def sites_of(rounds: Rounds) -> list[str]:
    """All sites that took part in any of the rounds."""
    return sorted({site for done in rounds for site in done.sites})


def _contributions(rounds: Rounds, bands: Bands = ()) -> Figure:
    figure, axes = new_axes("round", "contribution, %")
    sites = sites_of(rounds)
    for i, site in enumerate(sites):
        known = [(done.round_no + 1, 100 * done.sites[site].share) for done in rounds if site in done.sites]
        axes.plot(*zip(*known, strict=True), label=label_of(site, len(sites)), **look_of(i, len(known), len(sites)))
        ends = [(at["round"], 100 * at["low"][site], 100 * at["high"][site]) for at in bands if site in at["low"]]
        if ends:
            axes.fill_between(*zip(*ends, strict=True), color=COLOURS[i % len(COLOURS)], alpha=0.15, linewidth=0)
    axes.axhline(100 / len(sites), color=INK, linewidth=0.8, linestyle=":", label="equal share")
    # Room for a whole marker: lines that lie close together leave too small a margin.
    axes.set_ylim(0, 1.05 * axes.get_ylim()[1])
    legend_beside(axes)
    return figure


contributions, contributions_figure = for_pages(_contributions), for_notebooks(_contributions)


@for_pages
def own_contribution(
    shares: Sequence[tuple[int, float]], bands: Sequence[tuple[int, float, float]], equal: float
) -> Figure:
    """One site's share up to each round, with its interval where it is known, beside an equal share."""
    figure, axes = new_axes("round", "contribution, %")
    axes.plot(
        *zip(*((n, 100 * share) for n, share in shares), strict=True), label="this site", **look_of(0, len(shares))
    )
    ends = [(n, 100 * low, 100 * high) for n, low, high in bands]
    if len(ends) > 1:
        axes.fill_between(*zip(*ends, strict=True), color=COLOURS[0], alpha=0.2, linewidth=0, label="its 95 % interval")
    for n, low, high in ends if len(ends) == 1 else ():
        look = {"linewidth": 6, "alpha": 0.3, "label": "its 95 % interval"}
        axes.vlines(n, low, high, color=COLOURS[0], **look)
    axes.axhline(100 * equal, color=INK, linewidth=0.8, linestyle=":", label="equal share")
    axes.set_ylim(0, 1.05 * axes.get_ylim()[1])
    legend_beside(axes)
    return figure


@for_pages
def own_progress(scores: Sequence[tuple[int, float]]) -> Figure:
    """The validation Dice at one site of the model that each round starts from."""
    figure, axes = new_axes("round", "validation Dice at its start")
    axes.plot(*zip(*scores, strict=True), **look_of(0, len(scores)))
    axes.set_ylim(0, 1)
    return figure


def _progress(rounds: Rounds) -> Figure:
    """Validation Dice of the common model at each site, and the mean over sites."""
    figure, axes = new_axes("round", "validation Dice at its start")
    sites = sites_of(rounds)
    for i, site in enumerate(sites):
        known = [(done.round_no + 1, done.sites[site].score) for done in rounds if site in done.sites]
        look = {"alpha": 0.8, **look_of(i, len(known), len(sites))}
        axes.plot(*zip(*known, strict=True), label=label_of(site, len(sites)), **look)
    means = [(done.round_no + 1, done.mean_score) for done in rounds]
    axes.plot(*zip(*means, strict=True), label="mean", color=INK, linewidth=2)
    axes.set_ylim(0, 1)
    legend_beside(axes)
    return figure


progress, progress_figure = for_pages(_progress), for_notebooks(_progress)


def _dice(results: Mapping[str, Any]) -> Figure:
    """Test Dice at each site of the model, of the model without the site, and of a model that the site trains alone."""
    figure, axes = new_axes("", "test Dice")
    sites = list(results["dice"])
    axes.bar(range(len(sites)), [results["dice"][site] for site in sites], 0.6, color=COLOURS[0], label="the model")
    without = [(i, value) for i, site in enumerate(sites) if (value := results["dice_without"][site]) is not None]
    if without:
        axes.plot(*zip(*without, strict=True), "D", color=COLOURS[1], label="without the site")
    if alone := results.get("alone", {}):
        look = {"markerfacecolor": "white", "markeredgecolor": COLOURS[4], "markeredgewidth": 1.8}
        axes.plot(range(len(sites)), [alone.get(site) for site in sites], "s", label="trained alone", **look)
    rotation = 90 if turned(axes, ["0.00"] * len(sites)) else 0
    for i, site in enumerate(sites if len(sites) <= MOST_NAMED else ()):
        value = results["dice"][site]
        axes.annotate(f"{value:.2f}", (i, value), ha="center", va="bottom", rotation=rotation)
    axes.axhline(results["fairness"]["mean"], color=INK, linewidth=0.8, linestyle=":", label="mean")
    if len(sites) <= MOST_NAMED:
        name_bars(axes, sites)
    else:
        axes.set_xticks([])
        axes.set_xlabel(f"{len(sites)} sites, in the table's order")
    axes.set_ylim(0, 1.05)
    legend_beside(axes)
    return figure


dice, dice_figure = for_pages(_dice), for_notebooks(_dice)


def _gives_and_needs(
    gives: Mapping[str, float],
    ends: Mapping[str, tuple[float, float]],
    needs: Mapping[str, float],
    second: str = "needs",
) -> Figure:
    """Two bars a site: its share of what is given, with its interval, and its contribution, which `second` names."""
    figure, axes = new_axes("", "share, %")
    sites = list(gives)
    heights = [100 * gives[site] for site in sites]
    errors = [[100 * abs(gives[site] - ends[site][side]) for site in sites] for side in (0, 1)]
    places = np.arange(len(sites))
    look = {"ecolor": INK, "elinewidth": 1.0, "capsize": 3}
    axes.bar(places - 0.2, heights, 0.38, yerr=errors, color=COLOURS[0], label="gives", error_kw=look)
    axes.bar(places + 0.2, [100 * needs[site] for site in sites], 0.38, color=COLOURS[1], label=second)
    axes.axhline(100 / len(sites), color=INK, linewidth=0.8, linestyle=":", label="equal share")
    name_bars(axes, sites)
    legend_beside(axes)
    return figure


gives_and_needs, gives_and_needs_figure = for_pages(_gives_and_needs), for_notebooks(_gives_and_needs)


@for_pages
def freerider(scores: Mapping[str, Sequence[float | None]]) -> Figure:
    """Each site's free-rider score so far, round by round."""
    figure, axes = new_axes("round", "free-rider score")
    for i, (site, values) in enumerate(scores.items()):
        known = [(number, value) for number, value in enumerate(values, 1) if value is not None]
        # A site without any score is still named.
        axes.plot(*(zip(*known, strict=True) if known else ((), ())), label=label_of(site), **look_of(i, len(known)))
    legend_beside(axes)
    return figure


@for_pages
def grey_values(sites: Sequence[SiteFacts]) -> Figure:
    """How bright each site's pixels are, one panel for each site, with the average of all sites behind it."""
    bins = np.linspace(0, 256, N_BINS + 1)
    histograms = np.array([100 * site.grey.histogram for site in sites])
    looks = _looks_of_channels(histograms.shape[1])
    figure = Figure(layout="constrained")
    n_columns = min(PANELS_A_ROW_NARROW if is_narrow(figure) else PANELS_A_ROW, len(sites))
    n_rows = -(-len(sites) // n_columns)
    figure.set_figheight(0.7 + 1.6 * n_rows)
    panels = figure.subplots(n_rows, n_columns, sharex=True, sharey=True, squeeze=False).ravel()
    for panel, site, histogram in zip(panels, sites, histograms, strict=False):
        for values, average, (name, colour, line) in zip(histogram, histograms.mean(axis=0), looks, strict=True):
            panel.stairs(average, bins, fill=True, color=colour, alpha=0.18)
            panel.stairs(values, bins, baseline=None, color=colour, linestyle=line, linewidth=1.4, label=name)
        panel.set_title(short(site.name), fontsize=11)
    panels[0].set_xlim(0, 256)
    panels[0].set_xticks([0, 128, 256] if is_narrow(figure) else [0, 64, 128, 192, 256])
    # A black frame is one tall bin that would flatten all others; constant images have only such bins.
    panels[0].set_ylim(0, 1.1 * min(histograms.max(), 2 * np.percentile(histograms, 98)) or 100)
    for panel in panels[len(sites) - n_columns : len(sites)]:
        panel.tick_params(labelbottom=True)  # Also above an empty place of the grid.
    for panel in panels[len(sites) :]:
        panel.remove()
    figure.supxlabel("grey value", fontsize=11)
    figure.supylabel("pixels, %", fontsize=11)
    if len(looks) > 1:
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(looks))
    return figure


def _looks_of_channels(n: int) -> Sequence[tuple[str, str, str]]:
    """Name, colour and line of each channel: one of grey, three of colour, or other modalities."""
    if n == len(CHANNELS):
        return CHANNELS
    return [(f"channel {i + 1}" if n > 1 else "", COLOURS[i % len(COLOURS)], "-") for i in range(n)]


@for_pages
def mask_areas(sites: Sequence[SiteFacts]) -> Figure:
    """How much of an image is marked at each site: range of all images, middle half, and median."""
    classes = list(dict.fromkeys(name for site in sites for name in site.areas))
    figure, axes = new_axes("marked part of the image, %", "")
    figure.set_figheight(0.9 + len(sites) * (0.2 + 0.2 * len(classes)))
    axes.grid(axis="x", alpha=0.15, color=INK)
    for j, name in enumerate(classes):
        places = np.arange(len(sites)) + (j - (len(classes) - 1) / 2) * 0.8 / len(classes)
        # Nothing is drawn where a site does not label the class.
        found = [100 * site.areas.get(name, np.array([np.nan])) for site in sites]
        spread = np.array([np.percentile(areas, (0, 25, 50, 75, 100)) for areas in found]).T
        colour = "#{:02x}{:02x}{:02x}".format(*OUTLINES[j % len(OUTLINES)])
        axes.hlines(places, spread[0], spread[4], color=colour, linewidth=1.2)
        axes.hlines(places, spread[1], spread[3], color=colour, linewidth=6)
        axes.plot(spread[2], places, MARKERS[j % len(MARKERS)], label=label_of(name), **_ringed(colour))
    axes.set_yticks(range(len(sites)), [short(site.name) for site in sites])
    axes.set_ylim(len(sites) - 0.5, -0.5)
    axes.set_xlim(left=0)
    if len(classes) > 1:
        legend_beside(axes)
    return figure


def _ringed(colour: str) -> dict[str, Any]:
    """A mark that is visible on a bar of its own colour."""
    return {"color": colour, "markersize": 6, "markerfacecolor": "white", "markeredgewidth": 1.5}


@for_pages
def case_scores(dice: Mapping[str, Sequence[float]]) -> Figure:
    """The Dice of every case of each site, and the site's mean."""
    figure, axes = new_axes("Dice", "")
    figure.set_figheight(0.9 + 0.45 * len(dice))
    axes.grid(axis="x", alpha=0.15, color=INK)
    for i, values in enumerate(dice.values()):
        axes.plot(values, [i] * len(values), "o", color=COLOURS[0], alpha=0.45, markersize=6, markeredgewidth=0)
        axes.vlines(np.mean(values), i - 0.3, i + 0.3, color=COLOURS[4], linewidth=2)
    axes.set_yticks(range(len(dice)), [short(name) for name in dice])
    axes.set_ylim(len(dice) - 0.5, -0.5)
    axes.set_xlim(-0.02, 1.02)
    return figure
