"""Segment new images with a run's model."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedce.base.errors import ConfigError, DataError, Problems, RunError
from fedce.base.files import write_bytes, writing
from fedce.base.tables import DataConfig
from fedce.core.params import Params
from fedce.data.dicom_seg import SEG_ENDING, seg_bytes
from fedce.data.formats import DICOM, File, Formats, ending, slices_of
from fedce.data.newcases import by_case
from fedce.data.overlays import overlay
from fedce.data.pixels import mask_values, with_channels
from fedce.data.resizing import from_size, to_size
from fedce.data.volumes import nifti_bytes, unsliced
from fedce.questions.loading import Loaded, Which, check_names_no_code, load_model
from fedce.questions.whole import at_network_spacing, check_dims, seen_whole, segment_whole
from fedce.record.folder import RunFolder

COMMON = Which()
Masks = NDArray[np.uint8]
Target = Literal["nifti", "seg"]


def predict_files(
    run_path: Path,
    images: Sequence[Path],
    out: Path,
    which: Which = COMMON,
    *,
    to: Target = "nifti",
    replace: bool = False,
) -> Iterator[Path]:
    """Segment images, volumes, and all of them in folders, whose inner paths are kept.

    An image gives NAME.png (the mask, with the values of the training masks) and NAME-overlay.png. A volume gives
    NAME.nii.gz, in the volume's place and orientation, and an overlay of the slice in which most was found. With
    `to` = "seg", a DICOM series gives NAME.dcm, a DICOM SEG, instead. Several modalities of a case are several files.
    """
    run = RunFolder.open(run_path)
    if not which.trust_code:
        check_names_no_code(run, "data.format")
    loaded = load_model(run, which)
    formats = Formats.named_by(run.config.data.format)
    found = [one for path in images for one in _found(path, out, formats)]
    stems = by_case(found, run.config.data, loaded.shape[0]) if loaded.modalities else found
    _check_targets(stems, to, replace=replace)
    # All files are checked before any mask is written, so that a bad file leaves nothing half-done.
    problems = Problems()
    for file, _ in stems:
        with problems.collected():
            check_dims(file, loaded.learner)
            _check_channels(file, loaded)
    problems.raise_any(f"{len(stems)} images")
    if which.adapt:
        loaded.learner.load(_adapted(loaded, [file for file, _ in stems], run.config.data))
    for file, stem in stems:
        predict = _predict_volume if file.is_volume else _predict_image
        yield predict(file, _targets(file, stem, to), run.config.data, loaded)


def _check_channels(file: File, loaded: Loaded) -> None:
    """Read the file, and refuse it if it has other modalities than the network takes."""
    n, expected = len(file.channels()) if file.is_volume else len(file.image()), loaded.shape[0]
    # Only grey and colour become each other.
    if n != expected and (file.has_modalities or loaded.modalities):
        raise DataError(f"{file.path} has {n} modalities or channels, and the network takes {expected}")


def _found(path: Path, out: Path, formats: Formats) -> list[tuple[File, Path]]:
    """A file, a series, or all files and series in a folder, each with the path of its mask without an ending."""
    if not path.exists():
        raise DataError(f"there is no file or folder {path}")
    if not path.is_dir() or _is_series(path, formats):
        return [(formats.file(path), out / formats.stem(path))]
    inside = [one for one in sorted(path.rglob("*")) if not _is_hidden(one.relative_to(path))]
    series = {one for one in inside if one.is_dir() and _is_series(one, formats)}
    chosen = [one for one in inside if one in series or (one.is_file() and ending(one, formats.known))]
    kept = [one for one in chosen if not series & set(one.parents)]
    if not kept:
        known = ", ".join(dict.fromkeys(end for one in formats.known for end in one.endings))
        raise DataError(f"there is no image in {path}; expected files that end in {known}")
    return [(formats.file(one), out / one.relative_to(path).with_name(formats.stem(one))) for one in kept]


def _is_series(path: Path, formats: Formats) -> bool:
    return any(one.is_folder is not None and one.is_folder(path) for one in formats.known)


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _predict_image(file: File, targets: tuple[Path, Path], data: DataConfig, loaded: Loaded) -> Path:
    pixels = file.image(data.intensity)
    masks = _segment(pixels[None], data, loaded)[0]
    target, picture = targets
    _save(target, Image.fromarray(mask_values(masks, loaded.written)))
    _save(picture, overlay(pixels, masks))
    return target


def _predict_volume(file: File, targets: tuple[Path, Path], data: DataConfig, loaded: Loaded) -> Path:
    channels = file.channels()
    volume, values = channels[0], slices_of(channels, data.plane, data.intensity, file.path)
    if loaded.learner.windows is not None:
        seen = at_network_spacing(values, volume, data, file.path)
        masks = segment_whole(seen, (len(values), *values.shape[2:]), loaded.learner)
    else:
        masks = np.stack([_segment(values[z : z + 1], data, loaded)[0] for z in range(len(values))])
    target, picture = targets
    if target.suffix == SEG_ENDING:
        of_class = {name: unsliced(masks[:, i], volume, data.plane) for i, name in enumerate(loaded.classes)}
        write_bytes(target, seg_bytes(of_class, file.path))
    else:
        labels = np.stack([mask_values(mask, loaded.written) for mask in masks])
        write_bytes(target, nifti_bytes(unsliced(labels, volume, data.plane)))
    most = int(masks.any(axis=1).sum(axis=(1, 2)).argmax())
    _save(picture, overlay(values[most], masks[most]))
    return target


def _adapted(loaded: Loaded, files: Sequence[File], data: DataConfig) -> Params:
    """The model with statistics of these images; the slices of a volume are images unless the network sees volumes."""
    learner = loaded.learner
    if learner.windows is not None:
        seen = [seen_whole(file, data) for file in files]
    else:
        seen = [_fitted([image for file in files for image in _pictures(file, data)], data, loaded)]
    return learner.adapted(learner.params, learner.unmarked(seen))


def _pictures(file: File, data: DataConfig) -> Masks:
    """The image, or all slices of a volume: (n, channels, height, width)."""
    return file.slices(data.plane, data.intensity) if file.is_volume else file.image(data.intensity)[None]


def _fitted(images: Iterable[Masks], data: DataConfig, loaded: Loaded) -> Masks:
    """The images, resized as the network takes them."""
    n_channels, height, width = loaded.shape
    return np.stack([to_size(with_channels(image, n_channels), (height, width), data.resize) for image in images])


def _segment(images: Masks, data: DataConfig, loaded: Loaded) -> Masks:
    """Masks (n, classes, height, width) of images (n, channels, height, width), 0 or 1."""
    found = loaded.learner.predict(_fitted(images, data, loaded)).astype(np.uint8)
    return np.stack([from_size(mask, (images.shape[2], images.shape[3]), data.resize) for mask in found])


def _save(path: Path, picture: Image.Image) -> None:
    with writing(path) as aside:
        picture.save(aside, format="PNG")


def _targets(file: File, stem: Path, to: Target) -> tuple[Path, Path]:
    """The files of the mask and of its overlay."""
    if to == "seg" and file.format is not DICOM:
        raise ConfigError(f"--to seg: {file.path} is not a DICOM series, which a DICOM SEG refers to; leave it out")
    mask = f"{stem.name}{SEG_ENDING if to == 'seg' else '.nii.gz' if file.is_volume else '.png'}"
    return stem.with_name(mask), stem.with_name(f"{stem.name}-overlay.png")


def _check_targets(stems: Sequence[tuple[File, Path]], to: Target, *, replace: bool) -> None:
    """Refuse to overwrite an input, two masks with the same name and, without `replace`, any file."""
    targets: dict[Path, None] = {}
    for file, stem in stems:
        for target in _targets(file, stem, to):
            if target in targets:
                raise DataError(f"two images would write {target}; give them other names or run them apart")
            targets[target] = None
    written = {target.resolve() for target in targets}
    for one in (one for file, _ in stems for one in file.files):
        if one.path.resolve() in written:
            raise DataError(f"{one.path} would be overwritten by its mask; choose another --out")
    if not replace and (there := [target for target in targets if target.exists()]):
        more = f" and {len(there) - 1} more files" if len(there) > 1 else ""
        raise RunError(f"{there[0]}{more} would be overwritten; add --replace, or choose another --out")
