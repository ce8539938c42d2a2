"""Questions to several trainings, or to the data before any: compare, value and plan."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedce.api.result import Result
from fedce.api.running import experiment_tree
from fedce.base.config import Config
from fedce.base.files import write_sealed
from fedce.base.places import STORE
from fedce.data import Sites
from fedce.data.fingerprint import fingerprints_of
from fedce.engines.starting import experiment_of
from fedce.learning.planning import fingerprints_from, fingerprints_in
from fedce.present.following import estimate
from fedce.present.notebook import jobs_display
from fedce.present.pages.run import write_report
from fedce.questions import value as valuing
from fedce.questions.comparison import Compared, Comparison
from fedce.questions.jobs import Store
from fedce.questions.plan import Plan, planned_for
from fedce.questions.value import Valuation
from fedce.record.folder import RunFolder


def compare(
    sites: Sites | str | Path,
    algorithms: Sequence[str],
    *,
    seeds: Sequence[int] = (0, 1, 2),
    rounds: int | None = None,
    truth: str | None = None,
    store: str | Path = STORE,
    progress: bool = True,
    settings: Mapping[str, Any] | None = None,
) -> Comparison:
    """Train several algorithms with several seeds, and compare them in one table.

    Trainings are kept in `store`, so that none is repeated; a call that was stopped goes on. `truth` names a method of
    `value` (loo, shapley or reconstruction), with whose values the contributions are compared. `settings` are as in
    `run`; engine.workers is the number of trainings at a time.

    >>> import fedce
    >>> sites = fedce.load_sites("fundus6", scale="tiny", sites=["site1", "site2"])
    >>> settings = {"recipe": "small", "model.channels": [4, 8]}
    >>> found = fedce.compare(sites, ["fedavg", "fedce"], seeds=[0], rounds=1, settings=settings, progress=False)
    >>> [(row["algorithm"], row["site"]) for row in found.records]
    [('fedavg', 'site1'), ('fedavg', 'site2'), ('fedce', 'site1'), ('fedce', 'site2')]
    """
    with jobs_display(progress) as display:
        config, members = experiment_of(experiment_tree(settings, rounds=rounds), sites, display.notice)
        asked = Compared(config, tuple(algorithms), tuple(seeds), truth)
        kept = Store(Path(store), display.notice)
        kept.add(config.data, members)
        workers = config.engine.workers
        display.notice(estimate(kept, asked.trainings(kept), workers)[1])
        return asked.answer(kept, workers, display.progress)


def value(
    run: Result | str | Path,
    method: str = "loo",
    *,
    store: str | Path = STORE,
    workers: int = 0,
    progress: bool = True,
) -> Valuation:
    """Measure what each site is worth by training again, and how well the run's contributions agree with that.

    `run` is a result, a run folder, or an experiment file. `method` is loo (train again without each site), shapley
    (without each group of sites), or reconstruction (from the models of every round, in one training). The values are
    also written to the run folder, and its report shows them. `workers` trainings run at a time; 0: one for each core.

    >>> import fedce
    >>> sites = fedce.load_sites("fundus6", scale="tiny", sites=["site1", "site2"])
    >>> settings = {"recipe": "small", "model.channels": [4, 8]}
    >>> result = fedce.run(sites, rounds=1, settings=settings, progress=False)
    >>> found = fedce.value(result, progress=False)
    >>> found.n_trained, [row["site"] for row in found.records]
    (3, ['site1', 'site2'])
    """
    target = run.folder if isinstance(run, Result) else Path(run)
    valuing.check_method(method)
    with jobs_display(progress) as display:
        config = valuing.config_of(target)
        kept = Store(Path(store), display.notice)
        display.notice(estimate(kept, trainings(config, method, kept), workers)[1])
        found = valuing.value(config, method, kept, workers, display.progress)
        keep_value(found, target)
    return found


def trainings(config: Config, method: str, store: Store) -> list[Config]:
    """Everything that must be trained to value the sites of an experiment."""
    return valuing.trainings(config, method, [site.name for site in store.sites(config.data)])


def keep_value(found: Valuation, target: Path, out: Path | None = None) -> tuple[Path, Path | None]:
    """Write the values, by default to the run folder, whose report then shows them; returns the file and the page."""
    place = out or (target if target.is_dir() else target.parent) / f"value-{found.method}.json"
    write_sealed(place, found.as_dict())
    run = RunFolder(target)
    is_shown = place.parent == target and run.results_file.exists()
    return place, write_report(run) if is_shown else None


def plan(
    sites: Sites | str | Path | Sequence[str | Path],
    *,
    settings: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> Plan:
    """An experiment made from the data: image size, network, norm, loss, rounds and so on, each with its reason.

    `sites` comes from `load_sites`, or is a folder or the name of a built-in federation; or a list of the fingerprints
    (.json) that hospitals sent. Keys in `settings` stay as they are. `run` makes the same plan by itself.

    >>> import fedce
    >>> found = fedce.plan(fedce.load_sites("fundus6", scale="tiny"), progress=False)
    >>> found.settings["model.norm"], found.settings["train.schedule"]
    ('site', 'late')
    >>> found.save("plan.toml")
    PosixPath('plan.toml')
    """
    tree = experiment_tree(settings)
    if isinstance(sites, Sites):
        told = sites.config.model_dump(mode="json", exclude_unset=True, exclude_none=True)
        return planned_for({**tree, "data": {**told, **tree.get("data", {})}}, fingerprints_of(sites))
    if not isinstance(sites, str | Path):
        return planned_for(tree, fingerprints_from([Path(file) for file in sites]))
    tree["data"] = {"source": str(sites), **tree.get("data", {})}
    with jobs_display(progress) as display:
        return planned_for(tree, fingerprints_in(tree, display.notice))
