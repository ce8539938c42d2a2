"""How one folder is laid out: images and masks in folders, by suffix, in a folder for each patient, or as BIDS."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from fedce.base.errors import Problems
from fedce.base.tables import DataConfig
from fedce.data.dataset_json import Described, described
from fedce.data.formats import FORMATS, NOT_READ, Format, Formats, ending
from fedce.data.items import Item, SiteFiles, cases_by_file, with_cases
from fedce.data.patterns import Match, by_patterns, is_readable
from fedce.data.seen import MASK_WORDS, can_be_paired, patterns_in, seen_in
from fedce.data.splits import NAMES, PART_FOLDERS

IN_FOLDERS, BY_SUFFIX, OF_PATIENTS = "images and masks in folders", "images and masks by suffix", "a folder a patient"
NNUNET, DECATHLON, BIDS, STATED = "nnU-Net folders", "Decathlon folders", "BIDS tree", "stated patterns"
IN_PARTS = "images and masks in folders of train, validation and test"
# Patterns of images and masks that are tried, in this order, without data.images and data.masks. The * is what the
# names of an image and of its mask have in common.
LAYOUTS = (
    (IN_FOLDERS, "images/*", "masks/*"),
    (IN_FOLDERS, "images/*", "masks/*_mask"),
    (IN_FOLDERS, "images/*", "labels/*"),
    (DECATHLON, "imagesTr/*", "labelsTr/*"),
    (IN_FOLDERS, "image/*", "mask/*"),
    (BY_SUFFIX, "*_image", "*_mask"),
    (BY_SUFFIX, "*", "*_mask"),
    (BY_SUFFIX, "*", "*_segmentation"),
)
IMAGE_FORMATS = ", ".join(one.name for one in FORMATS if one.holds == "image")
ONE_DATA_SET = ({"images", "masks"}, {"images", "labels"}, {"imagesTr", "labelsTr"}, {"image", "mask"})
"""Names of folders that one data set has; a folder with them does not hold a folder for each site."""
IMAGE_FOLDERS = tuple(sorted(set().union(*ONE_DATA_SET)))
BIDS_NAME = re.compile(r"(sub-[^_]+)(?:_(ses-[^_]+))?(?:_.*)?_([A-Za-z0-9-]+)")
BIDS_MASKS = frozenset(("mask", "dseg", "seg", "roi", "label"))


def is_one_data_set(folder: Path) -> bool:
    """Whether the folder holds images itself, and not a folder for each site."""
    names = {path.name for path in folder.iterdir() if path.is_dir()}
    lower = {name.lower() for name in names}
    if any({name.lower() for name in own} <= lower for own in ONE_DATA_SET) or any(
        name.startswith("sub-") for name in names
    ):
        return True
    # One part alone may be the name of a hospital's folder; all of them are not hospitals.
    return "train" in {PART_FOLDERS.get(name.lower()) for name in names} and len(_parts_in(names)) > 1


def _parts_in(names: Iterable[str]) -> set[str]:
    return {PART_FOLDERS[name.lower()] for name in names if name.lower() in PART_FOLDERS}


def files_in(folder: Path, site: str, config: DataConfig, problems: Problems) -> SiteFiles:
    """The pairs of a folder by the stated patterns, or by the layout that pairs the most."""
    formats = Formats.named_by(config.format)
    searched = formats.searched(config.format)
    best = _best(folder, config, searched)
    about = Described()
    with problems.collected(f"site {site!r}"):
        about = described(folder)
    # Folders of images alone and of masks alone are no patients: the keys that would fit say more.
    can_tell = bool(best.images and best.masks) and best.layout != OF_PATIENTS
    if not best.both and not can_tell and not _is_begun(best):
        problems.add(_nothing(folder, site, config, formats, searched))
        return SiteFiles()
    if best.parts and (lacking := [name for name in NAMES if name not in best.parts.values()]):
        problems.add(_lacking(folder, site, best, lacking))
        return SiteFiles()
    titles = {f"{i:04d}": name for i, name in enumerate(about.channels)}
    is_nnunet = best.layout == DECATHLON and best.modalities != ("",)
    if is_nnunet:  # It numbers the channels that dataset.json names.
        best = replace(best, layout=NNUNET, stated=tuple(sorted({*titles, *best.modalities})))
    for line, what in (*best.problems(site, titles), *_unread(site, best, formats)):
        problems.add(line, f"site {site!r}", what)
    if not best.both and can_be_paired(folder, searched):
        problems.add(f"site {site!r}: {seen_in(folder, formats.known)}")
    modalities = best.modalities
    items = [
        Item(
            key,
            formats.file(*(best.images[key][name] for name in modalities)),
            formats.file(best.masks[key]),
            best.cases.get(key, key),
            best.parts.get(key),
        )
        for key in best.complete
    ]
    by_file = cases_by_file(folder, config.case_column, site, problems) if config.case_column else {}
    return SiteFiles(
        with_cases(site, items, config, by_file, problems),
        best.layout,
        tuple(titles.get(name, name) for name in modalities) if len(modalities) > 1 else about.channels,
        about.classes,
    )


def _best(folder: Path, config: DataConfig, searched: Sequence[Format]) -> Match:
    if config.images and config.masks:
        return by_patterns(folder, STATED, config.images, config.masks, searched)
    found = [by_patterns(folder, *layout, searched) for layout in LAYOUTS]
    found += [_bids(folder, searched), _of_patients(folder, searched), *_in_parts(folder, searched)]
    if not any(match.both and not match.doubles for match in found):
        found += [_frames(folder, searched), *_by_words(folder, searched)]
    # Without any pair, a layout with images and masks says best why their names do not fit.
    return max(found, key=lambda match: (len(match.both), bool(match.images and match.masks), _is_begun(match)))


def _is_begun(match: Match) -> bool:
    """Whether there are images or masks in folders with such names: their counterparts are missing or can't be read."""
    return match.layout in (IN_FOLDERS, DECATHLON) and bool(match.images or match.masks)


def _nothing(folder: Path, site: str, config: DataConfig, formats: Formats, searched: Sequence[Format]) -> str:
    """What to say about a folder without images and masks: what it holds, and the keys that would fit."""
    seen = seen_in(folder, formats.known)
    if not seen:
        return f"site {site!r} is empty: there is no file in {folder}"
    asked = "is laid out in a way that is recognised"
    if config.images is not None:
        patterns = config.images.values() if isinstance(config.images, dict) else [config.images]
        asked = f"is called {', '.join(patterns)} and {config.masks}"
    if config.format != "auto":
        asked += f" and ends in {', '.join(end for one in searched for end in one.endings)}"
    return f"site {site!r}: nothing in {folder} {asked}; {seen}"


def _bids(folder: Path, searched: Sequence[Format]) -> Match:
    """Subjects' anatomical images, and masks beside them or under derivatives/; the subject is the case."""
    images: dict[str, dict[str, Path]] = {}
    masks: dict[str, Path] = {}
    cases: dict[str, str] = {}
    doubles: list[tuple[Path, Path]] = []
    derived = (folder / "derivatives").rglob("sub-*")
    for path in sorted({*folder.glob("sub-*/anat/*"), *folder.glob("sub-*/ses-*/anat/*"), *derived}):
        end = ending(path, searched) if path.is_file() else None
        match = BIDS_NAME.fullmatch(path.name[: -len(end)]) if end else None
        if match is None:
            continue
        key = "_".join(part for part in match.groups()[:2] if part)
        is_mask = match[3].partition("-")[0].lower() in BIDS_MASKS
        if not is_mask and "derivatives" in path.relative_to(folder).parts:
            continue
        own, name = (masks, key) if is_mask else (images.setdefault(key, {}), match[3])
        if name in own:
            doubles.append((own[name], path))
        own.setdefault(name, path)
        cases[key] = match[1]
    return Match(BIDS, images, masks, doubles, cases)


def _frames(folder: Path, searched: Sequence[Format]) -> Match:
    """A folder for each patient, with several images and a mask for each; the patient is the case."""
    every = [by_patterns(folder, OF_PATIENTS, "*/*", f"*/*_{word}", searched) for word in sorted(MASK_WORDS)]
    found = max(every, key=lambda match: len(match.both))
    kept = {key for key in {*found.images, *found.masks} if key.partition("/")[0] not in IMAGE_FOLDERS}
    return replace(
        found,
        images={key: own for key, own in found.images.items() if key in kept},
        masks={key: path for key, path in found.masks.items() if key in kept},
        cases={key: key.partition("/")[0] for key in kept},
    )


def _by_words(folder: Path, searched: Sequence[Format]) -> Iterator[Match]:
    """Two folders with names of their own, of which one has a word for masks, where every file has its pair."""
    if patterns := patterns_in(folder, searched):
        yield by_patterns(folder, f"{patterns[0]} with {patterns[1]}", *patterns, searched)


def _in_parts(folder: Path, searched: Sequence[Format]) -> Iterator[Match]:
    """Folders train, validation and test, with images and masks in each, or in the folders of images and of masks."""
    for layout, images, masks in LAYOUTS:
        if layout != IN_FOLDERS:
            continue
        above = (f"*/{images}", f"*/{masks}")
        inside = (images.replace("/", "/*/"), masks.replace("/", "/*/"))
        for of_images, of_masks in (above, inside):
            match = by_patterns(folder, IN_PARTS, of_images, of_masks, searched)
            parts = {key: PART_FOLDERS.get(key.partition("/")[0].lower(), "") for key in {*match.images, *match.masks}}
            yield replace(
                match,
                images={key: own for key, own in match.images.items() if parts[key]},
                masks={key: path for key, path in match.masks.items() if parts[key]},
                parts={key: part for key, part in parts.items() if part},
            )


def _lacking(folder: Path, site: str, match: Match, lacking: Sequence[str]) -> str:
    """What to say about folders that state only a part of the split: how to add the rest, or to draw a split."""
    image, mask = (
        path.relative_to(folder).parts[:-1]
        for path in (next(iter(match.images[match.both[0]].values())), match.masks[match.both[0]])
    )
    stated = [
        "/".join("*" if name.lower() in PART_FOLDERS else name for name in where) + "/*" for where in (image, mask)
    ]
    return (
        f"site {site!r}: {folder} has folders for {' and '.join(sorted(set(match.parts.values())))} but none for "
        f"{' and '.join(lacking)}; add it, or let a split be drawn from all images: "
        f"--set data.images='{stated[0]}' --set data.masks='{stated[1]}'"
    )


def _of_patients(folder: Path, searched: Sequence[Format]) -> Match:
    """A folder for each patient, with a mask and an image, or several images that are modalities."""
    images: dict[str, dict[str, Path]] = {}
    masks: dict[str, Path] = {}
    doubles: list[tuple[Path, Path]] = []
    for patient in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
        inside = [path for path in sorted(patient.iterdir()) if not path.name.startswith(".")]
        inside = [path for path in inside if is_readable(path, searched)]
        # A folder of slices alone is a series, not a patient.
        is_series = is_readable(patient, searched) and not any(path.is_dir() for path in inside)
        if is_series or patient.name in IMAGE_FOLDERS:
            continue
        own: dict[str, Path] = {}
        for path in inside:
            name = _inside(patient.name, path, searched)
            if not _is_mask(name):
                own[name] = path
            elif patient.name in masks:
                doubles.append((masks[patient.name], path))
            else:
                masks[patient.name] = path
        if own:
            images[patient.name] = own
    if all(len(own) == 1 for own in images.values()):  # One image a patient may have any name.
        images = {key: {"": next(iter(own.values()))} for key, own in images.items()}
    return Match(OF_PATIENTS, images, masks, doubles)


def _inside(patient: str, path: Path, searched: Sequence[Format]) -> str:
    """A file's name without its ending and without the patient's name at its start."""
    end = ending(path, searched) if path.is_file() else None
    stem = path.name[: -len(end)] if end else path.name
    return stem.removeprefix(patient).lstrip("_-. ") or stem


def _is_mask(name: str) -> bool:
    return re.split(r"[_\-. ]", name.lower())[-1] in MASK_WORDS


def _unread(site: str, match: Match, formats: Formats) -> Iterator[tuple[str, str]]:
    """Line and cause for each file beside a site's images that looks like an image but can't be read."""
    used = match.files
    for folder in sorted({path.parent for path in used}):
        for path in sorted(folder.iterdir()):
            if path in used or path.name.startswith("."):
                continue
            if path.is_symlink():
                if not path.exists():
                    line = f"site {site!r}: {path} is a link that leads nowhere; fetch what it stands for, or remove it"
                    yield line, "links lead nowhere"
            elif path.suffix.lower() in NOT_READ and ending(path, formats.known) is None:
                line = f"site {site!r}: {path} is not read; save it as {IMAGE_FORMATS} or a volume, or remove it"
                yield line, f"{path.suffix.lower()} files are not read"
            elif folder.name in IMAGE_FOLDERS and path.is_dir() and _holds_images(path, formats):
                yield f"site {site!r}: the images in {path} are not read; move them to {folder}", "folders are not read"


def _holds_images(folder: Path, formats: Formats) -> bool:
    return any(ending(child, formats.known) for child in folder.iterdir())
