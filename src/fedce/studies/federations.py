"""The federations on which estimates of a site's worth are tried, and which of them may be looked at.

An estimator that is chosen on some federations must be reported on others. Which is which is decided by a digest of the
federation's name, before any number is known: nobody can move a federation to the side on which it looks better.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedce.base.config import Config
from fedce.data import synthetic

Pixels = NDArray[np.uint8]
SCALE = synthetic.SCALES["demo"]
DONE = "complete"
"""A file that is written last, so that a folder whose drawing was killed is drawn again."""


@dataclass(frozen=True)
class Pictures:
    """A site's images (n, channels, height, width) and masks (n, classes, height, width)."""

    images: Pixels
    masks: Pixels

    def first(self, n: int) -> "Pictures":
        return Pictures(self.images[:n], self.masks[:n])


Change = Callable[[dict[str, Pictures]], dict[str, Pictures]]


@dataclass(frozen=True)
class Federation:
    """One federation of the bench.

    >>> Federation("fundus6, site norm", "fundus6", "site").is_reported
    False
    """

    name: str
    base: str
    norm: str
    change: Change | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    """Keys of [data] beside the source."""

    @property
    def is_reported(self) -> bool:
        """Whether its numbers are reported; if not, they may be looked at when an estimator is chosen."""
        return sha256(self.name.encode()).digest()[0] % 2 == 1

    def config(self, experiment: Config, folder: Path) -> Config:
        """The experiment with this federation's data and norm; changed images are drawn into a folder, once."""
        source = self.base if self.change is None else str(self._drawn(folder))
        data = {"source": source, **self.data}
        if self.change is not None:
            values = synthetic.FEDERATIONS[self.base].classes
            data["classes"] = {name: list(found) for name, found in values.items()}
        return experiment.model_copy(
            update={
                "data": experiment.data.model_copy(update=data),
                "model": experiment.model.model_copy(update={"norm": self.norm}),
            }
        )

    def _drawn(self, folder: Path) -> Path:
        assert self.change is not None
        target = folder / self.name.replace(" ", "-")
        if not (target / DONE).exists():
            for site, pictures in self.change(_drawn_sites(self.base)).items():
                _write(target / site, pictures, synthetic.FEDERATIONS[self.base].classes)
            (target / DONE).touch()
        return target


def _drawn_sites(base: str) -> dict[str, Pictures]:
    federation = synthetic.FEDERATIONS[base]
    return {site: _drawn(base, site, n) for site, n in synthetic.counts(federation, SCALE.share).items()}


def _drawn(base: str, site: str, n: int) -> Pictures:
    return Pictures(*synthetic.generate(base, site, n, SCALE.size, seed=0))


def _write(folder: Path, pictures: Pictures, classes: Mapping[str, tuple[int, ...]]) -> None:
    """PNG files; a later class is painted over an earlier one, as a cup lies in its disc."""
    for part in ("images", "masks"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    for i, (image, mask) in enumerate(zip(pictures.images, pictures.masks, strict=True)):
        painted = np.zeros(mask.shape[1:], dtype=np.uint8)
        for marked, values in zip(mask, classes.values(), strict=True):
            painted[marked > 0] = values[0]
        Image.fromarray(image.transpose(1, 2, 0).squeeze()).save(folder / "images" / f"{i:04d}.png")
        Image.fromarray(painted).save(folder / "masks" / f"{i:04d}.png")


def _wrong_labels(sites: dict[str, Pictures]) -> dict[str, Pictures]:
    """Site 4 marks everything an eighth of the picture too far to the right."""
    own = sites["site4"]
    return {**sites, "site4": Pictures(own.images, np.roll(own.masks, SCALE.size // 8, axis=-1))}


def _few_images(sites: dict[str, Pictures]) -> dict[str, Pictures]:
    """The largest site has 12 images."""
    return {**sites, "site6": sites["site6"].first(12)}


def _many_images(sites: dict[str, Pictures]) -> dict[str, Pictures]:
    """Site 1 has four times as many images."""
    return {**sites, "site1": _drawn("fundus6", "site1", 4 * len(sites["site1"].images))}


def _duplicated_site(sites: dict[str, Pictures]) -> dict[str, Pictures]:
    """Site 3 has nothing but copies of site 6's images."""
    return {**sites, "site3": sites["site6"].first(len(sites["site3"].images))}


def _redundant_pair(sites: dict[str, Pictures]) -> dict[str, Pictures]:
    """Sites 2 and 5 have other patients in front of one camera, that of site 5."""
    both = _drawn("fundus6", "site5", len(sites["site5"].images) + len(sites["site2"].images))
    n = len(sites["site5"].images)
    return {**sites, "site2": Pictures(both.images[n:], both.masks[n:])}


def _another_scanner(sites: dict[str, Pictures]) -> dict[str, Pictures]:
    """Site 2's grey values are inverted."""
    own = sites["site2"]
    return {**sites, "site2": Pictures(255 - own.images, own.masks)}


NORMS = ("batch", "instance", "site")
DRAWN = (
    *(Federation(f"{base}, {norm} norm", base, norm) for base in ("fundus6", "prostate6") for norm in NORMS),
    Federation("shards", "prostate6", "batch", data={"sites": ("site1", "site3", "site5"), "shards": 2}),
    Federation("wrong labels", "fundus6", "instance", _wrong_labels),
    Federation("few images", "prostate6", "site", _few_images),
    Federation("many images", "fundus6", "site", _many_images),
    Federation("duplicated site", "prostate6", "batch", _duplicated_site),
    Federation("redundant pair", "fundus6", "instance", _redundant_pair),
    Federation("another scanner", "prostate6", "instance", _another_scanner),
)
"""Federations that anybody can draw."""


def of_folder(source: str, data: Mapping[str, Any] | None = None) -> tuple[Federation, ...]:
    """The federations of a folder of real images: the same sites with each norm."""
    name = Path(source).name.lower()
    return tuple(Federation(f"{name}, {norm} norm", source, norm, data=data or {}) for norm in NORMS)
