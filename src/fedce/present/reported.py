"""Trainings that end with a report: a session trains and records, and this module writes the page."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

from fedce.base.config import Config
from fedce.base.errors import EngineError
from fedce.base.files import write_bytes
from fedce.engines import starting
from fedce.federation.session import Result
from fedce.present.pages.run import write_report
from fedce.record.folder import RunFolder

P = ParamSpec("P")


def with_report(train: Callable[P, Result]) -> Callable[P, Result]:
    """The same training, followed by its report."""

    @wraps(train)
    def reported(*args: P.args, **kwargs: P.kwargs) -> Result:
        result = train(*args, **kwargs)
        complete(result)
        return result

    return reported


def complete(result: Result) -> None:
    """Write the report of a finished run that has none, for example if it was killed before the report."""
    run = RunFolder(result.folder)
    if not run.report_file.exists():
        with run.lock():
            write_report(run)


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
    complete(result)
    return result


coordinate = with_report(starting.coordinate)
