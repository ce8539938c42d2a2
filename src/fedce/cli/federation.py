"""Commands before and around a run: make a consortium's folder, check a machine, deploy, and see how runs stand."""

import sys
from importlib import import_module
from pathlib import Path
from time import time
from typing import TYPE_CHECKING

import click

from fedce.base.errors import ConfigError
from fedce.base.places import default_out
from fedce.cli.errors import one_line_errors
from fedce.cli.options import (
    PATH,
    STARTING,
    Experiment,
    changes_of,
    echo_json,
    experiment_options,
    json_option,
    out_option,
    rounds_option,
    run_argument,
    scale_option,
    set_option,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fedce.present.consortium import Engine
    from fedce.present.progress import FindingsDisplay
    from fedce.questions.finding import Finding


@click.command()
@experiment_options(scale=scale_option(), rounds=rounds_option())
@out_option()
@click.option("--gpu", is_flag=True, help="Instead, train tiny models on CPU and GPU, amp on and off, and compare.")
@click.option(
    "--server",
    metavar="HOST:PORT",
    help="Instead, at a site: check everything that joining the federation there needs.",
)
@click.option("--site", metavar="NAME", help="With --server: this site's name.")
@click.option(
    "--ca", type=PATH, metavar="FILE", help="With --server: the authority; default ca.pem beside CONFIG.toml."
)
@click.option("--key", type=PATH, metavar="FILE", help="With --server: the key; default ~/.fedce/sites/NAME/key.pem.")
@json_option("the findings")
@one_line_errors
def doctor(
    experiment: Experiment,
    out: Path | None,
    gpu: bool,
    server: str | None,
    site: str | None,
    ca: Path | None,
    key: Path | None,
    as_json: bool,
) -> None:
    """Check everything that can be known before round 1; exit code 2 if a run would fail.

    At a site, --server checks the way to the coordinator, the site's name and key, versions (versions.txt beside
    CONFIG.toml), disk and data, before anybody waits for the site.
    """
    from fedce.present.progress import FindingsDisplay
    from fedce.questions.finding import verdict_of

    display = FindingsDisplay(quiet=as_json)
    if server is None and (site or ca or key):
        raise ConfigError("--site, --ca and --key go with --server HOST:PORT; add it, or leave them out")
    if server is not None and (gpu or out or site is None):
        raise ConfigError(f"--server {server} is for one site: add --site NAME, and leave out --gpu and --out")
    found = (
        _at_site(experiment, server, site, ca, key, display)
        if server and site
        else _here(experiment, out, gpu, display)
    )
    findings = []
    for finding in found:
        findings.append(finding)
        display.tell(finding)
    verdict = verdict_of(findings)
    display.finish(verdict["ready"], "join" if server else "run")
    if as_json:
        echo_json(verdict)
    if not verdict["ready"]:
        sys.exit(2)


def _here(experiment: Experiment, out: Path | None, gpu: bool, display: "FindingsDisplay") -> "Iterator[Finding]":
    display.notice(STARTING)
    from fedce.questions.doctor import examine
    from fedce.questions.gpu import check_gpu

    if gpu:
        yield from check_gpu()
        return
    config = experiment.planned(display.notice)
    yield from examine(config, out or default_out(config), display.notice)


def _at_site(
    experiment: Experiment, address: str, site: str, ca: Path | None, key: Path | None, display: "FindingsDisplay"
) -> "Iterator[Finding]":
    from fedce.questions.connection import Server, check_connection

    beside = experiment.file.parent if experiment.file else None
    config = experiment.config()
    yield from check_connection(Server.at(address, ca or _there(beside, "ca.pem")), config.engine.name)
    display.notice(STARTING)
    from fedce.questions.at_site import Station, examine_site

    own = key.expanduser() if key else Path.home() / ".fedce" / "sites" / site / "key.pem"
    data = experiment.named["data.source"]
    yield from examine_site(Station(site, own, config, data, _there(beside, "versions.txt")), display.notice)


def _there(folder: Path | None, name: str) -> Path | None:
    """The file in the folder, if both are there."""
    return folder / name if folder is not None and (folder / name).is_file() else None


@click.command()
@click.argument("name", metavar="NAME")
@click.argument("sources", metavar="[DATA|FINGERPRINT.json...]", nargs=-1)
@click.option("--sites", metavar="A,B,C", help="The members' names; default: those of the data or the fingerprints.")
@click.option("--server", metavar="HOST:PORT", required=True, help="Where hospitals will reach the coordinator.")
@click.option("--engine", type=click.Choice(["flower", "nvflare"]), default="flower", help="Default flower.")
@out_option("The new folder; default NAME.")
@one_line_errors
def new(
    name: str, sources: tuple[str, ...], sites: str | None, server: str, engine: "Engine", out: Path | None
) -> None:
    """Write the folder of a consortium: experiment, certificates, who starts what, and a checklist for hospitals.

    With data or fingerprints at hand, the experiment is planned from them, each value with its reason.
    """
    from fedce.present.consortium import Consortium, write_consortium
    from fedce.present.terminal import Terminal
    from fedce.questions.connection import Server

    terminal = Terminal(quiet=False)
    planned, found = _planned(name, sources, terminal.notice) if sources else (None, ())
    members = tuple(site.strip() for site in sites.split(",")) if sites else found
    at = Server.at(server)
    for path in write_consortium(Consortium(name, members, at.host, at.port, engine), out or Path(name), planned):
        click.echo(path)
    terminal.notice(f"begin with {(out or Path(name)) / 'README.md'}, which says who starts what")


def _planned(name: str, sources: tuple[str, ...], notice: "Callable[[str], None]") -> tuple[str, tuple[str, ...]]:
    """The text of a planned experiment, and the names of the sites that it was planned from."""
    from fedce.base.config import written
    from fedce.cli.plan import sent_or_one
    from fedce.learning import planning
    from fedce.learning.planning_cost import cost_of

    sent = sent_or_one(sources)
    known = (
        planning.fingerprints_from(sent) if sent else planning.fingerprints_in({"data": {"source": sources[0]}}, notice)
    )
    tree = written(None, {"data.source": name})
    planned = planning.completed_by(tree, planning.plan_of(known, tree))
    cost = cost_of(planned.config, known)
    head = [*planning.heading(known, cost, planned.config.data), "data.source is only a name here."]
    return planning.as_toml(planned, tree, head) + "\n", tuple(site.site for site in known.sites)


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
