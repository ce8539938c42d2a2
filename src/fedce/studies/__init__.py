"""Every table and figure of the paper by one command: each study is a file here; trainings are shared between them."""

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from fedce.base.config import Config
from fedce.base.errors import ConfigError, nearest
from fedce.federation.lines import versions
from fedce.questions.jobs import Progress
from fedce.studies import data, paper
from fedce.studies.base import METHODS, Context, Outcome, Picture, Study, Table

__all__ = ["METHODS", "Context", "Outcome", "Picture", "Study", "Table", "about", "conduct", "needed", "wanted"]

NAMES = (
    *("performance", "fairness", "contribution", "convergence", "free-rider"),
    *("shift", "ablation", "qualitative", "data", "scaling", "theory"),
)
BEYOND = ("robustness",)
"""What the paper has not."""
ALL = "all"


def wanted(names: str) -> list[str]:
    """The studies that are named: all, or some, separated by commas."""
    each = (list(NAMES) if name == ALL else [name] for name in names.split(","))
    chosen = list(dict.fromkeys(name for some in each for name in some))
    for name in chosen:
        if name not in (*NAMES, *BEYOND):
            known = (*NAMES, *BEYOND, ALL)
            raise ConfigError(f"unknown study {name!r}{nearest(name, known)}; known: {', '.join(known)}")
    return chosen


def study_of(name: str) -> Study:
    return cast(Study, import_module(f"fedce.studies.{name.replace('-', '_')}"))


def needed(names: Sequence[str], context: Context) -> list[Config]:
    """All trainings of these studies, each once."""
    by_path = {context.store.path(config): config for name in names for config in study_of(name).trainings(context)}
    return list(by_path.values())


def about(context: Context, command: str) -> dict[str, Any]:
    """What the numbers rest on."""
    n_images = sum(len(site.split.train) for site in context.sites)
    _, _, height, width = context.sites[0].images.shape
    seeds = ", ".join(map(str, context.seeds))
    size = (
        f"Recipe {context.config.recipe}: {len(context.sites)} sites, "
        f"{n_images} training images of {width}x{height} pixels, "
        f"{context.config.n_rounds} rounds, seed{'s' if len(context.seeds) > 1 else ''} {seeds}."
    )
    if context.printed:
        size += f" The paper (recipe paper): {paper.SETTINGS}."
    name = Path(context.data).name
    return {"command": command, "data": name, "size": size, "seeds": list(context.seeds), "versions": versions()}


def conduct(
    names: Sequence[str],
    context: Context,
    workers: int = 0,
    progress: Callable[[Progress], None] = lambda now: None,
) -> list[Outcome]:
    """Train what is missing, all of it at once, then evaluate study by study; every page shows the paper's Fig. 3."""
    context.store.run(needed(names, context), workers, progress)
    found = [study_of(name).evaluate(context) for name in names]
    return found if "data" in names else [*found, data.at_a_glance(context)]
