"""Commands about one run: run, report and watch."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedce.base.errors import ConfigError
from fedce.base.places import default_out
from fedce.cli.errors import one_line_errors, stopped
from fedce.cli.options import (
    PATH,
    STARTING,
    Experiment,
    changes_of,
    command_line,
    config_argument,
    data_option,
    echo_json,
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
@click.option(
    "--track",
    multiple=True,
    metavar="TRACKER",
    help="Show the rounds elsewhere too: csv, tensorboard:DIR or mlflow:URI; may be given several times.",
)
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
    track: tuple[str, ...],
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
        "tracking": list(track) or None,
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
        from fedce.federation.session import Observer
        from fedce.present.reported import conducted
        from fedce.record.folder import RunFolder

        observer = Observer(display.notice, display.start, display.round)
        how = f"continue with 'fedce run --resume {out}'"
        try:
            result = conducted(
                config,
                out,
                how,
                workers=workers,
                replace=replace,
                more=more,
                observer=observer,
                command=command_line(),
            )
        except KeyboardInterrupt as stop:
            display.stop()
            stopped(stop, how if RunFolder(out).config_file.exists() else "the run had not begun")
        display.finish(result.values, RunFolder(out).config)
    if as_json:
        echo_json({"run": str(out), **result.values})


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


@click.command()
@run_argument
@click.argument("trackers", metavar="[TRACKER]...", nargs=-1)
@one_line_errors
def track(run_folder: Path, trackers: tuple[str, ...]) -> None:
    """Send RUN's rounds, report and model to trackers: csv, tensorboard:DIR, mlflow:URI; default: those of the run.

    A tracker gets only what it lacks, so the command can be repeated.
    """
    from fedce.base.config import parse
    from fedce.record.folder import RunFolder
    from fedce.tracking import absolute, check_installed

    run = RunFolder.open(run_folder)
    wanted = absolute(parse({"tracking": list(trackers)}).tracking) or run.config.tracking
    if not wanted:
        raise ConfigError(f"{run_folder} names no tracker; name one: fedce track {run_folder} tensorboard:DIR")
    check_installed(wanted)
    from fedce.present.reported import track as sent

    for name, n_rounds in sent(run, wanted).items():
        click.echo(f"{name} has {n_rounds} rounds")
