"""Studies: every table and figure of the paper by one command; studies share trainings.

A new study is one more file in this folder that holds a `STUDY`, or a `Study` of your own, named by its import path.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from math import inf
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from fedce.base.config import Config
from fedce.base.errors import ConfigError
from fedce.base.registry import find, full_name
from fedce.data.shape import in_words
from fedce.federation.lines import versions
from fedce.questions.jobs import Progress
from fedce.studies import data, paper
from fedce.studies.base import METHODS, Context, Outcome, Picture, Study, Table

__all__ = [
    "METHODS",
    "Context",
    "Outcome",
    "Picture",
    "Study",
    "Table",
    "about",
    "built_in",
    "conduct",
    "in_all",
    "in_full",
    "needed",
    "study_of",
    "wanted",
]

ALL = "all"
GROUP = "fedce.studies"


@cache
def built_in() -> Mapping[str, Study]:
    """The studies of this folder by name; those that `all` conducts come first, in their order."""
    found = {}
    for module in iter_modules(__path__):
        if study := getattr(import_module(f"{__name__}.{module.name}"), "STUDY", None):
            found[module.name.replace("_", "-")] = study
    return dict(sorted(found.items(), key=lambda item: (item[1].order or inf, item[0])))


def in_all() -> list[str]:
    return [name for name, study in built_in().items() if study.order is not None]


def wanted(names: str) -> list[str]:
    """The names of the studies that are asked for: "all", or names and import paths separated by commas."""
    each = (in_all() if name == ALL else [full_name(name, built_in(), GROUP)] for name in names.split(","))
    chosen = list(dict.fromkeys(name for some in each for name in some))
    for name in chosen:
        study_of(name)
    return chosen


def study_of(name: str) -> Study:
    known: Mapping[str, Any] = {**built_in(), ALL: None}
    found: Study = find(name, known, Study, GROUP, "study")
    return found


def needed(names: Sequence[str], context: Context) -> list[Config]:
    """All trainings of these studies, each once."""
    by_path = {context.store.path(config): config for name in names for config in study_of(name).trainings(context)}
    return list(by_path.values())


def in_full(names: Sequence[str], context: Context) -> list[Config]:
    """Those trainings of these studies whose ledgers or models are read."""
    chosen = [study_of(name) for name in names]
    return [config for study in chosen for config in (study.in_full or study.trainings)(context)]


def about(names: Sequence[str], context: Context, command: str) -> dict[str, Any]:
    """What the numbers rest on: data, settings, command and versions."""
    n_images = sum(site.n_by_part["train"] for site in context.sites)
    first = context.sites[0]
    kind = "volumes, seen in patches" if first.patch else "images"
    seeds = ", ".join(map(str, context.seeds))
    size = (
        f"Recipe {context.config.recipe}: {len(context.sites)} sites, "
        f"{n_images} training {kind} of {in_words(first.patch or first.images.shape[2:])}, "
        f"{context.config.n_rounds} rounds, seed{'s' if len(context.seeds) > 1 else ''} {seeds}."
    )
    if context.printed:
        size += f" The paper (recipe paper): {paper.SETTINGS}."
    if n_other := context.store.n_by_other_code(trained := needed(names, context)):
        size += (
            f" The results of {n_other} of {len(trained)} trainings were made by another version of fedce or of a "
            "library, or on another kind of machine, so that last digits may differ."
        )
    name = Path(context.data).name
    return {
        "command": command,
        "studies": list(names),
        "data": name,
        "size": size,
        "seeds": list(context.seeds),
        "versions": versions(),
    }


def conduct(
    names: Sequence[str],
    context: Context,
    workers: int = 0,
    progress: Callable[[Progress], None] = lambda now: None,
) -> list[Outcome]:
    """Train all that is missing, then evaluate study by study; every page shows the paper's Fig. 3."""
    context.store.run(needed(names, context), workers, progress)
    found = [_checked(name, study_of(name).evaluate(context)) for name in names]
    return found if "data" in names else [*found, data.at_a_glance(context)]


def _checked(name: str, outcome: Outcome) -> Outcome:
    """Refuse an outcome whose name can't begin the names of files."""
    if not isinstance(outcome, Outcome) or not re.fullmatch(r"\w[\w.-]*", outcome.study):
        got = repr(outcome.study) if isinstance(outcome, Outcome) else type(outcome).__name__
        raise ConfigError(f"study {name}: expected an Outcome with a name such as my-study, got {got}")
    return outcome
