"""Commands for data before training: prepare public data sets, and inspect the sites' data."""

from pathlib import Path
from typing import Literal

import click

from fedce.base.errors import ConfigError
from fedce.cli.errors import one_line_errors
from fedce.cli.options import PATH, Experiment, data_option, echo_json, json_option, out_option, set_option

UNMATCHED_SHOWN = 5


@click.group()
def data() -> None:
    """Prepare public data sets, and inspect data before training."""


@data.command()
@click.argument("task", type=click.Choice(["prostate", "fundus"]))
@click.option("--source", type=PATH, metavar="DIR", help="The folder with the downloaded data sets.")
@out_option("Where the sites go; default data/TASK.")
@click.option(
    "--split-views", is_flag=True, help="fundus: each view of RIM-ONE's stereo photographs becomes an image of its own."
)
@click.option(
    "--list", "only_list", is_flag=True, help="Show what to download and from where; so does leaving out --source."
)
@one_line_errors
def prepare(
    task: Literal["prostate", "fundus"], source: Path | None, out: Path | None, split_views: bool, only_list: bool
) -> None:
    """Turn the published prostate or fundus data sets into a folder of sites; called again, it continues."""
    from fedce.data import prepare as preparing
    from fedce.present.tables import prepared_table
    from fedce.present.terminal import Terminal

    if split_views and task != "fundus":
        raise ConfigError(f"--split-views is for fundus, whose RIM-ONE has stereo photographs; {task} has none")
    if source is None or only_list:
        click.echo(preparing.guide(task))
        return
    place = out or Path("data") / task
    terminal = Terminal(quiet=False)
    summary = preparing.prepare(task, source, place, terminal.notice, split_views)
    terminal.show(prepared_table(summary))
    for site in summary.sites:
        for line in (*site.left_out, *site.unmatched[:UNMATCHED_SHOWN]):
            terminal.notice(f"{site.source.site} left out {line}")
        if (more := len(site.unmatched) - UNMATCHED_SHOWN) > 0:
            terminal.notice(f"{site.source.site} left out {more} more; all are in {place / 'prepared.json'}")
    terminal.notice(f"written to {place}; train with 'fedce run {place / 'experiment.toml'}'")


@data.command()
@click.argument("target", metavar="DIR|NAME|CONFIG.toml", type=PATH)
@data_option("The data, as in fedce run, if CONFIG.toml does not state it.", name="source")
@out_option("Default runs/inspect-DATA.html.", metavar="FILE")
@set_option()
@json_option("the numbers")
@one_line_errors
def inspect(target: Path, source: str | None, out: Path | None, assignments: tuple[str, ...], as_json: bool) -> None:
    """Show each site's images, sizes, grey values, masks and near-duplicates, and how different the sites are."""
    from fedce.present.tables import inspection_table
    from fedce.present.terminal import Terminal

    is_file = target.suffix == ".toml" and not target.is_dir()
    if source is not None and not is_file:
        raise ConfigError(f"--data {source} goes with an experiment file, but {target} is data; leave out one")
    if out is not None and out.is_dir():
        raise ConfigError(f"--out: {out} is a folder; give a file such as {out / 'data.html'}")
    named = {"data.source": source if is_file else str(target)}
    config = Experiment(target if is_file else None, named, assignments).unplanned()
    from fedce.data import load_sites
    from fedce.data.inspection import inspect_sites
    from fedce.data.remarks import summary
    from fedce.present.pages.inspection import source_name, write_inspection

    terminal = Terminal(quiet=as_json)
    sites = load_sites(config.data, notify=terminal.notice)
    found = inspect_sites(sites)
    place = write_inspection(sites, found, out or Path("runs") / f"inspect-{source_name(sites)}.html")
    terminal.show(inspection_table(found), *summary(found))
    terminal.notice(f"written to {place}")
    if as_json:
        echo_json({"page": str(place), **found.as_dict()})
