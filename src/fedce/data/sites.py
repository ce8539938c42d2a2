"""The sites of an experiment with their images, masks and splits."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fedce.base.config import parse
from fedce.base.errors import DataError, Problems, nearest
from fedce.base.tables import BUILT_IN, OF_VOLUMES, DataConfig
from fedce.data import cache as site_cache
from fedce.data import synthetic
from fedce.data.cache import Cached, Notify
from fedce.data.drawn import drawn_images, drawn_volumes, volume_name
from fedce.data.finding import find_items, find_labelled
from fedce.data.formats import Formats
from fedce.data.items import Item, SiteFiles, case_of, check_groups
from fedce.data.labels import check_labelled_sites, classes_of, colours_of, labelled_at, recognised
from fedce.data.pixels import Classes
from fedce.data.reader import Reading, read_frames
from fedce.data.resizing import Shape
from fedce.data.shape import patch_of, spacing_of
from fedce.data.site import COLOURS, SiteData, Sites, cut, shard_name, with_n_channels
from fedce.data.splits import Split, joined, leaks, split, spread_out, stated

T = TypeVar("T")


def load_sites(source: str | DataConfig = "fundus6", *, notify: Notify | None = None, **options: Any) -> Sites:
    """Load a built-in federation (fundus6, prostate6, volume6), a folder of sites, or a folder of datalists.

    Options are those of the [data] table: scale, size, seed, split, classes, normalize and so on.

    >>> sites = load_sites("fundus6", scale="tiny", sites=["site1", "site3"])
    >>> [(site.name, len(site.split.train)) for site in sites]
    [('site1', 4), ('site3', 4)]
    """
    config = source if isinstance(source, DataConfig) else parse({"data": {"source": str(source), **options}}).data
    found = _load(config, notify)
    if len(found) < 2:
        raise DataError(
            f"a federation needs at least two sites, {config.source!r} has only {found[0].name!r}; add a folder for "
            "each other site, or, to try it, cut this one into two sites: --set data.shards=2"
        )
    return found


def site_names(config: DataConfig) -> list[str]:
    """The names of the sites, from folders and file names alone: no image is decoded."""
    if config.source in BUILT_IN:
        federation, scale = synthetic.FEDERATIONS[config.source], synthetic.SCALES[config.scale]
        whole = list(_chosen(synthetic.counts(federation, scale.share), config))
    else:
        problems = Problems()
        whole = list(_chosen(find_items(config, problems), config))
        problems.raise_any(config.source)
    if config.shards == 1:
        return whole
    return [shard_name(name, i) for name in whole for i in range(config.shards)]


def load_site(config: DataConfig, site: str, *, notify: Notify | None = None) -> Sites:
    """One site alone, as its hospital sees it: a federation of one."""
    uncut = site.rpartition(".")[0] if config.shards > 1 else site
    found = _load(config.model_copy(update={"sites": (uncut,)}), notify)
    chosen = tuple(member for member in found if member.name == site)
    if not chosen:
        there = ", ".join(member.name for member in found)
        raise DataError(f"{config.source!r} has no site {site!r}; with data.shards = {config.shards} it has {there}")
    return replace(found, members=chosen)


def load_labelled(
    config: DataConfig,
    folder: Path,
    *,
    notify: Notify | None = None,
    all_test: bool = True,
    size: Shape | None = None,
) -> Sites:
    """A folder of one site, or of several, read as `config` says, with images of `size` if it is given.

    With `all_test` every image is in the test split.
    """
    problems, say = Problems(), notify or (lambda message: None)
    found = find_labelled(folder, config, problems)
    classes = classes_of(config, found, problems)
    members = [
        _member(name, files, classes, config, say, problems, all_test=all_test, size=size)
        for name, files in found.items()
    ]
    problems.raise_any(str(folder))
    return Sites(config, classes, tuple(_alike([member for member in members if member], found)))


def _load(config: DataConfig, notify: Notify | None) -> Sites:
    say = notify or (lambda message: None)
    whole = _built_in(config, say) if config.source in BUILT_IN else _from_files(config, say)
    return replace(whole, members=tuple(shard for member in whole.members for shard in cut(member, config.shards)))


def _chosen(by_site: Mapping[str, T], config: DataConfig) -> dict[str, T]:
    """The sites that data.sites names, or all sites; files of other sites are not opened."""
    for name in config.sites:
        if name not in by_site:
            raise DataError(f"data.sites names {name!r}{nearest(name, by_site)}; there are: {', '.join(by_site)}")
    return {name: value for name, value in by_site.items() if not config.sites or name in config.sites}


def _from_files(config: DataConfig, notify: Notify) -> Sites:
    problems = Problems()
    every = find_items(config, problems)
    classes = classes_of(config, every, problems)
    found = _chosen(every, config)
    # All files are checked before any is refused, so that a user sees all problems at once.
    members = [_member(name, files, classes, config, notify, problems) for name, files in found.items()]
    if not config.sites:  # With data.sites, keys may name files and sites that are left out.
        check_groups(found, config, problems)
        check_labelled_sites(config, found, problems)
    problems.raise_any(config.source)
    alike = tuple(_alike([member for member in members if member], found))
    if not config.sites:
        _say_unmarked(alike, classes, notify)
    return Sites(config, classes, alike, recognised(found, alike[0].images.shape[1], classes))


def _say_unmarked(sites: Sequence[SiteData], classes: Classes, notify: Notify) -> None:
    """Name the classes that no mask holds: such a class scores 1 where nothing is found, which flatters every mean."""
    held = {value for site in sites for origin in site.origins for value in origin.values}
    for name, values in classes.items():
        if not held & set(values):
            there, wanted = ", ".join(map(str, sorted(held))) or "0 alone", ", ".join(map(str, values[:8]))
            notify(
                f"warning: no mask of any site holds the class {name} ({wanted}); masks hold {there}. "
                "Its Dice is 1 where nothing is found; check data.classes"
            )


def _member(
    name: str,
    files: SiteFiles,
    classes: Classes,
    config: DataConfig,
    notify: Notify,
    problems: Problems,
    *,
    all_test: bool = False,
    size: Shape | None = None,
) -> SiteData | None:
    items = files.items
    if not items:
        return None
    how = _reading(config, classes, size)
    cached = _read(name, items, how, config, notify, problems)
    if cached is None:
        return None
    groups = [[case_of(items, name, file) for file in group] for group in config.groups]
    case_by_item = dict(
        zip(
            range(len(items)),
            joined([item.case for item in items], [[case for case in group if case] for group in groups]),
            strict=True,
        )
    )
    cases = tuple(case_by_item[origin.item] for origin in cached.origins)
    names = tuple(origin.name for origin in cached.origins)
    whole = SiteData(
        name,
        cached.images,
        cached.masks,
        names,
        cases,
        stated(["test"] * len(names)),
        cached.origins,
        labelled_at(name, files, classes, config, problems),
        patch_of(config),
        modalities=cached.images.shape[1] > 1 and any(item.image.has_modalities for item in items),
    )
    if all_test:
        return whole
    parts = [part for origin in cached.origins if (part := items[origin.item].part)]
    try:
        shares = stated(parts) if len(parts) == len(names) else split(name, cases, config.split, config.seed)
    except DataError as error:
        problems.add(str(error))
        return None
    for case, first, second in leaks(cases, shares.parts) if parts else ():
        problems.add(f"site {name!r}: case {case!r} is in {first} and in {second}; a case must be in one split only")
    if any(item.is_volume for item in items):
        shares = _trained_slices(name, items, cached, shares, config, problems)
    return replace(whole, split=shares)


def _trained_slices(
    name: str, items: Sequence[Item], cached: site_cache.Cached, shares: Split, config: DataConfig, problems: Problems
) -> Split:
    """The split with only those training slices that data.slices and data.empty_slices choose."""
    train = shares.train
    is_marked = np.array([bool(cached.origins[row].values) for row in train])
    if not is_marked.any():
        problems.add(
            f"site {name!r}: nothing is marked in any of its training masks, so there is nothing to learn; "
            "check the masks, or set data.seed or data.split so that a marked case is trained on"
        )
    if config.slices == "all" or config.dims == 3:
        return shares
    is_of_volume = np.array([items[cached.origins[row].item].is_volume for row in train])
    kept = np.flatnonzero(is_marked | ~is_of_volume)
    spread = spread_out(np.flatnonzero(~is_marked & is_of_volume), config.empty_slices)
    return replace(shares, train=train[np.union1d(kept, spread)])


def _reading(config: DataConfig, classes: Classes, size: Shape | None) -> Reading:
    if size is None and config.size is not None:
        size = (config.size, config.size)
    return Reading(
        classes,
        size,
        config.resize,
        config.intensity,
        config.plane,
        colours_of(config),
        is_3d=config.dims == 3,
        spacing=spacing_of(config),
    )


def _read(
    name: str, items: Sequence[Item], how: Reading, config: DataConfig, notify: Notify, problems: Problems
) -> Cached | None:
    """A site's images from the cache; images that are not there are decoded into it first."""
    contents: list[str] = []
    for item in items:
        with problems.collected(f"site {name!r}"):
            of_files = [site_cache.content_of(one.path, one.beside) for one in (*item.image.files, item.mask)]
            contents += [item.name, *of_files]
    if len(contents) < sum(2 + len(item.image.files) for item in items):
        return None
    # A list, because the order of the classes is that of the masks' channels, and a key sorts its tables.
    options = {**asdict(how), "classes": [(key, list(values)) for key, values in how.classes.items()]}
    version = Formats.named_by(config.format).version
    key = site_cache.key_of(contents, {**options, "own_format": version} if version else options)
    if (cached := site_cache.known(key, name, notify)) is not None:
        return cached
    notify(f"reading site {name}: {len(items)} {'volumes' if items[0].is_volume else 'images'}")
    return site_cache.build(name, key, read_frames(name, items, how, problems), problems, of_volumes=how.is_3d)


def _alike(members: Sequence[SiteData], found: Mapping[str, SiteFiles]) -> Iterator[SiteData]:
    """The sites with equal channels (grey images become colour where a site has colour); sizes must be equal."""
    most = max(members, key=lambda member: member.images.shape[1])
    n_channels = most.images.shape[1]
    first = members[0]
    has_modalities = n_channels != COLOURS or any(item.image.has_modalities for item in found[most.name].items)
    for member in members:
        if member.patch is None and member.images.shape[2:] != first.images.shape[2:]:
            (h, w), (h0, w0) = member.images.shape[2:], first.images.shape[2:]
            raise DataError(
                f"site {member.name!r} has images of {w}x{h} pixels, site {first.name!r} of {w0}x{h0}; "
                f"{site_cache.one_size(min(h, h0), min(w, w0))}"
            )
        if has_modalities and member.images.shape[1] != n_channels:
            raise DataError(
                f"site {member.name!r} has {member.images.shape[1]} modalities or channels, site {most.name!r} "
                f"{n_channels}; all sites need the same, which data.images can state"
            )
        yield with_n_channels(member, n_channels)


def _built_in(config: DataConfig, notify: Notify) -> Sites:
    federation, scale = synthetic.FEDERATIONS[config.source], synthetic.SCALES[config.scale]
    every, problems = synthetic.counts(federation, scale.share), Problems()
    check_labelled_sites(config, every, problems)
    make = _drawn_volumes if config.source in OF_VOLUMES else _drawn_images
    members = tuple(
        replace(
            make(config, name, n, notify),
            labelled=labelled_at(name, SiteFiles(), federation.classes, config, problems),
        )
        for name, n in _chosen(every, config).items()
    )
    problems.raise_any(config.source)
    return Sites(config, federation.classes, members)


def _drawn_images(config: DataConfig, name: str, n: int, notify: Notify) -> SiteData:
    files = tuple(f"{name}-{i:04d}.png" for i in range(n))
    drawn = drawn_images(config, name, files, notify)
    return SiteData(name, drawn.images, drawn.masks, files, files, split(name, files, config.split, config.seed))


def _drawn_volumes(config: DataConfig, name: str, n: int, notify: Notify) -> SiteData:
    drawn = drawn_volumes(config, name, n, notify)
    files = tuple(origin.name for origin in drawn.origins)
    cases = tuple(volume_name(name, origin.item) for origin in drawn.origins)
    own = split(name, cases, config.split, config.seed)
    return SiteData(name, drawn.images, drawn.masks, files, cases, own, drawn.origins, patch=patch_of(config))
