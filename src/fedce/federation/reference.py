"""A reference set at the coordinator: labelled images on which models are scored, so that no site has to score."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedce.base.config import Config
from fedce.base.errors import ConfigError, DataError
from fedce.core.params import Params, completed
from fedce.data import SiteData
from fedce.data.labels import classes_for_others
from fedce.data.pixels import Classes
from fedce.data.shape import settled
from fedce.data.sites import load_labelled
from fedce.data.splits import Split
from fedce.learning.learner import Learner
from fedce.site.hospital import Hospital


class Reference:
    """Scores models on all images of a site that takes no part."""

    def __init__(self, data: SiteData, learner: Learner, class_names: tuple[str, ...]) -> None:
        every, nothing = np.arange(len(data.images)), np.arange(0)
        self.learner = learner
        self.hospital = Hospital(replace(data, split=Split(every, every, nothing)), learner, class_names, seed=0)

    def __call__(self, models: Sequence[Params]) -> tuple[float, ...]:
        return self.hospital.scores([self._whole(model) for model in models])

    def _whole(self, model: Params) -> Params:
        """If batch-norm statistics stay at the sites, the model gets those of the reference images."""
        if model.layout == self.learner.layout:
            return model
        return self.hospital.adapted(completed(model, self.learner.initial))


def reference_images(config: Config, shape: tuple[int, ...], classes: Classes | None = None) -> SiteData:
    """The images that `worth.reference` names, with the sites' classes; `shape` is (channels, height, width).

    Without `classes`, data.classes or the folder's own dataset.json states them.
    """
    assert config.worth.reference is not None
    folder = Path(config.worth.reference).resolve()
    if not folder.is_dir():
        raise ConfigError(f"worth.reference: expected a folder of labelled images, and {folder} is not a folder")
    stated = config.data.classes if classes is None else classes_for_others(config.data, classes)
    own = {"sites": (), "shards": 1, "root": None, "groups": [], "classes": stated}
    reading = settled(config.data).model_copy(update=own)
    try:
        found = load_labelled(reading, folder)
    except DataError as error:
        raise DataError(f"worth.reference: {error}") from None
    if len(found) > 1:
        names = ", ".join(site.name for site in found)
        raise ConfigError(f"worth.reference: {folder} holds several sites ({names}); name the folder of one of them")
    data: SiteData = found[0]
    if data.shape != shape:
        raise ConfigError(
            f"worth.reference: images in {folder} have {_size(data.shape)} channels and pixels, and the "
            f"sites' images {_size(shape)}; set data.size"
        )
    return data


def _size(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
