"""An experiment made from the data, each value with its reason: the recipe "plan".

It rests on the sites' fingerprints alone and on nothing random, so that the same data give the same plan. The rules
and where they come from are in docs/plan.md; a key that a person wrote always wins.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log2
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any

from fedce.base.config import Config, parse
from fedce.base.errors import DataError
from fedce.base.recipes import PLAN, PLANNED, SMALL, filled, value_at
from fedce.base.tables import DataConfig, ModelConfig, TrainConfig
from fedce.base.words import printable
from fedce.data.cache import Notify
from fedce.data.fingerprint import Fingerprint, Fingerprints, look_at, read_fingerprint
from fedce.data.shape import counted_as, in_words
from fedce.learning import networks
from fedce.learning import planning_volumes as volumes
from fedce.learning.chosen import Chosen
from fedce.learning.planning_cost import Cost
from fedce.learning.planning_volumes import as_volumes

LARGEST = 128
"""Pixels a side; finer images take hours without a GPU, and in the steps of a plan a network learns less from them."""
SMALLEST_MAP = 4
"""Pixels a side that the network's deepest level must still have."""
FIRST_CHANNELS, MOST_CHANNELS = 16, 256
RESIDUAL_UNITS = 2
"""Convolutions of each level beside a shortcut."""
LARGEST_BATCH, SMALLEST_BATCH = 8, 2
STEPS = 400
"""Steps that the median site makes in all."""
FEWEST_ROUNDS, MOST_ROUNDS = 120, 300
"""With one epoch a round, how often each image is seen; augmentation shows it differently each time."""
PERSONAL_PART = 0.25
"""Rounds after the last one in which a site trains on by itself, as a part of all rounds."""
OBLONG = 1.25
"""Images longer than this multiple of their shorter side are padded and not stretched."""


def plan_of(known: Fingerprints, stated: Mapping[str, Any] = MappingProxyType({})) -> list[Chosen]:
    """All values that a plan states, in the order of the experiment file; `stated` is what somebody wrote."""
    sites = known.sites
    is_3d = len(known.shape) == 3 if known.shape else as_volumes(sites, stated)
    if is_3d:
        return _plan_of_volumes(known, stated)
    size = _size(sites) if known.shape is None else None
    height, width = (size.value, size.value) if size else known.shape or (sites[0].heights[1], sites[0].widths[1])
    return [
        _rounds(sites),
        _personalise(_n_rounds(sites)),
        *([size, *_resize(sites)] if size else []),
        _normalize(),
        _channels(height, width),
        _residual_units(),
        _norm(),
        _loss(sites),
        _augment(sites),
        _schedule(),
        _batch_size(sites),
        _epochs(),
    ]


def _plan_of_volumes(known: Fingerprints, stated: Mapping[str, Any]) -> list[Chosen]:
    if without := next((site.site for site in known.sites if site.volumes is None), None):
        raise DataError(f"data.dims = 3: not all files of {without} are volumes with a spacing; leave out data.dims")
    sites = [site.model_copy(update={"n_train": site.volumes.n_train}) for site in known.sites if site.volumes]
    ours = [] if known.shape else volumes.chosen_for(sites, stated)
    patch = value_at(stated, "data.patch") or known.shape or next(one.value for one in ours if one.key == "data.patch")
    n, left = volumes.halvings(patch)
    channels = [min(FIRST_CHANNELS * 2**level, MOST_CHANNELS) for level in range(n + 1)]
    n_patches = value_at(stated, "train.patches") or TrainConfig().patches
    steps = ceil(median(site.n_train for site in sites) * n_patches / volumes.BATCH)
    n_rounds = max(volumes.FEWEST_ROUNDS, min(MOST_ROUNDS, ceil(STEPS / steps)))
    return [
        Chosen("rounds", n_rounds, f"the median site makes {n_rounds * steps} steps in all, {steps} a round"),
        _personalise(n_rounds),
        *ours,
        _normalize(),
        Chosen(
            "model.channels",
            channels,
            f"{n} halvings of {in_words(patch)} leave {in_words(left)}",
        ),
        Chosen("model.res_units", 0, "residual units take more than twice the time, and were not measured on volumes"),
        _norm(),
        _loss(sites, "a slice"),
        _augment_volumes(sites),
        _schedule(),
        Chosen("train.batch_size", volumes.BATCH, f"patches; each training volume gives {n_patches} in an epoch"),
        _epochs(),
    ]


def tree_of(plan: Sequence[Chosen]) -> dict[str, Any]:
    """The values as an experiment file has them."""
    tree: dict[str, Any] = {}
    for chosen in plan:
        table, _, name = chosen.key.rpartition(".")
        (tree.setdefault(table, {}) if table else tree)[name] = chosen.value
    return tree


def _strides(side: int) -> int:
    """How often the network can halve a side until too few pixels are left."""
    return max(floor(log2(side / SMALLEST_MAP)), 1)


def _halvings(height: int, width: int) -> int:
    """How often the network halves images of this size: never into half a pixel."""
    most = _strides(min(height, width))
    return max((n for n in range(1, most + 1) if height % 2**n == 0 and width % 2**n == 0), default=1)


def _size(sites: Sequence[Fingerprint]) -> Chosen | None:
    """The size of the images; None if they can be used as they are."""
    sizes = {(*site.heights, *site.widths) for site in sites}
    height, width = sites[0].heights[1], sites[0].widths[1]
    is_one = sizes == {(height,) * 3 + (width,) * 3}
    is_even = _halvings(height, width) == _strides(min(height, width))
    if is_one and max(height, width) <= LARGEST and is_even and height % 2 == width % 2 == 0:
        return None
    middle = median(min(site.heights[1], site.widths[1]) for site in sites)
    side = max(32, min(LARGEST, 32 * floor(middle / 32)))
    why = f"the median site's images have a shorter side of {middle:g} pixels"
    if middle > LARGEST:
        why += f"; above {LARGEST} training takes hours without a GPU"
    return Chosen("data.size", side, f"{why}; a multiple of 32, so that the network can halve it")


def _resize(sites: Sequence[Fingerprint]) -> list[Chosen]:
    longest = max(max(site.heights[1], site.widths[1]) / min(site.heights[1], site.widths[1]) for site in sites)
    if longest <= OBLONG:
        return []
    reason = f"one site's images are {longest:.2f} times as long as wide: stretched, its structures would be distorted"
    return [Chosen("data.resize", "pad", reason)]


def _normalize() -> Chosen:
    return Chosen(
        "data.normalize",
        "zscore",
        "brightness and contrast differ from device to device; each image gets mean 0 and deviation 1",
    )


def _channels(height: int, width: int) -> Chosen:
    n, side = _halvings(height, width), min(height, width)
    channels = [min(FIRST_CHANNELS * 2**level, MOST_CHANNELS) for level in range(n + 1)]
    left = side // 2**n
    why = (
        "so the network sees all" if left < 2 * SMALLEST_MAP else "and cannot be halved again; another data.size could"
    )
    return Chosen("model.channels", channels, f"{n} halvings of {side} pixels leave {left}, {why}")


def _residual_units() -> Chosen:
    reason = "more convolutions at each size learn more of the same images, and shortcuts keep them easy to train"
    return Chosen("model.res_units", RESIDUAL_UNITS, reason)


def _norm() -> Chosen:
    return Chosen("model.norm", "site", "images differ from site to site: each site keeps its own batch statistics")


def _loss(sites: Sequence[Fingerprint], kind: str = "an image") -> Chosen:
    smallest, site, name = min((site.areas[name][1], site.site, name) for site in sites for name in site.areas)
    most, where, what = max((site.absent[name], site.site, name) for site in sites for name in site.absent)
    reason = f"the smallest class covers {100 * smallest:.2g} % of {kind} ({name} at {site}, median)"
    if most > 0:
        reason += f", and {100 * most:.0f} % of the {kind.split()[1]}s of {where} have no {what}"
    return Chosen("train.loss", "dice-ce", f"{reason}; cross-entropy has a gradient there where Dice alone has little")


def _augment(sites: Sequence[Fingerprint]) -> Chosen:
    fewest = min(sites, key=lambda site: site.n_train)
    reason = f"{fewest.site} has {fewest.n_train} training images, which a network soon knows by heart"
    return Chosen("train.augment", "standard", reason)


def _augment_volumes(sites: Sequence[Fingerprint]) -> Chosen:
    fewest = min(sites, key=lambda site: site.n_train)
    reason = f"{fewest.site} has {fewest.n_train} training volumes; mirrored they go further, at almost no cost"
    return Chosen("train.augment", "flips", reason)


def _schedule() -> Chosen:
    return Chosen("train.schedule", "late", "small last steps let the sites' models come together")


def _batch(sites: Sequence[Fingerprint]) -> int:
    fewest = min(site.n_train for site in sites)
    return int(min(LARGEST_BATCH, max(SMALLEST_BATCH, 2 ** floor(log2(fewest)))))


def _batch_size(sites: Sequence[Fingerprint]) -> Chosen:
    fewest = min(site.n_train for site in sites)
    return Chosen("train.batch_size", _batch(sites), f"the smallest site has {fewest} training images")


def _steps(sites: Sequence[Fingerprint]) -> int:
    """Steps of the median site in one epoch."""
    return ceil(median(site.n_train for site in sites) / _batch(sites))


def _epochs() -> Chosen:
    return Chosen("train.epochs", 1, "the guard's limits hold for one local epoch: with more, updates look like noise")


def _n_rounds(sites: Sequence[Fingerprint]) -> int:
    return max(FEWEST_ROUNDS, min(MOST_ROUNDS, ceil(STEPS / _steps(sites))))


def _personalise(n_rounds: int) -> Chosen:
    reason = (
        "at the end each site trains on by itself; it keeps that model if its own validation cases show it to be better"
    )
    return Chosen("personalise", round(PERSONAL_PART * n_rounds), reason)


def _rounds(sites: Sequence[Fingerprint]) -> Chosen:
    a_round, n = _steps(sites), _n_rounds(sites)
    return Chosen("rounds", n, f"the median site makes {n * a_round} steps in all, {a_round} a round")


def _of_another_network(chosen: Chosen, name: str) -> Chosen:
    """What a plan says of a network that is not the U-Net that it is made for."""
    if chosen.key == "model.res_units":
        return Chosen(chosen.key, 0, f"residual units are for unet, not for {name}")
    if name in networks.NETWORKS:
        return chosen
    why = "the network is not one of ours: it is taken as it is"
    if chosen.key == "model.norm":
        return Chosen(chosen.key, "batch", f"{why}; site would keep batch-norm statistics at the sites")
    return Chosen(chosen.key, list(ModelConfig().channels), why) if chosen.key == "model.channels" else chosen


@dataclass(frozen=True)
class Planned:
    """An experiment, and what of it was planned."""

    config: Config
    chosen: tuple[Chosen, ...] = ()
    """The planned values; a key that somebody wrote is not among them."""

    @property
    def line(self) -> str:
        """All planned values in one line."""
        return "planned from the data: " + ", ".join(f"{one.key} = {_short(one.value)}" for one in self.chosen)


def _short(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def planned(tree: Mapping[str, Any], origin: str | None = None, notify: Notify | None = None) -> Planned:
    """The experiment that a tree of written keys states, completed by a plan if its recipe is "plan"."""
    if tree.get("recipe") != PLAN or all(value_at(tree, key) is not None for key in PLANNED):
        return Planned(parse(tree, origin))
    return completed_by(tree, plan_of(fingerprints_in(tree, notify, origin), tree), origin)


def fingerprints_in(tree: Mapping[str, Any], notify: Notify | None = None, origin: str | None = None) -> Fingerprints:
    """What the images that an experiment names are like."""
    return look_at(parse({**tree, "recipe": SMALL}, origin).data, notify)


def fingerprints_from(files: Sequence[Path]) -> Fingerprints:
    """What fingerprints say that hospitals sent."""
    return Fingerprints(together([read_fingerprint(file) for file in files]))


def together(fingerprints: Sequence[Fingerprint]) -> tuple[Fingerprint, ...]:
    """The fingerprints by name; a DataError unless they can be of one federation."""
    sites = sorted(fingerprints, key=lambda one: one.site)
    if len(names := {one.site for one in sites}) < max(len(sites), 2):
        raise DataError(f"a federation needs fingerprints of at least two sites, each once; got {', '.join(names)}")
    if len({one.every_class for one in sites}) > 1:
        classes = "; ".join(f"{one.site}: {', '.join(one.every_class)}" for one in sites)
        raise DataError(
            f"the sites' fingerprints differ in their classes ({classes}); state one data.classes at all sites"
        )
    return tuple(sites)


def completed_by(tree: Mapping[str, Any], plan: Sequence[Chosen], origin: str | None = None) -> Planned:
    """The experiment with a plan's values for what nobody wrote."""
    if (name := value_at(tree, "model.name")) not in (None, "unet"):
        plan = [_of_another_network(one, name) for one in plan]
    if isinstance(rounds := value_at(tree, "rounds"), int):
        plan = [_personalise(rounds) if one.key == "personalise" else one for one in plan]
    chosen = tuple(one for one in plan if value_at(tree, one.key) is None)
    return Planned(parse(filled({**tree, "recipe": PLAN}, tree_of(chosen)), origin), chosen)


def as_toml(planned: Planned, tree: Mapping[str, Any], head: Sequence[str]) -> str:
    """An experiment file with what was written and what was planned, which has its reasons beside it."""
    reasons = {one.key: one.reason for one in planned.chosen}
    whole = filled(tree, tree_of(planned.chosen))
    tables = {name: value for name, value in whole.items() if isinstance(value, Mapping)}
    lines = [*(f"# {line}" for line in head), f'recipe = "{PLAN}"']
    lines += [_line(key, value, reasons) for key, value in whole.items() if key not in (*tables, "recipe")]
    for table, values in tables.items():
        lines += ["", f"[{table}]", *(_line(f"{table}.{name}", value, reasons) for name, value in values.items())]
    return "\n".join(lines) + "\n"


def _line(key: str, value: Any, reasons: Mapping[str, str]) -> str:
    reason = f"  # {printable(reasons[key])}" if key in reasons else ""
    return f"{key.rpartition('.')[2]} = {_inline(value)}{reason}"


def _inline(value: Any) -> str:
    """A TOML value in one line; tomli_w writes a table as several.

    >>> _inline({"disc": [128, 255], "the cup": [255]})
    '{disc = [128, 255], "the cup" = [255]}'
    """
    if isinstance(value, Mapping):
        parts = [f"{_key(key)} = {_inline(part)}" for key, part in value.items()]
        return f"{{{', '.join(parts)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_inline, value))}]"
    if isinstance(value, str | bool):
        return json.dumps(value)
    return repr(value)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key)


def heading(known: Fingerprints, cost: Cost, data: DataConfig) -> list[str]:
    """The first lines of a planned experiment file."""
    n_train, kind = sum(site.n_train for site in known.sites), counted_as(data)
    if all(site.volumes for site in known.sites):
        n_volumes = sum(site.volumes.n_train for site in known.sites if site.volumes)
        n_train, kind = (n_volumes, "volumes") if data.dims == 3 else (n_train, "slices")
    seen = [f"Recognised: {known.recognised}."] if known.recognised else []
    return [
        f"Made by fedce plan from {len(known.sites)} sites with {n_train} training {kind}. docs/plan.md has the rules.",
        *seen,
        cost.sentence,
        "A key that you change or add here always wins; a planned key that you delete is planned again.",
    ]
