"""Commands about a run's record: ledger, publication, and allocation of money."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fedce.base.errors import ConfigError, RunError
from fedce.base.words import printable
from fedce.cli.errors import one_line_errors
from fedce.cli.options import PATH, echo_json, json_option, out_option, run_argument, trust_code_option

if TYPE_CHECKING:
    from fedce.record.attestations import Attestation
    from fedce.record.folder import RunFolder
    from fedce.record.verify import Verdict


@click.group()
def ledger() -> None:
    """Show a run's record, and check whether it was changed."""


@ledger.command()
@run_argument
@click.option("--coordinator", metavar="KEY", help="The coordinator's public key, if you know it from elsewhere.")
@click.option(
    "--head", metavar="HASH", help="The hash of a ledger line that you noted earlier; the ledger must still contain it."
)
@click.option("--site", "keys", multiple=True, metavar="NAME=KEY", help="A site's public key, such as your own.")
@click.option("--attestation", "attestations", multiple=True, type=PATH, help="An attestation that you kept.")
@click.option("--authority", type=PATH, metavar="PEM", help="Certificates of the authority that stamped attestations.")
@json_option("the verdict")
@one_line_errors
def verify(
    run_folder: Path,
    coordinator: str | None,
    head: str | None,
    keys: tuple[str, ...],
    attestations: tuple[Path, ...],
    authority: Path | None,
    as_json: bool,
) -> None:
    """Check the ledger's chain and signatures, and compute every result again from the recorded values.

    Exit code 0: sound, and signed by a coordinator's key that you gave or hold; 3: consistent, but unsigned, or signed
    by an unknown key; 1: something is wrong; 2: it can't be checked.
    """
    from fedce.base.keys import checked_key
    from fedce.record.folder import RunFolder
    from fedce.record.verify import verify as verified

    if wrong := [pair for pair in keys if "=" not in pair]:
        raise ConfigError(f"--site: expected NAME=KEY, got {wrong[0]!r}")
    pinned = {name: key for name, _, key in (pair.partition("=") for pair in keys)}
    for key in (*pinned.values(), *([coordinator] if coordinator is not None else [])):
        try:
            checked_key(key)
        except ValueError as error:
            raise ConfigError(str(error)) from None
    verdict = verified(RunFolder.open(run_folder), coordinator, head, pinned, attestations, authority)
    _tell("the ledger", verdict, as_json, proves=verdict.proves)
    if verdict.doubt:
        sys.exit(3)


@ledger.command()
@run_argument
@click.option("--site", required=True, metavar="NAME", help="The site whose reports are checked.")
@click.option("--data", required=True, metavar="DIR", help="The site's folder, or one that holds it.")
@click.option(
    "--home",
    type=PATH,
    metavar="DIR",
    help="The site's folder with its key and memory.  [default: ~/.fedce/sites/NAME]",
)
@json_option("the verdict")
@trust_code_option
@one_line_errors
def audit(run_folder: Path, site: str, data: str, home: Path | None, as_json: bool, trust_code: bool) -> None:
    """Check a site's reports on its images, at the site: on the final model, and in the rounds drawn for the audit.

    Exit code 1 if a report is wrong.
    """
    from fedce.questions.audit import audit as audited
    from fedce.record.folder import RunFolder

    verdict = audited(RunFolder.open(run_folder), site, data, home=home, trust_code=trust_code)
    _tell(f"what {site} said", verdict, as_json)


def _tell(what: str, verdict: "Verdict", as_json: bool, **more: str) -> None:
    """Print a verdict for people or programs; exit code 1 if something is wrong."""
    if as_json:
        echo_json({"sound": verdict.sound, **more, **asdict(verdict)})
    else:
        for fact in verdict.facts:
            click.echo(f"checked: {printable(fact)}")
        for reason in verdict.unchecked:
            click.echo(f"not checked: {printable(reason)}")
        for problem in verdict.problems:
            click.echo(f"WRONG: {printable(problem)}")
        if not verdict.sound:
            click.echo(f"{what} is not sound: {len(verdict.problems)} found")
        else:
            click.echo(f"{what} is consistent, but {verdict.doubt}" if verdict.doubt else f"{what} is sound")
    if not verdict.sound:
        sys.exit(1)


@ledger.command()
@run_argument
@click.option(
    "--countersign", "key", type=PATH, metavar="KEY", help="Verify RUN, and sign as the member with this key."
)
@click.option("--add", "copies", multiple=True, type=PATH, metavar="FILE", help="Take over signatures of members.")
@click.option(
    "--timestamp", type=PATH, metavar="FILE", help="Attach the reply of a time-stamping authority (RFC 3161)."
)
@click.option("--attestation", type=PATH, metavar="FILE", help="The attestation; default: the newest in RUN.")
@one_line_errors
def attest(
    run_folder: Path, key: Path | None, copies: tuple[Path, ...], timestamp: Path | None, attestation: Path | None
) -> None:
    """Sign the ledger's head as its coordinator; members countersign it and keep it, so that nothing can be cut off."""
    from fedce.record import attestations
    from fedce.record.folder import RunFolder

    if sum((key is not None, bool(copies), timestamp is not None)) > 1:
        raise ConfigError("give one of --countersign, --add and --timestamp")
    run = RunFolder.open(run_folder)
    if key is None and not copies and timestamp is None:
        if attestation is not None:
            raise ConfigError("--attestation is for --countersign, --add and --timestamp")
        made = attestations.attest(run)
        click.echo(f"{made.path}: {made.head.n_lines} lines, the last has the hash {made.head.head}")
        click.echo(f"for a time stamp (RFC 3161): SHA-256 {made.digest}")
        return
    chosen = attestations.Attestation.read(attestation) if attestation else attestations.newest_in(run)
    if key is not None:
        click.echo(f"{chosen.path}: signed by {_countersign(run, chosen, key)}")
    elif timestamp is not None:
        click.echo(attestations.attach_stamp(chosen, timestamp))
    else:
        click.echo(f"{chosen.path}: {attestations.add_signatures(chosen, copies)} signatures")


def _countersign(run: "RunFolder", chosen: "Attestation", key: Path) -> str:
    """Sign as a member, if nothing is wrong with the ledger; returns the public key."""
    from fedce.base.identity import Identity
    from fedce.record.attestations import countersign
    from fedce.record.verify import verify as verified

    if not key.expanduser().exists():
        raise ConfigError(f"--countersign: there is no file {key}; expected your private key")
    identity = Identity.at(key.expanduser())
    if problems := verified(run, attestations=[chosen.path]).problems:
        raise RunError(f"not signed: {problems[0]}; see 'fedce ledger verify {run.path}'")
    countersign(chosen, identity)
    return identity.public


@ledger.command()
@run_argument
@click.argument("notices", metavar="FILE...", type=PATH, nargs=-1, required=True)
@one_line_errors
def add(run_folder: Path, notices: tuple[Path, ...]) -> None:
    """Enter signed notices of members in the ledger: of a new key, a revoked key or a withdrawal."""
    from fedce.record.folder import RunFolder
    from fedce.record.notices import enter, read_notice

    run = RunFolder.open(run_folder)
    for path in notices:
        click.echo(f"{path} {enter(run, read_notice(path), str(path))}")


@ledger.command()
@run_argument
@one_line_errors
def show(run_folder: Path) -> None:
    """Print the ledger, a line for each entry."""
    from datetime import UTC, datetime

    from fedce.record.folder import RunFolder

    for number, line in enumerate(RunFolder.open(run_folder).ledger(), 1):
        when = datetime.fromtimestamp(line.time, UTC).strftime("%Y-%m-%d %H:%M:%S")
        # Text that a site wrote into a line is made harmless for the terminal.
        click.echo(f"{number:4} {when} {printable(line.kind):6} {printable(line.summary)}")


@click.command()
@run_argument
@click.option(
    "--budget", required=True, metavar="AMOUNT", help="The amount to share among the sites, such as 100000 or 2500.50."
)
@click.option("--floor", default="0%", metavar="SHARE", help="The least that any site gets, such as 2%.")
@click.option("--cap", default="100%", metavar="SHARE", help="The most that any site gets, such as 40%.")
@click.option("--rule", default="worth", metavar="RULE", help="worth (default), contribution, samples, equal, mix.")
@out_option("The page; default RUN/allocation.html.", metavar="FILE")
@click.option("--yes", is_flag=True, help="Allocate even if the shares are too uncertain to pay by them.")
@json_option("the amounts")
@one_line_errors
def allocate(
    run_folder: Path, budget: str, floor: str, cap: str, rule: str, out: Path | None, yes: bool, as_json: bool
) -> None:
    """Share a budget by what each site gives to the others, exactly to the cent, and compare with other rules."""
    from fedce.present.pages.allocation import override, write_allocation
    from fedce.present.sentences import in_doubt
    from fedce.present.tables import allocation_tables
    from fedce.present.terminal import Terminal
    from fedce.questions import allocation
    from fedce.record.folder import RunFolder
    from fedce.record.verify import checked

    allocation.check_rule(rule)
    run = RunFolder.open(run_folder)
    found = checked(run)
    allocation.check_measured(rule, found.results)
    payouts = allocation.allocate(found.results, budget, floor, cap)
    doubts = allocation.doubts_of(rule, found.results)
    allocation.check_doubts(rule, doubts, yes)
    page = write_allocation(run, found, payouts, rule, (budget, floor, cap), doubts, out)
    for sentence in (*override(doubts), *in_doubt(found.doubt)):
        click.echo(sentence, err=True)
    if as_json:
        echo_json({name: asdict(payout) for name, payout in payouts.items()}, default=str)
        return
    terminal = Terminal(quiet=False)
    terminal.show(*allocation_tables(payouts, rule, terminal.stdout.width))
    click.echo(page)


@click.command()
@run_argument
@click.option(
    "--site", metavar="NAME", help="Write one member's page: its own share and interval, and nothing about other sites."
)
@click.option(
    "--epsilon", type=float, metavar="E", help="Print all shares with noise, so that they are differentially private."
)
@out_option("The page; default RUN/member-NAME.html.", metavar="FILE")
@json_option("it")
@one_line_errors
def publish(run_folder: Path, site: str | None, epsilon: float | None, out: Path | None, as_json: bool) -> None:
    """Publish results outside a consortium: one member's own view, or all shares with differential privacy."""
    from fedce.record.folder import RunFolder

    if (site is None) == (epsilon is None):
        raise ConfigError("give either --site NAME or --epsilon E")
    run = RunFolder.open(run_folder)
    if site is not None:
        _publish_member(run, site, out, as_json)
        return
    assert epsilon is not None
    if out is not None:
        raise ConfigError("--out is for --site; shares with noise are printed, and kept in the ledger")
    _publish_shares(run, epsilon, as_json)


def _publish_member(run: "RunFolder", site: str, out: Path | None, as_json: bool) -> None:
    from fedce.present.pages.member import write_member
    from fedce.record.publish import member_view

    if as_json:
        echo_json(member_view(run, site))
    else:
        click.echo(write_member(run, site, out))


def _publish_shares(run: "RunFolder", epsilon: float, as_json: bool) -> None:
    from fedce.record import publish as publishing

    found, spent = publishing.publish(run, epsilon)
    if as_json:
        echo_json({**asdict(found), "scale": found.scale, "epsilon_so_far": spent})
        return
    for name, share in found.shares.items():
        click.echo(f"{printable(name)}: {100 * share:.1f} %")
    click.echo(
        f"each share has noise of {100 * found.scale:.1f} points, epsilon {epsilon:g} for one validation case; "
        f"all publications of this run together have epsilon {spent:g}"
    )
    if found.scale > 1 / len(found.shares):
        click.echo(
            "the noise is larger than an equal share: there are too few validation cases for shares with noise",
            err=True,
        )
