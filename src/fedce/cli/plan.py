"""An experiment file made from the data, or from the fingerprints that hospitals sent."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from fedce.base.errors import ConfigError
from fedce.cli.errors import one_line_errors
from fedce.cli.options import PATH, changes_of, echo_json, json_option, out_option, scale_option, set_option


@click.command()
@click.argument("sources", metavar="DATA|FINGERPRINT.json...", nargs=-1, required=True)
@scale_option()
@set_option("Any key of the file, which the plan then leaves as it is: --set data.classes='{disc=[1]}'.")
@out_option("The experiment file to write; without it the plan is printed.", metavar="FILE")
@click.option("--fingerprint", type=PATH, metavar="FILE", help="Write the fingerprint of --site alone, to be sent.")
@click.option("--site", metavar="NAME", help="Whose fingerprint, where DATA holds several sites.")
@json_option("the plan")
@one_line_errors
def plan(
    sources: tuple[str, ...],
    scale: str | None,
    assignments: tuple[str, ...],
    out: Path | None,
    fingerprint: Path | None,
    site: str | None,
    as_json: bool,
) -> None:
    """Make an experiment from the data: image size, network, norm, loss, rounds and so on, each with its reason.

    A hospital whose images must not leave sends its fingerprint: fedce plan DATA --site NAME --fingerprint NAME.json;
    the coordinator plans from all of them: fedce plan *.json --out plan.toml.
    """
    from fedce.base.config import written
    from fedce.base.files import write_bytes, write_sealed
    from fedce.present.terminal import Terminal

    terminal = Terminal(quiet=as_json)
    sent = [Path(source) for source in sources if source.endswith(".json")]
    if (sent and len(sent) != len(sources)) or (len(sources) > 1 and not sent):
        raise ConfigError(f"expected one folder of sites, or fingerprints (.json) alone, got {', '.join(sources)}")
    if out is not None and out.exists():
        raise ConfigError(f"--out: {out} exists already; choose another name, or delete it")
    changes = changes_of({"data.scale": scale}, assignments)
    tree = written(None, changes if sent else {"data.source": sources[0], **changes})
    if fingerprint is not None:
        if sent:
            raise ConfigError("--fingerprint is made from images; give a folder of sites instead of fingerprints")
        found = _fingerprint(tree, site, terminal.notice)
        write_sealed(fingerprint, found)
        click.echo(fingerprint)
        return
    from fedce.learning import planning

    known = planning.fingerprints_from(sent) if sent else planning.fingerprints_in(tree, terminal.notice)
    planned = planning.completed_by(tree, planning.plan_of(known, tree))
    cost = planning.cost_of(planned.config, known)
    if as_json:
        echo_json({"plan": [vars(one) for one in planned.chosen], "cost": vars(cost)})
    text = planning.as_toml(planned, tree, planning.heading(known, cost, planned.config.data))
    if out is not None:
        write_bytes(out, text.encode())
        terminal.notice(f"written to {out}; train with 'fedce run {out}'")
    elif not as_json:
        click.echo(text, nl=False)


def _fingerprint(tree: dict[str, Any], site: str | None, notice: Callable[[str], None]) -> dict[str, Any]:
    from fedce.base.config import parse
    from fedce.data.fingerprint import look_at
    from fedce.data.sites import site_names

    config = parse(tree).data
    names = site_names(config)
    if site is None and len(names) > 1:
        raise ConfigError(f"--fingerprint: of which site? Add --site, one of {', '.join(names)}")
    (only,) = look_at(config, notice, site or names[0]).sites
    told: dict[str, Any] = json.loads(only.model_dump_json())
    return told
