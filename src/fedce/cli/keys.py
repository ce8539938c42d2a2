"""Commands about keys and membership: make, show, rotate, revoke and replace keys, and withdraw from a run."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fedce.base.errors import ConfigError
from fedce.cli.errors import one_line_errors
from fedce.cli.options import PATH, Option, out_option, run_argument

if TYPE_CHECKING:
    from fedce.base.identity import Identity
    from fedce.record.notices import Kind

RUN_NAME = re.compile("[0-9a-f]{1,128}")


def site_option(help: str) -> Option:
    return click.option("--site", required=True, metavar="NAME", help=help)


own_site = site_option("Your site's name in the run.")
run_name = click.option(
    "--run",
    "run_name",
    required=True,
    metavar="ID",
    help="The run's name: a folder of this name is in your site's folder.",
)
notice_out = out_option("The signed notice, for the coordinator.", metavar="FILE", required=True)


@click.group()
def keys() -> None:
    """Make and show keys: a site's key proves its identity, signs what it sends, and never leaves the site."""


@keys.command()
@click.argument("path", metavar="FILE", type=PATH)
@one_line_errors
def new(path: Path) -> None:
    """Make a private key that only its owner can read, and print its public key for the coordinator."""
    from fedce.base.identity import Identity

    path = path.expanduser()
    if path.exists():
        raise ConfigError(f"{path} exists; 'fedce keys show {path}' prints its public key")
    click.echo(Identity.at(path).public)


@keys.command("show")
@click.argument("path", metavar="[FILE]", required=False, type=PATH)
@one_line_errors
def show_key(path: Path | None) -> None:
    """Print the public key of a private key; without FILE, that of this machine's coordinator ($FEDCE_KEY)."""
    from fedce.base.identity import Identity, coordinator_file

    path = path.expanduser() if path else coordinator_file()
    if not path.exists():
        raise ConfigError(f"{path} does not exist; 'fedce keys new {path}' makes a key")
    click.echo(Identity.at(path).public)


@keys.command()
@click.argument("path", metavar="FILE", type=PATH)
@own_site
@run_name
@click.option("--new", "new_path", type=PATH, metavar="FILE", help="The new key; default key-next.pem beside FILE.")
@notice_out
@one_line_errors
def rotate(path: Path, site: str, run_name: str, new_path: Path | None, out: Path) -> None:
    """Change your site's key FILE to a new key, which is made unless it exists; both keys sign the notice."""
    from fedce.base.identity import Identity

    own = _existing(path)
    new = Identity.at(new_path.expanduser() if new_path else path.expanduser().with_name("key-next.pem"))
    _write("rotate", run_name, site, own, out, new)
    click.echo(new.public)


@keys.command()
@click.argument("path", metavar="FILE|RUN", type=PATH)
@site_option("The site whose key is revoked.")
@click.option("--run", "run_name", metavar="ID", help="With FILE: the run's name, as in rotate.")
@out_option("With FILE: the signed notice, for the coordinator.", metavar="FILE")
@one_line_errors
def revoke(path: Path, site: str, run_name: str | None, out: Path | None) -> None:
    """Say that a key may no longer be used: your site's key FILE or, as the coordinator of RUN, the key of a site."""
    if path.is_dir():
        if run_name is not None or out is not None:
            raise ConfigError("--run and --out are for a site's key FILE; the coordinator's notice is entered in RUN")
        _enter("revoke", path, site)
        return
    if run_name is None or out is None:
        raise ConfigError("a site's key is revoked with --run and --out; as the coordinator, name the run folder")
    _write("revoke", run_name, site, _existing(path), out)


@keys.command()
@run_argument
@site_option("The site whose key is lost.")
@click.option("--new", required=True, metavar="KEY", help="The site's new public key.")
@one_line_errors
def replace(run_folder: Path, site: str, new: str) -> None:
    """As the coordinator of RUN, give a site another key in place of a lost or revoked one; the ledger says so."""
    from fedce.base.keys import checked_key

    try:
        checked_key(new)
    except ValueError as error:
        raise ConfigError(f"--new: {error}") from None
    _enter("replace", run_folder, site, new)


@click.command()
@click.argument("path", metavar="KEY", type=PATH)
@own_site
@run_name
@notice_out
@one_line_errors
def withdraw(path: Path, site: str, run_name: str, out: Path) -> None:
    """Withdraw your site from a run: sign with your key that none of its later answers may be used."""
    _write("withdraw", run_name, site, _existing(path), out)


def _existing(path: Path) -> "Identity":
    from fedce.base.identity import Identity

    if not path.expanduser().exists():
        raise ConfigError(f"{path} does not exist; expected your site's private key")
    return Identity.at(path.expanduser())


def _write(kind: "Kind", run: str, site: str, own: "Identity", out: Path, new: "Identity | None" = None) -> None:
    from fedce.record.notices import signed_notice, write_notice

    if RUN_NAME.fullmatch(run) is None:
        raise ConfigError(f"--run: expected the run's name of digits and letters a to f, got {run!r}")
    if out.exists():
        raise ConfigError(f"{out} exists; choose another --out")
    write_notice(out, signed_notice(kind, run, site, own.public, own, new))
    click.echo(f"{out}: send it to the coordinator, who enters it with 'fedce ledger add'")


def _enter(kind: "Kind", run_folder: Path, site: str, new: str | None = None) -> None:
    """Enter a notice of the coordinator's own."""
    from fedce.base.identity import coordinator
    from fedce.record.folder import RunFolder
    from fedce.record.notices import enter, signed_notice
    from fedce.record.standing import Standings

    run = RunFolder.open(run_folder)
    standings = Standings.of(run.ledger())
    if site not in standings.by_site:
        raise ConfigError(f"no site {site!r} has joined {run.path} with a key")
    notice = signed_notice(kind, standings.run, site, standings.by_site[site].key, coordinator(), new)
    click.echo(f"the notice {enter(run, notice, f'{kind} {site}')}")
