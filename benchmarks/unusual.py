"""Honest sites that are unusual, planted like attacks: what they have or when they take part is odd, and nothing else.

`benchmarks.false_alarms` trains federations in which one site, the second, is one of these.
"""

from dataclasses import replace
from functools import cache

import numpy as np

from fedce.core.params import Params
from fedce.core.site import Moments, Pull, Trained
from fedce.data import SiteData
from fedce.data.splits import Split
from fedce.site.hospital import Hospital
from fedce.site.impostor import Attack, Impostor

SWITCH = 8
"""From this round on, a site uses another scanner: early enough for a short run to show what follows."""
SMALL, LARGE = 3, 6
"""Training images of a very small site; factor on those of a very large one."""
GAP = range(4, 8)
"""Rounds in which a site that leaves and returns is away."""


def _negatives(data: SiteData) -> SiteData:
    return replace(data, masks=np.zeros_like(data.masks))


def _masks_alike(data: SiteData) -> SiteData:
    return replace(data, masks=np.repeat(data.masks[:1], len(data.masks), axis=0))


def _class_missing(data: SiteData) -> SiteData:
    masks = data.masks.copy()
    masks[:, -1] = 0
    return replace(data, masks=masks)


def _with_training_rows(data: SiteData, rows: np.ndarray) -> SiteData:  # type: ignore[type-arg]
    return replace(data, split=Split(rows, data.split.validation, data.split.test))


def _very_small(data: SiteData) -> SiteData:
    return _with_training_rows(data, data.split.train[:SMALL])


def _very_large(data: SiteData) -> SiteData:
    """Its training images, mirrored, shifted and in other brightness: as many patients as LARGE sites have."""
    images, masks, files, cases = [data.images], [data.masks], list(data.files), list(data.cases)
    train, rng = data.split.train, np.random.default_rng(0)
    for n in range(1, LARGE):
        shift, gain = int(rng.integers(-4, 5)), rng.uniform(0.85, 1.15)
        bright = np.clip(gain * data.images[train].astype(float), 0, 255).astype(data.images.dtype)
        images.append(np.roll(bright[..., :: (-1) ** n], shift, axis=-2))
        masks.append(np.roll(data.masks[train][..., :: (-1) ** n], shift, axis=-2))
        files += [f"{data.files[row]} {n}" for row in train]
        cases += [f"{data.cases[row]} {n}" for row in train]
    more = np.arange(len(data.images), len(files))
    grown = replace(
        data, images=np.concatenate(images), masks=np.concatenate(masks), files=tuple(files), cases=tuple(cases)
    )
    return _with_training_rows(grown, np.concatenate([train, more]))


def _another_scanner(own: Impostor, params: Params, round_no: int, moments: Moments, pull: Pull | None) -> Trained:
    assert isinstance(own.site, Hospital)
    site = own.site if round_no < SWITCH else _rescanned(own.site)
    return site.train(params, round_no, moments, pull)


@cache
def _rescanned(site: Hospital) -> Hospital:
    """The same patients with another gamma, contrast and brightness."""
    grey = 255 * (site.data.images / 255.0) ** 1.6 * 0.7 + 30
    data = replace(site.data, images=np.clip(grey, 0, 255).astype(site.data.images.dtype))
    return Hospital(data, site.learner, site.class_names, site.seed, site.measures)


NEGATIVES = Attack("has nothing but negatives", data=_negatives)
MASKS_ALIKE = Attack("has the same mask in every image", data=_masks_alike)
CLASS_MISSING = Attack("has no pixel of the last class", data=_class_missing)
VERY_SMALL = Attack(f"has {SMALL} training images", data=_very_small)
VERY_LARGE = Attack(f"has {LARGE} times its training images", data=_very_large)
JOINS_LATE = Attack("joins in the sixth round", there=lambda task, n_rounds, place: task.round_no >= 5)
RETURNS = Attack("is away for four rounds", there=lambda task, n_rounds, place: task.round_no not in GAP)
ANOTHER_SCANNER = Attack(f"uses another scanner from round {SWITCH + 1} on", _another_scanner)

UNUSUAL = {
    "negatives only": "NEGATIVES",
    "all masks alike": "MASKS_ALIKE",
    "one class missing": "CLASS_MISSING",
    "very small": "VERY_SMALL",
    "very large": "VERY_LARGE",
    "joins late": "JOINS_LATE",
    "leaves and returns": "RETURNS",
    "another scanner": "ANOTHER_SCANNER",
}
"""Condition to the name of its attack in this module."""
