"""Checks at a site before it joins a federation: versions, name, key, disk and data."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from fedce.base.config import Config
from fedce.base.errors import ConfigError, DataError, FedceError, ManyProblems, nearest
from fedce.base.identity import Identity
from fedce.data import Sites, load_site
from fedce.federation.plan import resolve
from fedce.learning.learner import learner_for
from fedce.learning.networks import choose_device
from fedce.questions.doctor import MOMENTS, check_data, check_engine, check_versions, size_text
from fedce.questions.finding import Finding
from fedce.site.resident import at_hospital


@dataclass(frozen=True)
class Station:
    """A site as its hospital sets it up."""

    site: str
    key: Path
    """The site's private key; its folder is the site's home."""
    config: Config
    """The experiment, or what the coordinator has sent of it."""
    data: str | None
    """The site's folder of images; None: not checked."""
    versions: Path | None = None
    """The coordinator's versions, in the form of a constraints file of pip."""


def examine_site(station: Station, notify: Callable[[str], None] = lambda message: None) -> Iterator[Finding]:
    """Findings in the order of joining; checks that depend on something broken are left out."""
    yield from check_versions()
    if station.versions is not None:
        yield from _same_versions(station.versions)
    yield check_engine(station.config)
    yield _name(station.site, station.config.engine.members)
    yield _key(station)
    if station.data is None:
        yield Finding("data", "warning", "not checked", "add --data FOLDER, the folder of this site's images")
        yield _disk(station.key.parent, 0)
        return
    try:
        config = at_hospital(resolve(station.config), station.site, station.data)
        sites = load_site(config.data, station.site, notify=notify)
    except ManyProblems as error:
        yield from (Finding("data", "problem", line) for line in error.lines)
        return
    except (DataError, ConfigError) as error:
        yield Finding("data", "problem", str(error))
        return
    yield from check_data(sites)
    try:
        n_parameters = _n_parameters(config, sites)
    except FedceError as error:
        yield Finding("network", "problem", str(error), "tell the coordinator: [model] does not fit these images")
        return
    yield Finding("network", "ok", f"{config.model.name}, {n_parameters:,} values")
    yield _disk(station.key.parent, n_parameters)


def stated_versions(path: Path) -> dict[str, str]:
    """Package to version, from lines such as flwr==1.41.0."""
    found: dict[str, str] = {}
    for line in path.read_text("utf-8").splitlines():
        if not (text := line.partition("#")[0].strip()):
            continue
        try:
            wanted = Requirement(text)
            (only,) = wanted.specifier
        except (InvalidRequirement, ValueError):
            raise ConfigError(f"{path}: expected lines such as flwr==1.41.0, got {text!r}") from None
        found[wanted.name] = only.version
    return found


def _same_versions(path: Path) -> Iterator[Finding]:
    wanted = stated_versions(path)
    other = {name: here for name in wanted if (here := _version(name)) != wanted[name]}
    for name, here in other.items():
        found = f"{name} {here or 'is not installed'}, the coordinator has {wanted[name]}"
        yield Finding(
            "same versions", "problem", found, f"install {name} {wanted[name]} here; all machines need the same"
        )
    if not other:
        told = ", ".join(f"{name} {number}" for name, number in wanted.items())
        yield Finding("same versions", "ok", f"as the coordinator's: {told}")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _name(site: str, members: Mapping[str, str]) -> Finding:
    if not members:
        advice = "give the coordinator's experiment file as CONFIG.toml to compare with its members"
        return Finding("name", "warning", f"{site}; not compared with the members", advice)
    if site in members:
        return Finding("name", "ok", f"{site} is one of the {len(members)} members")
    advice = f"use the name that the coordinator wrote: {', '.join(members)}"
    return Finding("name", "problem", f"{site!r} is not among the members{nearest(site, members)}", advice)


def _key(station: Station) -> Finding:
    if not station.key.exists():
        advice = f"'fedce keys new {station.key}' makes it; send the line that it prints to the coordinator"
        return Finding("key", "problem", f"{station.key} does not exist", advice)
    try:
        public = Identity.at(station.key).public
    except FedceError as error:
        return Finding("key", "problem", str(error), "a site keeps its key, because its name belongs to it")
    members = station.config.engine.members
    if members.get(station.site) == public:
        return Finding("key", "ok", f"{public}, as in the experiment file")
    send = f"send this line to the coordinator: {public}"
    if members.get(station.site):
        found = "the experiment file has another key for this site"
        return Finding("key", "problem", found, f"restore the key that you sent before, or {send}")
    return Finding("key", "warning", "the experiment file has no key for this site yet", send)


def _n_parameters(config: Config, sites: Sites) -> int:
    device = choose_device("cpu")
    spatial = sites[0].patch or sites[0].images.shape[2:]
    return learner_for(config, sites.n_channels, len(sites.classes), device, spatial).layout.size


def _disk(home: Path, n_parameters: int) -> Finding:
    """Room for the site's memory: its last two models, each with its optimizer's moments."""
    needed = 4 * n_parameters * 2 * MOMENTS
    parent = next(folder for folder in (home, *home.absolute().parents) if folder.is_dir())
    free = shutil.disk_usage(parent).free
    found = f"{size_text(needed)} needed in {home}, {size_text(free)} free"
    if not os.access(parent, os.W_OK):
        return Finding("disk", "problem", f"{parent} can't be written", "choose another folder for --key")
    if needed > free:
        return Finding("disk", "problem", found, f"make room on the disk of {parent}")
    return Finding("disk", "ok", found)
