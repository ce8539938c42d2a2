"""An experiment file made from the data, or from the fingerprints that hospitals sent."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from fedce.base.errors import ConfigError
from fedce.cli.errors import one_line_errors
from fedce.cli.options import (
    PATH,
    changes_of,
    data_option,
    echo_json,
    json_option,
    out_option,
    scale_option,
    set_option,
)


@click.command()
@click.argument("sources", metavar="DATA|CONFIG.toml|FINGERPRINT.json...", nargs=-1, required=True)
@data_option("The data, if CONFIG.toml does not state it.", name="data")
@scale_option()
@set_option("Any key of the file, which the plan then leaves as it is: --set data.classes='{disc=[1]}'.")
@out_option("The experiment file to write; without it the plan is printed.", metavar="FILE")
@click.option("--fingerprint", type=PATH, metavar="FILE", help="Write the fingerprint of --site alone, to be sent.")
@click.option("--site", metavar="NAME", help="Whose fingerprint, where DATA holds several sites.")
@json_option("the plan")
@one_line_errors
def plan(
    sources: tuple[str, ...],
    data: str | None,
    scale: str | None,
    assignments: tuple[str, ...],
    out: Path | None,
    fingerprint: Path | None,
    site: str | None,
    as_json: bool,
) -> None:
    """Make an experiment from the data: image size, network, norm, loss, rounds and so on, each with its reason.

    A hospital whose images must not leave sends its fingerprint: fedce plan DATA --site NAME --fingerprint NAME.json;
    the coordinator plans from all of them: fedce plan *.json --out plan.toml. With CONFIG.toml, the plan leaves the
    keys of that file as they are.
    """
    from fedce.base.config import written
    from fedce.base.files import write_sealed
    from fedce.base.recipes import PLAN
    from fedce.present.terminal import Terminal

    terminal = Terminal(quiet=as_json)
    sent = sent_or_one(sources, "one folder of sites, one experiment file")
    if out is not None and out.exists():
        raise ConfigError(f"--out: {out} exists already; choose another name, or delete it")
    file = Path(sources[0]) if sources[0].endswith(".toml") and not Path(sources[0]).is_dir() else None
    if data is not None and file is None:
        raise ConfigError(f"--data {data} goes with an experiment file, but {sources[0]} is data; leave out one")
    source = data if file else None if sent else sources[0]
    tree = written(file, changes_of({"data.source": source, "data.scale": scale}, assignments))
    if (recipe := tree.get("recipe", PLAN)) != PLAN:
        raise ConfigError(
            f'{file or "the command line"} states recipe = {recipe!r}; leave it out, or state recipe = "plan"'
        )
    if fingerprint is not None:
        if sent:
            raise ConfigError("--fingerprint is made from images; give a folder of sites instead of fingerprints")
        write_sealed(fingerprint, _fingerprint(tree, site, terminal.notice))
        click.echo(fingerprint)
        return
    from fedce.learning.planning import fingerprints_from, fingerprints_in
    from fedce.questions.plan import planned_for

    found = planned_for(tree, fingerprints_from(sent) if sent else fingerprints_in(tree, terminal.notice))
    if as_json:
        echo_json({"plan": found.records, "cost": vars(found.cost)})
    if out is not None:
        terminal.notice(f"written to {found.save(out)}; train with 'fedce run {out}'")
    elif not as_json:
        click.echo(found.toml, nl=False)


def sent_or_one(sources: Sequence[str], one: str = "one folder of sites") -> list[Path]:
    """The fingerprints among the sources; none if there is one folder of sites, or a built-in federation."""
    sent = [Path(source) for source in sources if source.endswith(".json")]
    if (sent and len(sent) != len(sources)) or (len(sources) > 1 and not sent):
        raise ConfigError(f"expected {one}, or fingerprints (.json) alone, got {', '.join(sources)}")
    return sent


def _fingerprint(tree: dict[str, Any], site: str | None, notice: Callable[[str], None]) -> dict[str, Any]:
    from fedce.base.config import parse
    from fedce.base.recipes import SMALL
    from fedce.data.fingerprint import look_at
    from fedce.data.sites import site_names

    config = parse({**tree, "recipe": SMALL}).data
    names = site_names(config)
    if site is None and len(names) > 1:
        raise ConfigError(f"--fingerprint: of which site? Add --site, one of {', '.join(names)}")
    (only,) = look_at(config, notice, site or names[0]).sites
    told: dict[str, Any] = json.loads(only.model_dump_json())
    return told
