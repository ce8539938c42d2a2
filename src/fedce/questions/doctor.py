"""Checks of everything that can be known before round 1, each with advice."""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import requires, version
from math import prod
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from packaging.requirements import Requirement

from fedce.algorithms.titles import printed_name
from fedce.base.config import Config
from fedce.base.errors import DataError, FedceError, ManyProblems, RunError
from fedce.base.words import duration
from fedce.core.scoring import MIN_CASES
from fedce.data import SiteData, Sites, load_sites
from fedce.data.advice import advice_for
from fedce.data.cache import cache_folder
from fedce.data.duplicates import find_duplicates
from fedce.data.remarks import not_judged
from fedce.data.shape import in_words
from fedce.engines.launching import need
from fedce.engines.local import can_fork, default_workers
from fedce.federation.lines import versions
from fedce.federation.plan import Participants, resolve
from fedce.learning.batches import Images
from fedce.learning.learner import Learner
from fedce.learning.networks import choose_device
from fedce.questions.finding import Finding
from fedce.record.folder import RunFolder
from fedce.tracking import absolute, check_installed

MOST_OF_THE_IMAGE = 0.9
MOMENTS = 3
"""A site's memory is its model and, with Adam, two moments."""


def examine(config: Config, out: Path, notify: Callable[[str], None] = lambda message: None) -> Iterator[Finding]:
    """Findings in the order of a run; checks that depend on something broken are left out."""
    yield from check_versions()
    yield check_engine(config)
    yield _folder(out)
    if config.tracking:
        trackers = _trackers(config)
        yield trackers
        if trackers.verdict == "problem":
            return
    try:
        resolved = resolve(config)
    except FedceError as error:
        yield Finding(
            "algorithm", "problem", str(error), "correct [algorithm]; docs/configuration.md lists its options"
        )
        return
    yield Finding("algorithm", "ok", printed_name(resolved.algorithm))
    try:
        sites = load_sites(config.data, notify=notify)
    except ManyProblems as error:
        for line in error.lines:
            yield Finding("data", "problem", line)
        return
    except DataError as error:
        yield Finding("data", "problem", str(error))
        return
    yield from check_data(sites)
    try:
        participants = Participants(resolved, sites)
        learner = participants.learner
    except FedceError as error:
        yield Finding(
            "network", "problem", str(error), "correct [model], [train] or the site names in the experiment file"
        )
        return
    n = learner.layout.size
    n_trained = learner.layout.n_trainable
    yield Finding("network", "ok", f"{config.model.name}, {n_trained:,} parameters, takes {_shape(sites)}")
    yield _disk(out, sites, n)
    yield _memory(sites, config)
    try:
        yield _time(participants, config, sites)
    except (ValueError, RuntimeError) as error:
        advice = "a last batch of one image is too small for batch norm: change train.batch_size or model.norm"
        yield Finding("training", "problem", f"a step of training fails ({error})", advice)


def check_versions() -> Iterator[Finding]:
    for line in requires("fedce") or []:
        wanted = Requirement(line)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        found = version(wanted.name)
        if not wanted.specifier.contains(found, prereleases=True):
            advice = f"pip install -c constraints.txt '{wanted}'"
            yield Finding("versions", "problem", f"{wanted.name} {found}, needs {wanted.specifier}", advice)
            return
    yield Finding("versions", "ok", ", ".join(f"{name} {one}" for name, one in versions().items()))


def check_engine(config: Config) -> Finding:
    try:
        device = choose_device(config.engine.device)
    except FedceError as error:
        return Finding("engine", "problem", str(error), "set engine.device to cpu, or leave it out")
    if config.engine.name != "local":
        try:
            if ":" not in config.engine.name:
                need({"flower": "flwr"}.get(config.engine.name, config.engine.name), config.engine.name)
        except FedceError as error:
            return Finding("engine", "problem", str(error))
        return Finding("engine", "ok", f"{config.engine.name}, device {device}")
    workers = config.engine.workers or default_workers(os.cpu_count() or 1)
    how = "forked" if can_fork() else "spawned, which takes some seconds at the start"
    found = f"local, {workers} worker processes ({how}) on {os.cpu_count()} cores, device {device}"
    return Finding("engine", "ok", found)


def _trackers(config: Config) -> Finding:
    """Whether the trackers can be used; whether a server answers is seen in round 1, and does not stop the run."""
    try:
        check_installed(absolute(config.tracking))
    except FedceError as error:
        return Finding("tracking", "problem", str(error))
    return Finding("tracking", "ok", ", ".join(config.tracking))


def _folder(out: Path) -> Finding:
    run = RunFolder(out)
    if run.is_one:
        advice = "choose another --out, continue it with --resume, or give --replace"
        return Finding("run folder", "problem", f"{out} already holds a run", advice)
    try:
        run.check_free()
    except RunError as error:
        return Finding("run folder", "problem", str(error))
    parent = next(folder for folder in (out, *out.absolute().parents) if folder.is_dir())
    if not os.access(parent, os.W_OK):
        return Finding("run folder", "problem", f"{parent} can't be written", "choose another --out")
    return Finding("run folder", "ok", str(out))


def check_data(sites: Sites) -> Iterator[Finding]:
    n_cases = sum(len(set(site.cases)) for site in sites)
    n_images = sum(sum(site.n_by_part.values()) if site.patch else len(site.images) for site in sites)
    kind = "volumes" if sites[0].patch else "images"
    if sites.recognised:
        yield Finding("layout", "ok", sites.recognised)
    yield Finding(
        "data",
        "ok",
        f"{len(sites)} {'site' if len(sites) == 1 else 'sites'}, {n_images} {kind} of {n_cases} cases, {_shape(sites)}",
    )
    warnings = [finding for site in sites for finding in (*_labels(site, list(sites.classes)), *_split(site))]
    for i, name in enumerate(sites.classes):
        if not any(site.labels(i) for site in sites):
            yield Finding("labels", "problem", f"no site labels {name}", "leave out the class, or change data.labelled")
        elif not any(site.labels(i) and np.asarray(site.masks[:, i]).any() for site in sites):
            advice = "check data.classes against the masks' values"
            yield Finding("labels", "problem", f"no image of any site has any {name}", advice)
    yield from warnings
    if not any(finding.what == "labels" for finding in warnings):
        partly = [site.name for site in sites if site.labelled is not None]
        but = f" that labels them; only some of the classes are labelled at {', '.join(partly)}" if partly else ""
        yield Finding("labels", "ok", f"{', '.join(sites.classes)} marked at every site{but}")
    if not any(finding.what == "splits" for finding in warnings):
        smallest = min(site.n_cases_by_part["validation"] for site in sites)
        yield Finding("splits", "ok", f"by case; at least {smallest} validation cases at every site")
    yield from (Finding("settings", "warning", said.found, f"if so, add {said.option}") for said in advice_for(sites))
    yield _duplicates(sites)


def _duplicates(sites: Sites) -> Finding:
    near = find_duplicates(sites)
    found = [pair for pair in near.pairs if pair.across_splits or pair.across_sites]
    if not found:
        unsure = "".join(f". {said}" for said in not_judged(near.usual)).removesuffix(".")
        return Finding("near-duplicates", "ok", f"none in two splits, or at two sites{unsure}")
    first = found[0]
    told = f"{len(found)} pairs of cases in two splits or at two sites look nearly the same, such as "
    told += f"{first.one.group_name} and {first.other.group_name}"
    source = sites.config.source
    advice = f"'fedce data inspect {source}' shows them, with the data.groups that keep them in one split"
    if any(pair.across_sites for pair in found):
        advice += "; a case that lies at two sites can only be removed from one of them"
    return Finding("near-duplicates", "warning", told, advice)


def _labels(site: SiteData, classes: Sequence[str]) -> Iterator[Finding]:
    areas = site.areas()
    in_file = np.zeros((max(site.items) + 1, len(classes)), bool)  # Slices of a volume are in one file.
    np.logical_or.at(in_file, list(site.items), areas > 0)
    in_file = in_file[sorted(set(site.items))]
    for i, (name, area, has_any) in enumerate(zip(classes, areas[site.shown].T, in_file.T, strict=True)):
        if not site.labels(i):
            continue
        empty = int((~has_any).sum())
        advice = "check data.classes against the masks' values, and the masks"
        if empty == len(has_any):
            yield Finding("labels", "warning", f"site {site.name!r}: no image has any {name}", advice)
        elif empty:
            advice = f"fine if these images show no {name}; such an image scores 1 if the model finds none, else 0"
            yield Finding(
                "labels", "warning", f"site {site.name!r}: {empty} of {len(has_any)} masks have no {name}", advice
            )
        if np.median(area) > MOST_OF_THE_IMAGE:
            found = f"site {site.name!r}: {name} covers {100 * np.median(area):.0f} % or more in half of the images"
            yield Finding("labels", "warning", found, "are foreground and background swapped?")


def _split(site: SiteData) -> Iterator[Finding]:
    for name, n in site.n_cases_by_part.items():
        if n < MIN_CASES:
            found = f"site {site.name!r} has {n} {name} {'case' if n == 1 else 'cases'}"
            found += " of its own, so its training cases validate too" * (n == 0)
            no_interval = {"validation": "its share will have no interval", "test": "its Dice will have no interval"}
            what = no_interval.get(name, "its model will rest on very little")
            yield Finding("splits", "warning", found, f"{what}; add cases, or change data.split")


def _disk(out: Path, sites: Sites, n_parameters: int) -> Finding:
    # Two memories for each site, the server's new state beside its old one, and the model.
    needed = 4 * n_parameters * (2 * MOMENTS * len(sites) + 3)
    parent = next(folder for folder in (out, *out.absolute().parents) if folder.is_dir())
    free = shutil.disk_usage(parent).free
    found = f"{size_text(needed)} for checkpoints and the model, {size_text(free)} free"
    if needed > free:
        return Finding("disk", "problem", found, f"make room on the disk of {parent}, or choose another --out")
    return Finding("disk", "ok", f"{found}; decoded images in {cache_folder()}")


def _memory(sites: Sites, config: Config) -> Finding:
    pixels = sum(site.images.nbytes + site.masks.nbytes for site in sites)
    size = _size_seen(sites)
    # Each level of the network has a quarter of the pixels, or an eighth of the voxels, of the level above; activations
    # count forward and backward, twice each.
    at_a_time = max(config.train.batch_size, 32 if len(size) == 2 else 1)
    batch = at_a_time * sum(c * prod(size) / 2 ** (len(size) * i) for i, c in enumerate(config.model.channels))
    workers = config.engine.workers or default_workers(len(sites))
    needed = pixels + workers * (500e6 + 4 * 4 * batch)
    available = _available_memory()
    found = f"about {size_text(needed)} for {workers} workers, {size_text(available)} available"
    if needed > available:
        return Finding(
            "memory", "warning", found, "lower data.size (or data.patch), train.batch_size or engine.workers"
        )
    return Finding("memory", "ok", found)


def _time(participants: Participants, config: Config, sites: Sites) -> Finding:
    """Time one batch of training; a round takes as long as its busiest worker."""
    torch.set_num_threads(1)  # As in the workers.
    seconds = _seconds_a_volume(participants, sites) if sites[0].patch else _seconds_an_image(participants, sites)
    # Validation passes cost about a third of training on as many images.
    n = [one.n_by_part for one in sites]
    work = [seconds * (config.train.epochs * one["train"] + 2 * one["validation"] / 3) for one in n]
    workers = config.engine.workers or default_workers(len(sites))
    a_round = max(sum(work) / workers, max(work))
    total = a_round * config.n_rounds
    return Finding("time", "ok", f"about {duration(total)} for {config.n_rounds} rounds, {a_round:.2g} s each")


def _seconds_an_image(participants: Participants, sites: Sites) -> float:
    """Seconds of training that an image takes in an epoch."""
    learner, train = participants.learner, participants.config.train
    size = train.batch_size
    # The smallest last batch is the one that a network may refuse.
    smallest = min(sites, key=lambda one: len(one.split.train) % size or size)
    last = smallest.split.train[: len(smallest.split.train) % size or size]
    learner.train(learner.params, learner.batch(smallest.images[last], smallest.masks[last]), 0, {})
    site = max(sites, key=lambda one: len(one.images))
    rows = site.split.train[:size]
    batch = learner.batch(site.images[rows], site.masks[rows])
    return _seconds(learner, batch) / train.epochs / len(rows)


def _seconds_a_volume(participants: Participants, sites: Sites) -> float:
    """Seconds of training that the patches of a volume take in an epoch."""
    site: SiteData = sites[0]
    one = participants.learner.volumes(site.images, site.masks, site.stacks(site.split.train)[:1])
    return _seconds(participants.learner, one) / participants.config.train.epochs


def _seconds(learner: Learner, data: Images) -> float:
    """Seconds of a training, without what only the first training needs."""
    before = learner.params
    learner.train(before, data, 0, {})
    start = perf_counter()
    learner.train(before, data, 0, {})
    return perf_counter() - start


def _available_memory() -> float:
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def _shape(sites: Sites) -> str:
    channels = sites.n_channels
    kind = {1: "1 channel", 3: "colour"}.get(channels, f"{channels} channels")
    seen = in_words(_size_seen(sites)) + (" at a time" if sites[0].patch else "")
    return f"{seen}, {kind}"


def _size_seen(sites: Sites) -> tuple[int, ...]:
    """The size of what the network sees: of an image, or of a patch."""
    patch: tuple[int, ...] | None = sites[0].patch
    return patch or sites[0].images.shape[2:]


def size_text(n_bytes: float) -> str:
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.0f} MB"
