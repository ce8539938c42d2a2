"""Commands before and around a run: make a consortium's folder, check a machine, deploy, and see how runs stand."""

import sys
from importlib import import_module
from pathlib import Path
from time import time

import click

from fedce.cli.errors import one_line_errors
from fedce.cli.options import (
    PATH,
    STARTING,
    Experiment,
    changes_of,
    default_out,
    echo_json,
    experiment_options,
    json_option,
    out_option,
    rounds_option,
    run_argument,
    scale_option,
    set_option,
)


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
@run_argument
@json_option("the status")
@one_line_errors
def status(run_folder: Path, as_json: bool) -> None:
    """Show how RUN stands now: its round, which sites are connected, for which it waits, and which are late."""
    from fedce.present.status import status_lines, status_of
    from fedce.present.terminal import Terminal
    from fedce.record.folder import RunFolder

    found = status_of(RunFolder.open(run_folder), time())
    if as_json:
        echo_json(found.as_dict())
        return
    terminal = Terminal(quiet=False)
    terminal.show(*status_lines(found, terminal.stdout.width))


@click.command()
@click.argument("folder", metavar="[DIR]", default=Path("runs"), type=PATH)
@json_option("the runs")
@one_line_errors
def runs(folder: Path, as_json: bool) -> None:
    """List the runs in DIR (default: runs), the newest last, each with its state, round, algorithm, data and Dice."""
    from dataclasses import asdict

    from fedce.present.status import runs_tables
    from fedce.present.terminal import Terminal
    from fedce.questions.runs import summaries

    found = summaries(folder)
    if as_json:
        echo_json([asdict(one) for one in found])
        return
    terminal = Terminal(quiet=False)
    terminal.show(*(runs_tables(found, terminal.stdout.width) if found else [f"{folder} holds no run"]))
    for one in found:
        if one.reason:
            terminal.notice(f"{one.name} ({one.state}): {one.reason}")
