"""Which classes a federation has, which of them each site labels, and how its files were recognised, in one line."""

from collections.abc import Collection, Mapping

from fedce.base.errors import Problems, nearest
from fedce.base.tables import Colour, DataConfig
from fedce.data.dataset_json import FILE
from fedce.data.items import SiteFiles
from fedce.data.pixels import FOREGROUND, Classes


def colours_of(config: DataConfig) -> tuple[Colour, ...]:
    """The colours of data.colors; the label of a colour is its place in this list, from 1."""
    return tuple(dict.fromkeys(colour for own in (config.colors or {}).values() for colour in own))


def classes_of(config: DataConfig, found: Mapping[str, SiteFiles], problems: Problems) -> Classes:
    """Class to mask values: by data.colors, data.classes, the sites' dataset.json, or any value above 0."""
    if config.colors is not None:
        place = {colour: i for i, colour in enumerate(colours_of(config), start=1)}
        return {name: [place[colour] for colour in own] for name, own in config.colors.items()}
    if config.classes is not None:
        return config.classes
    merged: dict[str, tuple[int, ...]] = {}
    for site, files in found.items():
        for name, values in files.classes.items():
            if merged.setdefault(name, values) != values:
                problems.add(
                    f"site {site!r}: its {FILE} gives {name!r} the values {list(values)}, another site's "
                    f"{list(merged[name])}; state data.classes, and let all masks use the same values"
                )
    return {name: list(values) for name, values in merged.items()} or FOREGROUND


def classes_for_others(config: DataConfig, classes: Classes) -> dict[str, list[int]] | None:
    """The data.classes by which another folder is read as the run's own data were, with these classes.

    The run's classes may come from dataset.json, or be those of a built-in federation. None: masks are in colours, or
    every value counts.
    """
    if config.colors is not None or (config.classes is None and list(classes) == list(FOREGROUND)):
        return None
    return {name: list(values) for name, values in classes.items()}


def labelled_at(
    site: str, files: SiteFiles, classes: Classes, config: DataConfig, problems: Problems
) -> tuple[int, ...] | None:
    """Numbers of the classes that a site labels, by data.labelled or by its dataset.json; None: all of them."""
    names = list(classes)
    if site in config.labelled:
        for name in config.labelled[site]:
            if name not in classes:
                hint = nearest(name, names)
                problems.add(f"data.labelled: site {site!r} labels {name!r}{hint}; the classes are {', '.join(names)}")
        there = [name in config.labelled[site] for name in names]
    elif files.classes:
        values = {value for own in files.classes.values() for value in own}
        # Classes of the experiment may have other names than in dataset.json; then the values decide.
        by_value = config.classes is not None
        there = [
            name in files.classes or (by_value and not values.isdisjoint(members)) for name, members in classes.items()
        ]
    else:
        return None
    numbers = tuple(i for i, is_there in enumerate(there) if is_there)
    if not numbers and site not in config.labelled:
        problems.add(f"site {site!r}: its {FILE} names none of the classes {', '.join(names)}; set data.labelled")
    return None if len(numbers) == len(names) else numbers


def check_labelled_sites(config: DataConfig, found: Collection[str], problems: Problems) -> None:
    for site in config.labelled:
        if site not in found:
            problems.add(f"data.labelled names {site!r}{nearest(site, found)}; there are: {', '.join(found)}")


def recognised(found: Mapping[str, SiteFiles], n_channels: int, classes: Classes) -> str:
    """How the files were recognised, such as "nnU-Net folders, 2 modalities (T2, ADC), 3 classes (A, B, C)"."""
    parts = [" and ".join(dict.fromkeys(files.layout for files in found.values() if files.layout))]
    first = next(iter(found.values()))
    if n_channels > 1 and any(item.image.has_modalities for item in first.items):
        named = f" ({', '.join(first.modalities)})" if len(first.modalities) == n_channels else ""
        parts.append(f"{n_channels} modalities{named}")
    parts.append("1 class" if len(classes) == 1 else f"{len(classes)} classes")
    return f"{', '.join(parts)} ({', '.join(classes)})"
