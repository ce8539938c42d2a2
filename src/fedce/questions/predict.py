"""Segment new images with a run's model."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedce.base.errors import ConfigError, DataError, Problems, RunError
from fedce.base.files import write_bytes
from fedce.base.tables import DataConfig
from fedce.core.params import Params
from fedce.data.arrays import array_file, listed
from fedce.data.dicom_seg import SEG_ENDING, seg_bytes
from fedce.data.formats import DICOM, File, Formats, ending, slices_of
from fedce.data.newcases import by_case
from fedce.data.pixels import with_channels
from fedce.data.resizing import from_size, to_size
from fedce.data.volumes import unsliced
from fedce.questions.loading import Loaded, Which, check_names_no_code, load_model
from fedce.questions.segmentation import Pixels, Segmentation, save_picture
from fedce.questions.whole import at_network_spacing, check_dims, seen_whole, segment_whole
from fedce.record.folder import RunFolder

COMMON = Which()
Target = Literal["nifti", "seg"]
Case = tuple[File, Path]
"""A file with its modalities, and the path of its mask without an ending."""


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
    loaded = _opened(run, which)
    cases = _cases(run, loaded, images, out)
    _check_targets(cases, to, replace=replace)
    for (file, stem), found in zip(cases, _segmented(run, loaded, cases, which), strict=True):
        yield _write(found, file, _targets(file, stem, to))


def segment(run: RunFolder, images: Any, which: Which = COMMON) -> list[Segmentation]:
    """Segment images in memory or on disk: an array, a path, a folder, or several of them; nothing is written."""
    loaded = _opened(run, which)
    given = listed(images)
    arrays: list[Case] = [
        (array_file(f"image {i}", one, loaded.shape[0]), Path(f"image {i}"))
        for i, one in enumerate(given)
        if not isinstance(one, str | Path)
    ]
    paths = [Path(one) for one in given if isinstance(one, str | Path)]
    if arrays and paths:
        raise DataError("expected arrays alone or paths alone, got both; segment them one after the other")
    return list(_segmented(run, loaded, arrays or _cases(run, loaded, paths, Path()), which))


def _opened(run: RunFolder, which: Which) -> Loaded:
    if not which.trust_code:
        check_names_no_code(run, "data.format")
    return load_model(run, which)


def _cases(run: RunFolder, loaded: Loaded, images: Sequence[Path], out: Path) -> list[Case]:
    formats = Formats.named_by(run.config.data.format)
    found = [one for path in images for one in _found(path, out, formats)]
    return by_case(found, run.config.data, loaded.shape[0]) if loaded.modalities else found


def _segmented(run: RunFolder, loaded: Loaded, cases: Sequence[Case], which: Which) -> Iterator[Segmentation]:
    """What the model finds in each case. All files are checked first, so that a bad file leaves nothing half-done."""
    problems = Problems()
    for file, _ in cases:
        with problems.collected():
            check_dims(file, loaded.learner)
            _check_channels(file, loaded)
    problems.raise_any(f"{len(cases)} images")
    if which.adapt:
        loaded.learner.load(_adapted(loaded, [file for file, _ in cases], run.config.data))
    for file, stem in cases:
        find = _of_volume if file.is_volume else _of_image
        yield find(file, stem.name, run.config.data, loaded)


def _check_channels(file: File, loaded: Loaded) -> None:
    """Read the file, and refuse it if it has other modalities than the network takes."""
    n, expected = len(file.channels()) if file.is_volume else len(file.image()), loaded.shape[0]
    # Only grey and colour become each other.
    if n != expected and (file.has_modalities or loaded.modalities):
        raise DataError(f"{file.path} has {n} modalities or channels, and the network takes {expected}")


def _found(path: Path, out: Path, formats: Formats) -> list[Case]:
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


def _of_image(file: File, name: str, data: DataConfig, loaded: Loaded) -> Segmentation:
    pixels = file.image(data.intensity)
    return Segmentation(name, pixels, _masks(pixels[None], data, loaded)[0], loaded.written)


def _of_volume(file: File, name: str, data: DataConfig, loaded: Loaded) -> Segmentation:
    channels = file.channels()
    volume, values = channels[0], slices_of(channels, data.plane, data.intensity, file.path)
    if loaded.learner.windows is not None:
        seen = at_network_spacing(values, volume, data, file.path)
        masks = segment_whole(seen, (len(values), *values.shape[2:]), loaded.learner)
    else:
        masks = np.stack([_masks(values[z : z + 1], data, loaded)[0] for z in range(len(values))])
    return Segmentation(name, values, masks, loaded.written, volume, data.plane)


def _write(found: Segmentation, file: File, targets: tuple[Path, Path]) -> Path:
    """Write the mask and its overlay; returns the mask's path."""
    target, picture = targets
    if target.suffix == SEG_ENDING:
        masks = {name: mask.astype(np.uint8) for name, mask in found.masks.items()}
        of_class = {name: unsliced(mask, found.volume, found.plane) for name, mask in masks.items()}
        write_bytes(target, seg_bytes(of_class, file.path))
    else:
        found.save(target)
    save_picture(picture, found.picture)
    return target


def _adapted(loaded: Loaded, files: Sequence[File], data: DataConfig) -> Params:
    """The model with statistics of these images; the slices of a volume are images unless the network sees volumes."""
    learner = loaded.learner
    if learner.windows is not None:
        seen = [seen_whole(file, data) for file in files]
    else:
        seen = [_fitted([image for file in files for image in _pictures(file, data)], data, loaded)]
    return learner.adapted(learner.params, learner.unmarked(seen))


def _pictures(file: File, data: DataConfig) -> Pixels:
    """The image, or all slices of a volume: (n, channels, height, width)."""
    return file.slices(data.plane, data.intensity) if file.is_volume else file.image(data.intensity)[None]


def _fitted(images: Iterable[Pixels], data: DataConfig, loaded: Loaded) -> Pixels:
    """The images, resized as the network takes them."""
    n_channels, height, width = loaded.shape
    return np.stack([to_size(with_channels(image, n_channels), (height, width), data.resize) for image in images])


def _masks(images: Pixels, data: DataConfig, loaded: Loaded) -> Pixels:
    """Masks (n, classes, height, width) of images (n, channels, height, width), 0 or 1."""
    found = loaded.learner.predict(_fitted(images, data, loaded)).astype(np.uint8)
    return np.stack([from_size(mask, (images.shape[2], images.shape[3]), data.resize) for mask in found])


def _targets(file: File, stem: Path, to: Target) -> tuple[Path, Path]:
    """The files of the mask and of its overlay."""
    if to == "seg" and file.format is not DICOM:
        raise ConfigError(f"--to seg: {file.path} is not a DICOM series, which a DICOM SEG refers to; leave it out")
    mask = f"{stem.name}{SEG_ENDING if to == 'seg' else '.nii.gz' if file.is_volume else '.png'}"
    return stem.with_name(mask), stem.with_name(f"{stem.name}-overlay.png")


def _check_targets(stems: Sequence[Case], to: Target, *, replace: bool) -> None:
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
