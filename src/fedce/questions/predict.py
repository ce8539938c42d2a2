"""Segment new images with a run's model."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from fedce.base.errors import ConfigError, DataError, Problems, RunError
from fedce.base.files import read_tensors, write_bytes, writing
from fedce.base.tables import DataConfig
from fedce.core.params import Params, from_named
from fedce.data.formats import File, Formats
from fedce.data.overlays import overlay
from fedce.data.pixels import Classes, to_bytes, wide, with_channels
from fedce.data.resizing import from_size, to_size
from fedce.data.volumes import nifti_bytes, sliced, unsliced
from fedce.federation.plan import code_of
from fedce.learning.learner import Learner, learner_for
from fedce.questions.whole import check_dims, seen_whole, segment_whole
from fedce.record.folder import RunFolder
from fedce.record.forms import ModelAbout, check


def predict_files(
    run_path: Path,
    images: Sequence[Path],
    out: Path,
    site: str | None = None,
    *,
    adapt: bool = False,
    best: bool = False,
    trust_code: bool = False,
) -> Iterator[Path]:
    """Segment images and volumes. `trust_code` allows Python code that the run names: network, loss and format.

    With `best`, the common model of the best round is used instead of that of the last round.
    With `adapt`, the model's batch-norm statistics are estimated from these images, for a hospital that took no part.
    An image gives NAME.png (the mask, with the values of data.classes) and NAME-overlay.png. A volume gives
    NAME.nii.gz, in the volume's place and orientation, and an overlay of the slice in which most was found.
    """
    run = RunFolder.open(run_path)
    if not trust_code:
        check_names_no_code(run, "data.format")
    learner, classes, shape = load_learner(run, site, best=best, trust_code=trust_code)
    formats = Formats.named_by(run.config.data.format)
    stems = [(formats.file(path), out / formats.stem(path)) for path in images]
    _check_targets(stems)
    # All files are checked before any mask is written, so that a bad file leaves nothing half-done.
    problems = Problems()
    for file, _ in stems:
        with problems.collected():
            check_dims(file, learner)
            file.volume() if file.is_volume else file.image()
    problems.raise_any(f"{len(images)} images")
    if adapt:
        learner.load(_adapted(learner, [file for file, _ in stems], run.config.data, shape))
    for file, stem in stems:
        predict = _predict_volume if file.is_volume else _predict_image
        yield predict(file, stem, run.config.data, learner, classes, shape)


Shape = tuple[int, int, int]
"""Channels, height and width of the images that the network was trained on."""
Masks = NDArray[np.uint8]


def _predict_image(file: File, stem: Path, data: DataConfig, learner: Learner, classes: Classes, shape: Shape) -> Path:
    pixels = file.image(data.intensity)
    masks = _segment(pixels[None], data, learner, shape)[0]
    target, picture = _targets(file, stem)
    _save(target, Image.fromarray(mask_values(masks, classes)))
    _save(picture, overlay(pixels, masks))
    return target


def _predict_volume(file: File, stem: Path, data: DataConfig, learner: Learner, classes: Classes, shape: Shape) -> Path:
    volume = file.volume()
    values = to_bytes(sliced(volume, data.plane).values, wide(data.intensity), file.path)[:, None]
    if learner.windows is not None:
        masks = segment_whole(file, data, learner, shape[0])
    else:
        masks = np.stack([_segment(values[z : z + 1], data, learner, shape)[0] for z in range(len(values))])
    labels = np.stack([mask_values(mask, classes) for mask in masks])
    target, picture = _targets(file, stem)
    write_bytes(target, nifti_bytes(unsliced(labels, volume, data.plane)))
    most = int(masks.any(axis=1).sum(axis=(1, 2)).argmax())
    _save(picture, overlay(values[most], masks[most]))
    return target


def _adapted(learner: Learner, files: Sequence[File], data: DataConfig, shape: Shape) -> Params:
    """The model with batch-norm statistics of all these images and of all slices of volumes."""
    if not learner.layout.running_statistics:
        raise ConfigError("--adapt: this model has no batch norm whose statistics could be estimated; leave it out")
    if learner.windows is not None:
        return learner.adapted(learner.params, learner.unmarked([seen_whole(file, data, shape[0]) for file in files]))
    pixels = [picture for file in files for picture in _pictures(file, data)]
    return learner.adapted(learner.params, learner.unmarked([_fitted(pixels, data, shape)]))


def _pictures(file: File, data: DataConfig) -> Masks:
    """The image, or all slices of a volume: (n, channels, height, width)."""
    return _slices(file, data) if file.is_volume else file.image(data.intensity)[None]


def _slices(file: File, data: DataConfig) -> Masks:
    return to_bytes(sliced(file.volume(), data.plane).values, wide(data.intensity), file.path)[:, None]


def _fitted(images: Iterable[Masks], data: DataConfig, shape: Shape) -> Masks:
    """The images, resized as the network takes them."""
    n_channels, height, width = shape
    return np.stack([to_size(with_channels(image, n_channels), (height, width), data.resize) for image in images])


def _segment(images: Masks, data: DataConfig, learner: Learner, shape: Shape) -> Masks:
    """Masks (n, classes, height, width) of images (n, channels, height, width), 0 or 1."""
    found = learner.predict(_fitted(images, data, shape)).astype(np.uint8)
    return np.stack([from_size(mask, (images.shape[2], images.shape[3]), data.resize) for mask in found])


def _save(path: Path, picture: Image.Image) -> None:
    with writing(path) as aside:
        picture.save(aside, format="PNG")


def load_learner(
    run: RunFolder, site: str | None, *, best: bool = False, trust_code: bool
) -> tuple[Learner, Classes, Shape]:
    """The run's network with its weights, its classes, and the shape of the images that it was trained on."""
    config = run.config
    if not trust_code:
        check_names_no_code(run, "model.name", "train.loss")
    if site and best:
        raise ConfigError("--best is for the common model; a site's own model is its last: leave out --site or --best")
    path = run.site_model_file(site) if site else run.best_file if best else run.model_file
    if not path.exists():
        own = sorted(file.stem for file in run.site_model_file("").parent.glob("*.safetensors"))
        if own:
            raise RunError(f"each site of {run.path} has its own model: add --site, one of {', '.join(own)}")
        if run.model_file.exists():
            raise RunError(f"{run.path} has one model for all sites; leave out --site")
        raise RunError(f"{run.path} has no {path.name}; finish it with 'fedce run --resume {run.path}'")
    tensors, about = read_tensors(path)
    check(ModelAbout, about, str(path))
    classes: Classes = about["classes"]
    learner = learner_for(config, about["shape"][0], len(classes), torch.device("cpu"))
    try:
        learner.load(from_named(learner.layout, tensors))
    except ValueError as error:
        raise RunError(f"{path} does not fit [model] in {run.config_file}: {error}") from None
    n_channels, *_, height, width = about["shape"]
    return learner, classes, (n_channels, height, width)


def check_names_no_code(run: RunFolder, *keys: str) -> None:
    """Refuse a run whose config names code at these keys, or in these lists, that this command would run."""
    code = {key: path for key, path in code_of(run.config).items() if key in keys or key.partition(".")[0] in keys}
    if code:
        named = ", ".join(f"{key} = {path}" for key, path in code.items())
        raise ConfigError(f"{run.config_file} names code that would be run ({named}); add --trust-code if you trust it")


def mask_values(masks: Masks, classes: Classes) -> NDArray[np.uint8]:
    """One mask value for each pixel: the value of exactly the classes found there, else of the last class found."""
    members = [set(values) for values in classes.values()]
    result = np.zeros(masks.shape[1:], np.uint8)
    for i, mask in enumerate(masks):
        result[mask > 0] = max(members[i])
    # If several values stand for the same classes, the largest is written.
    by_classes = {tuple(value in own for own in members): value for value in sorted(set.union(*members))}
    for found, value in by_classes.items():
        result[np.all([(mask > 0) == here for mask, here in zip(masks, found, strict=True)], axis=0)] = value
    return result


def _targets(file: File, stem: Path) -> tuple[Path, Path]:
    """The files of the mask and of its overlay."""
    mask = f"{stem.name}{'.nii.gz' if file.is_volume else '.png'}"
    return stem.with_name(mask), stem.with_name(f"{stem.name}-overlay.png")


def _check_targets(stems: Sequence[tuple[File, Path]]) -> None:
    """Refuse to overwrite an input, and two masks with the same name."""
    targets: set[Path] = set()
    for file, stem in stems:
        for target in _targets(file, stem):
            if target in targets:
                raise DataError(f"two images would write {target}; give them other names or run them apart")
            targets.add(target)
    for file, _ in stems:
        if file.path.resolve() in {target.resolve() for target in targets}:
            raise DataError(f"{file.path} would be overwritten by its mask; choose another --out")
