"""What a plan must know of a site's images: counts, sizes, spacings, grey values, class areas. No image is in it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedce.base.errors import DataError, first_problem
from fedce.base.files import read_sealed
from fedce.base.tables import BUILT_IN, DataConfig
from fedce.data.cache import Notify
from fedce.data.inspection import grey_values_of
from fedce.data.site import SiteData, Sites
from fedce.data.sites import load_site, load_sites

SIDE = 64
"""Pixels a side at which files are decoded for a fingerprint; grey values and areas need no finer images."""
AT = (0.05, 0.5, 0.95)
"""Quantiles of the areas that a class covers."""
Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=10**9)]
Pixels = Annotated[int, Field(ge=1, le=10**6)]


class OfVolumes(BaseModel):
    """What a plan must know of a site's volumes beside their slices."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    depths: tuple[Pixels, Pixels, Pixels]
    """The smallest, the median and the largest number of slices."""
    n_train: Count
    n_validation: Count
    n_test: Count


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
    """Median distances in millimetres between slices, rows and columns; None if the files do not state them."""
    is_volume: bool
    grey: tuple[Annotated[tuple[Fraction, ...], Field(min_length=64, max_length=64)], ...]
    """For each channel, the part of all pixels in each of 64 bins of grey values."""
    areas: dict[str, tuple[Fraction, Fraction, Fraction]]
    """Class to three quantiles (5, 50, 95 %) of the part that it covers, over the images that show the class."""
    absent: dict[str, Fraction]
    """Class to the part of the images that have none of it."""
    classes: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...] = ()
    """All classes of the experiment, if the site labels only some of them; empty: `areas` has all."""
    volumes: OfVolumes | None = None
    """None if not all files are volumes; `n_train` and so on are then counts of slices."""

    @property
    def every_class(self) -> tuple[str, ...]:
        return self.classes or tuple(self.areas)


def fingerprint_of(site: SiteData, classes: Sequence[str]) -> Fingerprint:
    """The fingerprint of a site whose images are decoded, at any size."""
    areas = site.areas()[site.shown]
    height, width = site.images.shape[2:]
    origins = site.origins
    own = [(i, name) for i, name in enumerate(classes) if site.labels(i)]
    # Rows and columns as in the file: a fingerprint is made from images that were resized.
    spacings = [(origin.voxel[0], *origin.spacing) for origin in origins if origin.spacing and origin.voxel]
    return Fingerprint(
        site=site.name,
        **{f"n_{part}": n for part, n in site.n_by_part.items()},
        n_channels=site.images.shape[1],
        heights=_in_order([origin.height for origin in origins] or [height]),
        widths=_in_order([origin.width for origin in origins] or [width]),
        spacing=_middle(spacings) if spacings else None,
        is_volume=any(origin.spacing is not None for origin in origins),
        grey=tuple(tuple(np.round(channel, 6).tolist()) for channel in grey_values_of(site).histogram),
        areas={name: _areas(areas[:, i]) for i, name in own},
        absent={name: float(np.round((areas[:, i] == 0).mean(), 6)) for i, name in own},
        classes=tuple(classes) if site.labelled is not None else (),
        volumes=_of_volumes(site),
    )


def _of_volumes(site: SiteData) -> OfVolumes | None:
    if not site.origins or any(origin.spacing is None for origin in site.origins):
        return None
    depths = Counter(site.items)
    n = {f"n_{part}": len({site.items[row] for row in rows}) for part, rows in site.split.parts.items()}
    return OfVolumes(depths=_in_order(list(depths.values())), **n)


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
class Fingerprints:
    """The fingerprints of all sites of a federation, and the size of their images if it is settled."""

    sites: tuple[Fingerprint, ...]
    shape: tuple[int, ...] | None = None
    """Height and width of all images, or a patch's slices, rows and columns; None if the plan may choose them."""
    recognised: str = ""
    """How the files were recognised, in words."""


def fingerprints_of(sites: Sites) -> Fingerprints:
    """The fingerprints of images that are already decoded at the size of the training."""
    shape: tuple[int, ...] = sites[0].patch or sites[0].images.shape[2:]
    found = tuple(fingerprint_of(site, tuple(sites.classes)) for site in sites)
    return Fingerprints(found, shape, sites.recognised)


def look_at(config: DataConfig, notify: Notify | None = None, site: str | None = None) -> Fingerprints:
    """All sites' fingerprints, or one site's. Files are decoded at a small size, unless the experiment states one."""
    is_settled = config.source in BUILT_IN or config.size is not None
    # Volumes are looked at slice by slice, whatever the network will see of them.
    quick = {"size": SIDE, "dims": 2, "spacing": None, "patch": None}
    how = config if is_settled else config.model_copy(update=quick)
    found = fingerprints_of(load_site(how, site, notify=notify) if site else load_sites(how, notify=notify))
    if notify and found.recognised:
        notify(f"recognised: {found.recognised}")
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
