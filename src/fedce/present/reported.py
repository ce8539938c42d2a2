"""Trainings that end with a report: a session trains and records, and this module writes the page."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ParamSpec

from fedce.base.config import Config
from fedce.base.errors import EngineError, RunError
from fedce.base.files import write_bytes
from fedce.engines import starting
from fedce.federation.session import Observer, Result
from fedce.present.pages.run import report_page, write_report
from fedce.record.folder import RunFolder
from fedce.tracking.following import Tracking, send

P = ParamSpec("P")


def with_report(train: Callable[P, Result]) -> Callable[P, Result]:
    """The same training, followed by its report."""

    @wraps(train)
    def reported(*args: P.args, **kwargs: P.kwargs) -> Result:
        result = train(*args, **kwargs)
        observer = kwargs.get("observer")
        complete(result, observer if isinstance(observer, Observer) else None)
        return result

    return reported


def complete(result: Result, observer: Observer | None = None) -> None:
    """Write the report of a finished run that has none, for example if it was killed before the report; the trackers
    get it as well."""
    run = RunFolder(result.folder)
    if run.report_file.exists():
        return
    with run.lock():
        write_report(run)
        if trackers := run.config.tracking:
            tracking = Tracking(run, trackers, (observer or Observer()).notice, result.failed_trackers)
            with tracking, files_to_show(run) as files:
                tracking.finish(result.values, files)


def track(run: RunFolder, trackers: Sequence[str]) -> dict[str, int]:
    """Send a run to these trackers, as far as it has come; returns the number of rounds that each of them holds."""
    if not run.rounds():
        raise RunError(f"{run.path} has no rounds yet")
    with run.lock():
        if not run.results_file.exists():
            return {name: send(run, name, None, {}) for name in trackers}
        if not run.report_file.exists():
            write_report(run)
        with files_to_show(run) as files:
            return {name: send(run, name, run.results, files) for name in trackers}


@contextmanager
def files_to_show(run: RunFolder) -> Iterator[dict[str, Path]]:
    """The files that trackers get: the models, and a report that shows no patient."""
    files = [run.model_file, run.best_file]
    if not run.model_file.exists():
        files += sorted((run.path / "models").glob("*.safetensors"))
    shown = {str(file.relative_to(run.path)): file for file in files if file.exists()}
    with TemporaryDirectory() as folder:
        report = run.report_file
        if run.examples_file.exists():  # A tracker may be open to more people than the run folder.
            report = Path(folder) / report.name
            write_bytes(report, report_page(run, examples=False))
        yield {run.report_file.name: report, **shown}


def conducted(config: Config | None, out: Path, how: str, **options: Any) -> Result:
    """Conduct a run to its report; `how` tells in an error how to continue the run."""
    try:
        result = starting.conduct(config, out, **options)
    except EngineError as error:
        hint = f"; {how}"
        if error.trace:
            log = RunFolder(out).log_file
            write_bytes(log, error.trace.encode())
            hint = f" (details in {log}){hint}"
        raise EngineError(f"{error}{hint}") from None
    complete(result, options.get("observer"))
    return result


coordinate = with_report(starting.coordinate)
