"""The paper's Fig. 3: how bright the sites' pixels are, and how far apart the sites are by brightness."""

from fedce.base.config import Config
from fedce.data.inspection import Inspection, inspect_sites
from fedce.data.remarks import most_different, summary
from fedce.studies.base import Cell, Context, Outcome, Picture, Study, Table, results_alone

TITLE = "Data: intensity distributions (the paper's Fig. 3)"


def trainings(context: Context) -> list[Config]:
    return []


def at_a_glance(context: Context) -> Outcome:
    """The picture alone, for the page of any other study."""
    found = inspect_sites(context.sites)
    return Outcome("data", TITLE, [most_different(found)], [], [_picture(found)])


def evaluate(context: Context) -> Outcome:
    found = inspect_sites(context.sites)
    rows: list[list[Cell]] = [
        [
            site,
            *(None if i == j else float(d) for j, d in enumerate(found.distances[i])),
            float(found.mean_distances[i]),
        ]
        for i, site in enumerate(context.names)
    ]
    distances = Table(
        "distances",
        "Wasserstein-1 distance between two sites' grey values, in levels of 255, mean over channels.",
        ["site", *context.names, "to others"],
        rows,
        digits=1,
    )
    return Outcome("data", TITLE, summary(found), [distances], [_picture(found)])


def _picture(found: Inspection) -> Picture:
    from fedce.pictures import plots

    histograms = Table(
        "histograms",
        "Share of pixels in 64 steps of brightness.",
        ["site", "channel", *(str(4 * i) for i in range(found.sites[0].grey.histogram.shape[-1]))],
        [
            [site.name, str(channel), *(float(share) for share in shares)]
            for site in found.sites
            for channel, shares in enumerate(site.grey.histogram)
        ],
        digits=6,
    )
    return Picture(
        "intensities",
        "How bright each site's pixels are, by channel (lines), and the average of all sites (shaded).",
        plots.grey_values(found.sites).wide.encode(),
        data=histograms,
    )


STUDY = Study(TITLE, trainings, evaluate, results_alone, order=9)
