"""The runs of a folder side by side, as one page beside them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote as shell_quote
from statistics import fmean
from typing import Any
from urllib.parse import quote

from fedce.algorithms.titles import printed_name
from fedce.base.errors import FedceError, RunError
from fedce.base.files import write_bytes
from fedce.base.words import cell_text
from fedce.present.pages import page
from fedce.present.sentences import NO_ALARM, NOT_CHECKED, looked_for_cheats
from fedce.questions.metrics import MetricTable, metric_tables, over_seeds
from fedce.record.folder import RunFolder
from fedce.record.verify import checked
from fedce.valuation.standing import NO_DIFFERENCE, said, standing


@dataclass(frozen=True)
class Finished:
    """A run that has results."""

    name: str
    method: str
    """The algorithm's name, with the variant if it has several."""
    results: dict[str, Any]
    fingerprints: dict[str, str]
    has_report: bool
    looked: bool
    """Whether the run checked for cheating."""

    @property
    def alone(self) -> bool:
        return bool(self.results["algorithm"] == "standalone")

    @property
    def row(self) -> dict[str, Any]:
        results = self.results
        dice = results["dice"]
        return {
            "name": self.name,
            "link": f"{quote(self.name)}/report.html" if self.has_report else None,
            "data_name": Path(results["data"]).name,
            "algorithm": self.method,
            **{key: results[key] for key in ("rounds", "seed")},
            **{key: results["fairness"][key] for key in ("mean", "std", "worst")},
            "worst_site": min(dice, key=dice.get),
            "looked": self.looked,
            "alarms": [f"{site}: {flag}" for site, flags in results["flags"].items() for flag in flags],
        }


@dataclass(frozen=True)
class Unfinished:
    """A run without results, or one that can't be read."""

    name: str
    what: str
    command: str = ""


def write_folder_report(folder: Path) -> Path:
    """Write FOLDER/report.html from the records of the runs in it."""
    runs = [run for path in sorted(folder.iterdir()) if (run := RunFolder(path)).is_one]
    if not runs:
        raise RunError(
            f"{folder} holds no run, no study and no folders with runs; 'fedce run --out {folder / 'NAME'}' starts one"
        )
    read = [_read(run) for run in runs]
    finished = [run for run in read if isinstance(run, Finished)]
    path = folder / "report.html"
    content = page(
        "folder.html.j2",
        name=folder.resolve().name,
        runs=[run.row for run in finished],
        metrics=_mean_metrics(finished),
        unfinished=[run for run in read if isinstance(run, Unfinished)],
        summary=summary(finished, len(runs)),
        groups=[_group(group) for group in _on_the_same_data(finished)],
    )
    write_bytes(path, content)
    return path


def _read(run: RunFolder) -> Finished | Unfinished:
    """A run; one that can't be read becomes an entry that says why, so that it does not hide the others."""
    name = run.path.name
    try:
        if not run.results_file.exists():
            done, n_rounds = len(run.rounds()), run.config.n_rounds
            return Unfinished(
                name, f"{done} of {n_rounds} rounds are recorded", f"fedce run --resume {shell_quote(name)}"
            )
        results = checked(run).results
        if not (fingerprints := run.ledger().fingerprints):
            return Unfinished(name, f"{run.ledger_file.name} is missing or does not say what data was used")
        return Finished(
            name,
            printed_name(run.config.algorithm),
            results,
            fingerprints,
            run.report_file.exists(),
            looked_for_cheats(run.config),
        )
    except FedceError as error:
        # The path on the reader's machine is private, so it is left out.
        return Unfinished(name, str(error).replace(str(run.path), name))


def _on_the_same_data(runs: Sequence[Finished]) -> list[list[Finished]]:
    """Groups of two or more runs that can be compared site by site."""
    groups: dict[tuple[tuple[str, str], ...], list[Finished]] = {}
    for run in runs:
        groups.setdefault(tuple(sorted(run.fingerprints.items())), []).append(run)
    return [group for group in groups.values() if len(group) > 1]


def _as_long(runs: Sequence[Finished]) -> list[list[Finished]]:
    """Groups of two or more runs with equal numbers of rounds: longer training alone gives a better model."""
    groups: dict[int, list[Finished]] = {}
    for run in runs:
        groups.setdefault(run.results["rounds"], []).append(run)
    return [group for group in groups.values() if len(group) > 1]


def _group(runs: Sequence[Finished]) -> dict[str, Any]:
    first = sorted(runs, key=lambda run: not run.alone)
    sites = list(runs[0].results["dice"])
    note = (
        " Standalone comes first: a site with a lower Dice in another run is better off alone."
        if first[0].alone
        else ""
    )
    dice = [_line(run, [cell_text(run.results["dice"].get(site), 3) for site in sites]) for run in first]
    shares = [
        _line(run, [cell_text(100 * run.results["contributions"][site], 1) for site in sites])
        for run in runs
        if not run.alone
    ]
    tables = [_Table("Dice by site", f"Test Dice by site.{note}", sites, dice), *_metrics_by_site(first, sites)]
    if shares:
        caption = "Contributions by site, %; each row sums to 100."
        tables.append(_Table("Contributions by site", caption, sites, shares))
    return {"data_name": Path(runs[0].results["data"]).name, "n_runs": len(runs), "tables": tables}


@dataclass(frozen=True)
class _Line:
    name: str
    algorithm: str
    seed: int
    cells: Sequence[str]


@dataclass(frozen=True)
class _Table:
    """A table with a row for each run."""

    label: str
    caption: str
    titles: Sequence[str]
    lines: Sequence[_Line]


def _line(run: Finished, cells: Sequence[str]) -> _Line:
    return _Line(run.name, run.method, run.results["seed"], cells)


def _metrics_by_site(runs: Sequence[Finished], sites: Sequence[str]) -> list[_Table]:
    """A table for each metric beside Dice that any of these runs measured."""
    by_run = {run.name: over_seeds([run.results]) for run in runs}
    return [_as_lines(table, runs) for table in metric_tables(by_run, sites)]


def _as_lines(table: MetricTable, runs: Sequence[Finished]) -> _Table:
    by_name = {run.name: run for run in runs}
    lines = [_line(by_name[name], cells) for name, *cells in table.cells]
    return _Table(f"{table.name} by site", f"{table.title}.", table.header[1:], lines)


def _mean_metrics(runs: Sequence[Finished]) -> _Table | None:
    """Every run's mean over the sites of each metric beside Dice."""
    by_run = {run.name: over_seeds([run.results]) for run in runs}
    names = list(dict.fromkeys(name for metrics in by_run.values() for name in metrics))
    if not names:
        return None
    known = {name: [metrics[name] for metrics in by_run.values() if name in metrics] for name in names}
    titles = [
        metrics[0].heading.line(unit for metric in metrics for unit in metric.units) for metrics in known.values()
    ]
    lines = [
        _line(run, [found[name].mean_text if name in found else "-" for name in names])
        for run in runs
        if (found := by_run[run.name])
    ]
    caption = "Other metrics on the test cases, mean over the sites; undef.: images or volumes without a value."
    return _Table("Other metrics", caption, titles, lines)


def summary(runs: Sequence[Finished], n_runs: int) -> list[str]:
    """The number of runs, the best and the fairest method if that is shown, and alarms."""
    n_left = n_runs - len(runs)
    left = f"; {n_left} {'has' if n_left == 1 else 'have'} no results" if n_left else ""
    sentences = [f"{n_runs} run{'s' if n_runs > 1 else ''}{left}."]
    for group in (found for on_same in _on_the_same_data(runs) for found in _as_long(on_same)):
        sentences += _comparison(group)
    return [*sentences, *_about_alarms(runs)]


def _comparison(group: Sequence[Finished]) -> list[str]:
    """Which method serves the sites better or more evenly, by the seeds that all methods have."""
    by_method: dict[str, dict[int, Finished]] = {}
    for run in group:
        by_method.setdefault(run.method, {})[run.results["seed"]] = run
    seeds = sorted(set.intersection(*(set(runs) for runs in by_method.values())))
    n_rounds, data_name = group[0].results["rounds"], Path(group[0].results["data"]).name
    about = f"{len(group)} runs of {n_rounds} round{'s' if n_rounds > 1 else ''} on the same {data_name}"
    if len(by_method) < 2:
        return []
    if len(seeds) < 2:
        return [f"{about}: {NO_DIFFERENCE}; a comparison needs at least two seeds that all methods have."]

    def by_seed(key: str) -> dict[str, list[float]]:
        return {name: [runs[seed].results["fairness"][key] for seed in seeds] for name, runs in by_method.items()}

    means, spreads = by_seed("mean"), by_seed("std")
    return [
        f"{about}, {len(seeds)} seeds for each method.",
        said(standing(means), "highest mean Dice", lambda name: f"{fmean(means[name]):.3f}"),
        said(
            standing(spreads, lowest=True), "smallest deviation over sites", lambda name: f"{fmean(spreads[name]):.3f}"
        ),
    ]


def _about_alarms(runs: Sequence[Finished]) -> list[str]:
    alarmed = [run.name for run in runs if run.results["flags"]]
    unwatched = [run.name for run in runs if not run.looked]
    if runs and not alarmed and len(unwatched) == len(runs):
        return [NOT_CHECKED]
    found = [f"Alarms were raised in: {', '.join(alarmed)}." if alarmed else NO_ALARM]
    return [*found, f"No check for cheating was made in: {', '.join(unwatched)}."] if unwatched else found
