"""Segment new images with a run's model."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from fedce import models
from fedce.data.folder import image_array, open_image
from fedce.errors import DataError, RunError
from fedce.files import read_tensors, writing
from fedce.learn import Learner
from fedce.params import from_named
from fedce.record import RunFolder

COLOURS = ((0, 200, 83), (255, 143, 0), (41, 121, 255), (216, 27, 96))
"""Outlines of the first, second, ... class: green, amber, blue, pink."""


def predict_files(run_path: Path, images: Sequence[Path], out: Path, site: str | None = None) -> Iterator[Path]:
    """Write NAME.png (the mask, with the values of data.classes) and NAME-overlay.png for each image."""
    run = RunFolder.open(run_path)
    learner, classes, (n_channels, height, width) = load_learner(run, site)
    names = [path.stem for path in images]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"two images are named {twice!r}; their masks would overwrite each other")
    # All are read before anything is written, so that a bad one leaves nothing half-done.
    for path in images:
        open_image(path)
    for path in images:
        image = open_image(path)
        pixels = image_array(image.convert("RGB" if n_channels == 3 else "L"), (width, height))
        masks = learner.predict(pixels[None])[0]
        full = np.stack(
            [np.asarray(Image.fromarray(mask).resize(image.size, Image.Resampling.NEAREST)) for mask in masks]
        )
        mask_path = out / f"{path.stem}.png"
        for target, picture in (
            (mask_path, Image.fromarray(mask_values(full, classes))),
            (out / f"{path.stem}-overlay.png", overlay(image, full)),
        ):
            with writing(target) as aside:
                picture.save(aside, format="PNG")
        yield mask_path


def load_learner(run: RunFolder, site: str | None) -> tuple[Learner, Mapping[str, list[int]], tuple[int, int, int]]:
    """The run's network with its weights, its classes, and the shape of the images that it was trained on."""
    config = run.config
    path = run.site_model_file(site) if site else run.model_file
    if not path.exists():
        own = sorted(file.stem for file in run.site_model_file("").parent.glob("*.safetensors"))
        if own:
            raise RunError(f"each site of {run.path} has its own model: add --site, one of {', '.join(own)}")
        raise RunError(f"{run.path} has no {path.name}; finish it with 'fedce run --resume {run.path}'")
    tensors, about = read_tensors(path)
    classes: Mapping[str, list[int]] = about["classes"]
    network = models.build(config.model, about["shape"][0], len(classes), config.seed)
    learner = Learner(network, config.train, config.data.normalize, torch.device("cpu"))
    try:
        learner.load(from_named(learner.layout, tensors))
    except ValueError as error:
        raise RunError(f"{path} does not fit [model] in {run.config_file}: {error}") from None
    return learner, classes, about["shape"]


def mask_values(masks: NDArray[np.bool_], classes: Mapping[str, Sequence[int]]) -> NDArray[np.uint8]:
    """One value a pixel: the one that belongs to just the classes found there, else to the last class found."""
    members = [set(values) for values in classes.values()]
    values = sorted(set.union(*members))
    result = np.zeros(masks.shape[1:], np.uint8)
    for i, mask in enumerate(masks):
        result[mask] = max(members[i])
    for value in values:
        exactly = np.all([mask == (value in own) for mask, own in zip(masks, members, strict=True)], axis=0)
        result[exactly] = value
    return result


def overlay(image: Image.Image, masks: NDArray[np.bool_]) -> Image.Image:
    """The image with each class outlined in its colour."""
    pixels = np.array(image.convert("RGB"))
    for i, mask in enumerate(masks):
        pixels[outline(mask)] = COLOURS[i % len(COLOURS)]
    return Image.fromarray(pixels)


def outline(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The mask's pixels that touch its outside."""
    padded = np.pad(mask, 1)
    inside = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    edge: NDArray[np.bool_] = mask & ~inside
    return edge
