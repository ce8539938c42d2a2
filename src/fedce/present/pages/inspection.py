"""What a federation's data look like, as one self-contained HTML page."""

import json
from base64 import b64encode
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from fedce.base.files import write_bytes
from fedce.data.duplicates import ENOUGH, Duplicate, Usual
from fedce.data.inspection import Inspection, SiteFacts
from fedce.data.overlays import COLOURS, overlay
from fedce.data.remarks import summary
from fedce.data.resizing import to_size
from fedce.data.shape import spacing_of
from fedce.data.site import Pixels, SiteData, Sites
from fedce.present.facts import facts_table
from fedce.present.pages import page

PICTURE_SIDE = 160
"""Most pixels of a picture's longer side."""
SHOWN_DUPLICATES = 30


def write_inspection(sites: Sites, found: Inspection, path: Path) -> Path:
    from fedce.pictures import plots

    content = page(
        "inspection.html.j2",
        data_name=source_name(sites),
        size=_size(sites),
        counted=found.counted,
        summary=summary(found),
        found=found,
        site_names=[site.name for site in found.sites],
        any_spacing=any(site.spacing for site in found.sites),
        facts=facts_table(found, "page"),
        areas=facts_table(found, "areas"),
        legend=[(name, "rgb({} {} {})".format(*COLOURS[i % len(COLOURS)])) for i, name in enumerate(sites.classes)],
        examples=[(site.name, _examples(site, facts)) for site, facts in zip(sites, found.sites, strict=True)],
        duplicates=_duplicates(sites, found),
        enough=ENOUGH,
        groups=groups_lines(found.groups) if found.groups else None,
        # If all sites are alike, all distances are 0 and there is none to colour by.
        largest=found.distances.max() or 1,
        grey_plot=plots.grey_values(found.sites),
        areas_plot=plots.mask_areas(found.sites),
    )
    write_bytes(path, content)
    return path


def _size(sites: Sites) -> str:
    """What the images are when they are used for training."""
    if sites[0].patch is None:
        _, _, height, width = sites[0].images.shape
        return f"{height} x {width} pixels"
    spacing = spacing_of(sites.config)
    apart = f", resampled to {' x '.join(f'{mm:g}' for mm in spacing)} mm" if spacing else ""
    return f"slices of volumes{apart}"


def source_name(sites: Sites) -> str:
    """The folder's name alone, because its path on the reader's machine is private."""
    return Path(sites.config.source).resolve().name


def groups_lines(groups: Sequence[Sequence[str]]) -> str:
    """data.groups as TOML."""
    return "\n".join(["groups = [", *(f"  {group_line(group)}" for group in groups), "]"])


def group_line(group: Sequence[str]) -> str:
    return f"{json.dumps(list(group), ensure_ascii=False)},"


def _examples(site: SiteData, facts: SiteFacts) -> list[dict[str, str]]:
    """The chosen images of a site, outlined."""
    return [{"file": site.files[row], "picture": picture(site.images[row], site.masks[row])} for row in facts.examples]


def _duplicates(sites: Sites, found: Inspection) -> list[dict[str, Any]]:
    images_of = {site.name: site.images for site in sites}
    usual_of = {usual.site: usual for usual in found.usual}
    return [
        {
            "where": _where(pair),
            "measured": _measured(pair, [usual_of[name] for name in dict.fromkeys((pair.one.site, pair.other.site))]),
            "pictures": [
                {
                    "site": one.site,
                    "file": one.file,
                    "part": one.part,
                    "picture": picture(images_of[one.site][one.row]),
                }
                for one in (pair.one, pair.other)
            ],
            "line": group_line(pair.group) if pair.group else None,
        }
        for pair in found.duplicates[:SHOWN_DUPLICATES]
    ]


def _where(pair: Duplicate) -> str:
    if pair.across_sites:
        return "In two sites"
    return f"In {pair.one.part} and {pair.other.part}" if pair.across_splits else f"Both in {pair.one.part}"


def _measured(pair: Duplicate, places: Sequence[Usual]) -> str:
    """How alike the two images are, and how alike images of their sites usually are."""
    usual = " and ".join(f"{place.details.median:.2f} at {place.site}" for place in places if place.details)
    details = f"Likeness of details {pair.similarity:.2f}" + (f" (median {usual})" if usual else "")
    return f"{details}; one image is mirrored." if pair.mirrored else f"{details}; as a whole {pair.whole:.2f}."


def picture(image: Pixels, masks: Pixels | None = None) -> str:
    """An image (channels, height, width), with outlines of its masks, as a data URI."""
    height, width = image.shape[1:]
    scale = min(1, PICTURE_SIDE / max(height, width))
    size = (max(1, round(scale * height)), max(1, round(scale * width)))
    # Outlines are drawn after scaling, because a line of one pixel would fade.
    marked = np.zeros((0, *size), np.uint8) if masks is None else to_size(masks, size, "stretch", is_mask=True)
    buffer = BytesIO()
    overlay(to_size(image, size, "stretch"), marked).save(buffer, format="PNG", optimize=True)
    return f"data:image/png;base64,{b64encode(buffer.getvalue()).decode()}"
