"""Commands about one run: doctor, run, deploy, report and watch."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedce.base.errors import ConfigError, EngineError
from fedce.cli.errors import one_line_errors, stopped
from fedce.cli.options import (
    PATH,
    STARTING,
    Experiment,
    changes_of,
    command_line,
    config_argument,
    data_option,
    default_out,
    echo_json,
    experiment_options,
    json_option,
    out_option,
    replace_option,
    rounds_option,
    run_argument,
    scale_option,
    set_option,
)

if TYPE_CHECKING:
    from fedce.base.config import Config
    from fedce.present.progress import RunDisplay


@click.command()
@config_argument
@click.option(
    "--algorithm",
    metavar="NAME",
    help="fedce (default), fedce-sum, fedavg, uniform, standalone, qfedavg, ...; README.md lists all.",
)
@data_option("fundus6, prostate6, volume6, or a folder DIR/<site>/{images,masks}/*.png.")
@scale_option("Size of fundus6, prostate6 and volume6: tiny, demo or paper.")
@rounds_option("Communication rounds.")
@click.option("--seed", type=int, metavar="N", help="Seed of the initial weights and of local training.")
@click.option("--workers", type=int, metavar="N", help="Worker processes; 0 (default): one for each core.")
@click.option("--engine", metavar="NAME", help="local (default), flower or nvflare; all give the same numbers.")
@click.option("--alone", is_flag=True, help="Also train each site alone, to see what it gains by the federation.")
@out_option("Run folder; default runs/DATA-ALGORITHM-SEED.")
@set_option("Any key of the file: --set train.lr=3e-4.")
@click.option(
    "--resume",
    type=PATH,
    metavar="DIR",
    help="Continue the run in DIR; with --rounds above its own, a finished run goes on.",
)
@replace_option("Replace a run that is already in the run folder.")
@json_option("the results")
@one_line_errors
def run(
    config_file: Path | None,
    algorithm: str | None,
    data: str | None,
    scale: str | None,
    rounds: int | None,
    seed: int | None,
    workers: int | None,
    engine: str | None,
    alone: bool,
    out: Path | None,
    assignments: tuple[str, ...],
    resume: Path | None,
    replace: bool,
    as_json: bool,
) -> None:
    """Train one model across sites, and record what each site contributed."""
    from fedce.base.tables import BUILT_IN
    from fedce.present.terminal import Terminal

    named = {
        "algorithm.name": algorithm,
        "data.source": data,
        "data.scale": scale,
        "rounds": rounds,
        "seed": seed,
        "engine.workers": workers,
        "engine.name": engine,
        "alone": alone or None,
    }
    changes = changes_of(named, assignments)
    if resume is not None:
        more = {} if rounds is None else {key: value for key, value in changes.items() if key in GOES_ON_WITH}
        refused = [key for key in changes if key != "engine.workers" and key not in more]
        refused += ["--out"] * (out is not None) + ["--replace"] * replace
        if config_file or refused:
            what = refused[0] if refused else config_file
            raise ConfigError(
                f"--resume continues a run as it was started; leave out {what} (--workers may change; a finished run "
                "goes on with --rounds and perhaps --set data.sites)"
            )
        _conduct(None, resume, workers, replace=False, as_json=as_json, more=more)
        return
    if config_file is not None and config_file.is_dir():
        raise ConfigError(
            f"{config_file} is a folder: --data {config_file} if it holds sites, --resume if it holds a run"
        )
    experiment = Experiment(config_file, named, assignments)
    config = experiment.planned(Terminal(quiet=as_json).notice)
    if scale is not None and config.data.source not in BUILT_IN and Path(config.data.source).exists():
        raise ConfigError(f"--scale is for {', '.join(BUILT_IN)}; images of a folder are resized by --set data.size=N")
    _conduct(config, out or default_out(config), None, replace=replace, as_json=as_json)


GOES_ON_WITH = ("rounds", "data.sites", "engine.members")
"""Keys that may change when a finished run goes on."""


def _conduct(
    config: "Config | None",
    out: Path,
    workers: int | None,
    *,
    replace: bool,
    as_json: bool,
    more: Mapping[str, Any] | None = None,
) -> None:
    """Run an experiment or, without one, resume the run in `out`; shows progress, and the results at the end."""
    from fedce.present.progress import RunDisplay

    with RunDisplay(quiet=as_json, out=out) as display:
        display.notice(STARTING)
        from fedce.engines.starting import conduct
        from fedce.federation.session import Observer
        from fedce.present.reported import complete
        from fedce.record.folder import RunFolder

        observer = Observer(display.notice, display.start, display.round)
        with _told_how_to_go_on(display, out):
            how: dict[str, Any] = {"workers": workers, "replace": replace, "more": more}
            result = conduct(config, out, observer=observer, command=command_line(), **how)
            complete(result)
        display.finish(result.values, RunFolder(out).config)
    if as_json:
        echo_json({"run": str(out), **result.values})


@contextmanager
def _told_how_to_go_on(display: "RunDisplay", out: Path) -> Iterator[None]:
    """If a run ends early, its last line says how to continue it."""
    from fedce.base.files import write_bytes
    from fedce.record.folder import RunFolder

    run_folder = RunFolder(out)
    try:
        yield
    except EngineError as error:
        hint = f"; continue with 'fedce run --resume {out}'"
        if error.trace:
            write_bytes(run_folder.log_file, error.trace.encode())
            hint = f" (details in {run_folder.log_file}){hint}"
        raise EngineError(f"{error}{hint}") from None
    except KeyboardInterrupt as stop:
        display.stop()
        begun = run_folder.config_file.exists()
        stopped(stop, f"continue with 'fedce run --resume {out}'" if begun else "the run had not begun")


@click.command()
@experiment_options(scale=scale_option(), rounds=rounds_option())
@out_option()
@click.option("--gpu", is_flag=True, help="Instead, train tiny models on CPU and GPU, amp on and off, and compare.")
@json_option("the findings")
@one_line_errors
def doctor(experiment: Experiment, out: Path | None, gpu: bool, as_json: bool) -> None:
    """Check everything that can be known before round 1; exit code 2 if a run would fail."""
    from fedce.present.progress import FindingsDisplay

    display = FindingsDisplay(quiet=as_json)
    display.notice(STARTING)
    from fedce.questions.doctor import examine, verdict_of
    from fedce.questions.gpu import check_gpu

    if gpu:
        found = check_gpu()
    else:
        config = experiment.planned(display.notice)
        found = examine(config, out or default_out(config), display.notice)
    findings = []
    for finding in found:
        findings.append(finding)
        display.tell(finding)
    verdict = verdict_of(findings)
    display.finish(verdict["ready"])
    if as_json:
        echo_json(verdict)
    if not verdict["ready"]:
        sys.exit(2)


@click.command()
@click.argument("engine", type=click.Choice(["flower", "nvflare"]))
@click.argument("config_file", metavar="CONFIG.toml", type=PATH)
@out_option("The new folder to write.", required=True)
@set_option()
@one_line_errors
def deploy(engine: str, config_file: Path, out: Path, assignments: tuple[str, ...]) -> None:
    """Write a Flower app or an NVFlare job for a federation of real hospitals."""
    from fedce.base.config import load

    config = load(config_file, {**changes_of({}, assignments), "engine.name": engine})
    click.echo(import_module(f"fedce.engines.{engine}").deploy(config, out))


@click.command()
@click.argument("folder", metavar="RUN|STUDY|FOLDER", type=PATH)
@click.option("--no-examples", is_flag=True, help="Leave out the example images, so that the page shows no patients.")
@one_line_errors
def report(folder: Path, no_examples: bool) -> None:
    """Write report.html of a run or a study again, or of all runs in a folder side by side."""
    from fedce.present.pages.folder import write_folder_report
    from fedce.present.pages.run import write_report
    from fedce.present.pages.study import write_study_report
    from fedce.record.folder import RunFolder

    if folder.is_dir() and not RunFolder(folder).config_file.exists():
        if no_examples:
            raise ConfigError(f"{folder} is not a run; --no-examples is for the report of one run")
        write = write_study_report if (folder / "study.json").exists() else write_folder_report
        click.echo(write(folder))
        return
    click.echo(write_report(RunFolder.open(folder), examples=not no_examples))


@click.command()
@run_argument
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="Port on this machine; 0 (default): a free one.",
)
@click.option("--no-browser", is_flag=True, help="Print the address and open nothing.")
@one_line_errors
def watch(run_folder: Path, port: int, no_browser: bool) -> None:
    """Show RUN on a local page that updates itself, during the run and after; Ctrl-C ends the page, not the run."""
    from fedce.present.watch import Watch, WatchServer, open_browser
    from fedce.record.folder import RunFolder

    # Ctrl-C is the normal end of the page, so it is not an error.
    with suppress(KeyboardInterrupt), WatchServer(Watch(RunFolder.open(run_folder)), port) as server:
        click.echo(f"watching {run_folder} at {server.address} (Ctrl-C ends it)")
        if not no_browser:
            open_browser(server.address)
        server.serve_forever()
