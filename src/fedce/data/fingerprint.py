"""What a plan must know of a site's images: counts, sizes, spacings, grey values, class areas. No image is in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedce.base.errors import DataError, first_problem
from fedce.base.files import read_sealed
from fedce.base.tables import BUILT_IN, DataConfig
from fedce.data.inspection import grey_values
from fedce.data.sites import Notify, SiteData, Sites, chunks, load_site, load_sites

SMALL = 64
"""Pixels a side at which files are looked at; nothing in a fingerprint is finer."""
AT = (0.05, 0.5, 0.95)
"""Quantiles of the areas that a class covers."""
Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=10**9)]
Pixels = Annotated[int, Field(ge=1, le=10**6)]


class Fingerprint(BaseModel):
    """One site in some hundred numbers, which a hospital may send before round 1 (docs/privacy.md)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    site: Annotated[str, Field(min_length=1, max_length=200)]
    n_train: Annotated[int, Field(ge=1, le=10**9)]
    n_validation: Count
    n_test: Count
    n_channels: Annotated[int, Field(ge=1, le=64)]
    heights: tuple[Pixels, Pixels, Pixels]
    """The smallest, the median and the largest height of the original images."""
    widths: tuple[Pixels, Pixels, Pixels]
    spacing: tuple[float, float, float] | None
    """Millimetres between slices, rows and columns in the middle; None where files don't say."""
    is_volume: bool
    grey: tuple[Annotated[tuple[Fraction, ...], Field(min_length=64, max_length=64)], ...]
    """Of each channel: the part of all pixels in each of 64 bins of grey values."""
    areas: dict[str, tuple[Fraction, Fraction, Fraction]]
    """Class to the part of an image that it covers, where it is: a small, a middle and a large one."""
    absent: dict[str, Fraction]
    """Class to the part of the images that have none of it."""


def fingerprint_of(site: SiteData, classes: Sequence[str]) -> Fingerprint:
    """The fingerprint of a site whose images are decoded, at whatever size."""
    areas = np.concatenate([masks.mean(axis=(2, 3)) for masks in chunks(site.masks)])[site.shown]
    height, width = site.images.shape[2:]
    origins = site.origins
    spacings = [origin.voxel for origin in origins if origin.spacing is not None and origin.voxel is not None]
    return Fingerprint(
        site=site.name,
        n_train=len(site.split.train),
        n_validation=len(site.split.validation),
        n_test=len(site.split.test),
        n_channels=site.images.shape[1],
        heights=_in_order([origin.height for origin in origins] or [height]),
        widths=_in_order([origin.width for origin in origins] or [width]),
        spacing=_middle(spacings) if spacings else None,
        is_volume=any(origin.spacing is not None for origin in origins),
        grey=tuple(tuple(np.round(channel, 6).tolist()) for channel in grey_values(site.images).histogram),
        areas={name: _areas(area) for name, area in zip(classes, areas.T, strict=True)},
        absent={name: float(np.round((area == 0).mean(), 6)) for name, area in zip(classes, areas.T, strict=True)},
    )


def _in_order(values: Sequence[int]) -> tuple[int, int, int]:
    """The ends, because a single image of another size already needs data.size."""
    known = sorted(values)
    return known[0], known[len(known) // 2], known[-1]


def _middle(spacings: Sequence[tuple[float, float, float]]) -> tuple[float, float, float]:
    z, y, x = (float(np.round(value, 4)) for value in np.median(np.array(spacings), axis=0))
    return z, y, x


def _areas(area: Any) -> tuple[float, float, float]:
    there = area[area > 0]
    if not len(there):
        return 0.0, 0.0, 0.0
    small, middle, large = (float(np.round(value, 6)) for value in np.quantile(there, AT))
    return small, middle, large


@dataclass(frozen=True)
class Known:
    """What is known of a federation's images before round 1."""

    sites: tuple[Fingerprint, ...]
    shape: tuple[int, int] | None = None
    """Height and width of all images, where that is settled."""


def known_of(sites: Sites) -> Known:
    """Of images that are decoded at the size at which they are trained on."""
    height, width = sites[0].images.shape[2:]
    return Known(tuple(fingerprint_of(site, tuple(sites.classes)) for site in sites), (height, width))


def look_at(config: DataConfig, notify: Notify | None = None, site: str | None = None) -> Known:
    """All sites' fingerprints, or one site's. Files are decoded at a small size, unless the experiment states one."""
    is_settled = config.source in BUILT_IN or config.size is not None
    how = config if is_settled else config.model_copy(update={"size": SMALL})
    found = known_of(load_site(how, site, notify=notify) if site else load_sites(how, notify=notify))
    return found if is_settled else replace(found, shape=None)


def read_fingerprint(path: Path) -> Fingerprint:
    """A fingerprint that a hospital sent as a file."""
    value: Mapping[str, Any] = read_sealed(path)
    try:
        return Fingerprint.model_validate(value)
    except ValidationError as error:
        raise DataError(
            f"{path} is not a site's fingerprint ({first_problem(error)}); ask the site for it again"
        ) from None
