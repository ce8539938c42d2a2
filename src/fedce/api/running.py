"""Start a run, go on with it, or load a finished one."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedce import algorithms
from fedce.api.result import Result
from fedce.base.config import as_tree
from fedce.base.errors import ConfigError
from fedce.base.places import default_out
from fedce.base.recipes import PLAN
from fedce.core.algorithm import Algorithm
from fedce.data import Sites
from fedce.engines.starting import check_same, experiment_of
from fedce.federation.session import Observer
from fedce.present.notebook import run_display
from fedce.present.reported import conducted
from fedce.record.folder import RunFolder


def run(
    sites: Sites | str | Path = "fundus6",
    algorithm: Algorithm | str = "fedce",
    *,
    rounds: int | None = None,
    seed: int | None = None,
    out: str | Path | None = None,
    replace: bool = False,
    progress: bool | Observer = True,
    settings: Mapping[str, Any] | None = None,
) -> Result:
    """Train one model across the sites, and record what each site contributed.

    `sites` comes from `load_sites`, or is a folder or the name of a built-in federation. `algorithm` is an object such
    as `fedce.FedCE()`, or a name. The run's files go to the folder `out`, by default runs/DATA-ALGORITHM-SEED.

    Called again with the same arguments, an unfinished run goes on where it stopped, and a finished one is loaded;
    `replace` starts anew. A run with other settings in `out` is never changed without `replace`.

    `settings` are further keys of the experiment file, dotted or in tables: {"train.lr": 3e-4} or {"train": {"lr":
    3e-4}}. What they leave out is planned from the data (`fedce.plan`), unless they name another recipe. `progress`
    shows a bar, in a terminal or in a notebook; an `Observer` has callbacks instead.

    >>> import fedce
    >>> sites = fedce.load_sites("fundus6", scale="tiny")
    >>> settings = {"recipe": "small", "engine.workers": 1}
    >>> result = fedce.run(sites, "fedavg", rounds=2, settings=settings, progress=False)
    >>> result.folder
    PosixPath('runs/fundus6-fedavg-0')
    >>> fedce.run(sites, "fedavg", rounds=2, settings=settings, progress=False).dice == result.dice
    True
    >>> fedce.run(sites, "fedavg", rounds=3, settings=settings, progress=False)
    Traceback (most recent call last):
    fedce.base.errors.RunError: runs/fundus6-fedavg-0 holds another run: there rounds is 2, here 3; ...
    """
    tree = experiment_tree(settings, algorithm, rounds=rounds, seed=seed)
    with _followed(progress, Path(out or "runs")) as observer:
        config, members = experiment_of(tree, sites, observer.notice)
        place = Path(out) if out else default_out(config)
        there = RunFolder(place)
        goes_on = there.is_one and not replace
        if goes_on:
            check_same(there, config, members)
        trained = conducted(
            None if goes_on else config,
            place,
            "the same call continues it",
            sites=members,
            workers=config.engine.workers if goes_on else None,
            replace=replace,
            observer=observer,
            command="fedce.run(...)",
        )
    return Result(trained.folder, trained.values)


def load(folder: str | Path) -> Result:
    """The result of a finished run, from its folder.

    >>> import fedce
    >>> sites = fedce.load_sites("fundus6", scale="tiny")
    >>> trained = fedce.run(sites, rounds=1, settings={"recipe": "small"}, out="runs/example", progress=False)
    >>> fedce.load("runs/example").contributions == trained.contributions
    True
    """
    run_folder = RunFolder.open(Path(folder))
    return Result(run_folder.path, run_folder.results)


def experiment_tree(
    settings: Mapping[str, Any] | None, algorithm: Algorithm | str | None = None, **named: Any
) -> dict[str, Any]:
    """The experiment that arguments and settings state together, as a file would; each key may be stated once."""
    tree = as_tree(settings or {})
    if algorithm is not None:
        if "algorithm" in tree and not (isinstance(algorithm, str) and "name" not in tree["algorithm"]):
            raise ConfigError("settings: leave out 'algorithm'; it is the argument of this name")
        name = algorithm if isinstance(algorithm, str) else algorithms.name_of(algorithm)
        options = tree.get("algorithm", {}) if isinstance(algorithm, str) else algorithms.settings_of(algorithm)
        tree["algorithm"] = {"name": name, **options}
    for key, value in named.items():
        if value is not None and key in tree:
            raise ConfigError(f"settings: {key!r} is an argument too; state it once")
        tree |= {key: value} if value is not None else {}
    if "source" in tree.get("data", {}):
        raise ConfigError("settings: leave out 'data.source'; it is the argument sites")
    return {"recipe": PLAN, **tree}


@contextmanager
def _followed(progress: bool | Observer, out: Path) -> Iterator[Observer]:
    """The observer of a run: somebody's own, a display, or one that shows nothing."""
    if isinstance(progress, Observer):
        yield progress
    elif progress:
        with run_display(out) as display:
            yield Observer(display.notice, display.start, display.round)
    else:
        yield Observer()
