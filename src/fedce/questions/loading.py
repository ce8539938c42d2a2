"""A run's model, ready to be used: for predictions, evaluations, audits and exports."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from fedce.base.errors import ConfigError, RunError
from fedce.base.files import read_tensors
from fedce.base.tables import DataConfig
from fedce.core.params import from_named
from fedce.data.pixels import Classes
from fedce.data.shape import patch_of
from fedce.federation.plan import code_of
from fedce.learning import networks as models
from fedce.learning.batches import Windows
from fedce.learning.graphs import with_weights
from fedce.learning.learner import Learner, learner_for
from fedce.learning.segmenter import Segmenter
from fedce.record.folder import RunFolder
from fedce.record.forms import ModelAbout, check

Shape = tuple[int, ...]
"""Channels and size of what the network was trained on: an image's height and width, or a patch's three sides."""


@dataclass(frozen=True)
class Which:
    """Which of a run's models is used, and where."""

    site: str | None = None
    """The site whose own model is used; None: the common model."""
    best: bool = False
    """Use the common model of the best round instead of that of the last round."""
    adapt: bool = False
    """Estimate batch-norm statistics from the images at hand, for a hospital that took no part."""
    trust_code: bool = False
    """Allow Python code that the run names: network, loss, file format and metrics."""
    device: str = "auto"


@dataclass(frozen=True)
class Loaded:
    """A run's network with its weights, and what the file of weights says of itself."""

    learner: Learner
    classes: Classes
    """The mask values that belong to each class."""
    written: Classes
    """The mask values that predictions hold: those of the training masks."""
    shape: Shape
    file: Path
    volumes: bool
    """Whether the run was trained on volumes."""
    modalities: bool
    """Whether the network's channels are modalities, and not grey or colours."""


def model_file(run: RunFolder, site: str | None, *, best: bool = False) -> Path:
    """The file of the common model, of the best round's model or of a site's own model."""
    if site and best:
        raise ConfigError(
            "--best is for the common model; a site's own model is its last: leave out --site or --best (site or best)"
        )
    path = run.site_model_file(site) if site else run.best_file if best else run.model_file
    if path.exists():
        return path
    own = sorted(file.stem for file in run.site_model_file("").parent.glob("*.safetensors"))
    if own:
        raise RunError(
            f"each site of {run.path} has its own model: add --site (in Python: site), one of {', '.join(own)}"
        )
    if run.model_file.exists():
        raise RunError(f"{run.path} has one model for all sites; leave out --site (in Python: site)")
    raise RunError(f"{run.path} has no {path.name}; finish it with 'fedce run --resume {run.path}'")


def load_model(run: RunFolder, which: Which) -> Loaded:
    """The run's network with its weights."""
    config = run.config
    if not which.trust_code:
        check_names_no_code(run, "model.name", "train.loss")
    path = model_file(run, which.site, best=which.best)
    tensors, about = read_tensors(path)
    check(ModelAbout, about, str(path))
    classes: Classes = about["classes"]
    device = models.choose_device(which.device, "--device")
    learner = learner_for(config, about["shape"][0], len(classes), device)
    if which.adapt and not learner.layout.running_statistics:
        raise ConfigError("--adapt: this model has no batch norm whose statistics could be estimated; leave it out")
    try:
        learner.load(from_named(learner.layout, tensors))
    except ValueError as error:
        raise RunError(f"{path} does not fit [model] in {run.config_file}: {error}") from None
    return Loaded(
        learner=learner,
        classes=classes,
        # Files of earlier versions say neither which values the training masks had, nor what the files were.
        written=about.get("written") or classes,
        shape=tuple(about["shape"]),
        file=path,
        volumes=_volumes(about, config.data),
        modalities=_modalities(about, config.data),
    )


def _volumes(about: Mapping[str, Any], data: DataConfig) -> bool:
    stated: bool | None = about.get("volumes")
    return data.format in ("volumes", "dicom") if stated is None else stated


def _modalities(about: Mapping[str, Any], data: DataConfig) -> bool:
    stated: bool | None = about.get("modalities")
    if stated is not None:
        return stated
    return about["shape"][0] > 1 and (_volumes(about, data) or isinstance(data.images, dict))


def plain_network(run: RunFolder, loaded: Loaded) -> nn.Module:
    """The network as it was built, with the loaded weights and without the learner's changes."""
    config = run.config
    built = models.build(config.model, loaded.shape[0], len(loaded.classes), config.seed, patch_of(config.data))
    return with_weights(built, loaded.learner.params)


def segmenter(run: RunFolder, which: Which) -> Segmenter:
    """The run's model as a torch module for images as they are, in eval mode."""
    loaded, data = load_model(run, which), run.config.data
    module = Segmenter(plain_network(run, loaded), data.normalize, Windows.asked_by(data))
    return module.to(loaded.learner.device).eval()


def check_names_no_code(run: RunFolder, *keys: str) -> None:
    """Refuse a run whose config names code at these keys, or in these lists, that this command would run."""
    code = {key: path for key, path in code_of(run.config).items() if key in keys or key.partition(".")[0] in keys}
    if code:
        named = ", ".join(f"{key} = {path}" for key, path in code.items())
        raise ConfigError(
            f"{run.config_file} names code that would be run ({named}); "
            "add --trust-code (in Python: trust_code=True) if you trust it"
        )
