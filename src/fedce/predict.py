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
    _check_targets(images, out)
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
        if run.model_file.exists():
            raise RunError(f"{run.path} has one model for all sites; leave out --site")
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
    result = np.zeros(masks.shape[1:], np.uint8)
    for i, mask in enumerate(masks):
        result[mask] = max(members[i])
    # Values that stand for the same classes look alike; the largest of them is written.
    by_classes = {tuple(value in own for own in members): value for value in sorted(set.union(*members))}
    for found, value in by_classes.items():
        result[np.all([mask == here for mask, here in zip(masks, found, strict=True)], axis=0)] = value
    return result


def _check_targets(images: Sequence[Path], out: Path) -> None:
    """Nothing that is read may be overwritten, and no two masks may have one name."""
    targets: set[Path] = set()
    for path in images:
        for target in (out / f"{path.stem}.png", out / f"{path.stem}-overlay.png"):
            if target in targets:
                raise DataError(f"two images would write {target}; give them other names or run them apart")
            targets.add(target)
    for path in images:
        if path.resolve() in {target.resolve() for target in targets}:
            raise DataError(f"{path} would be overwritten by its mask; choose another --out")


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
