"""Signed notices about a site's key or membership, and the files in which they wait for the next round boundary.

A hospital changes its key (rotate), says that its key may no longer be used (revoke) or leaves the run (withdraw), and
signs this with its key. The coordinator revokes a stolen key or gives a site another key for a lost one (replace), and
signs that. Each notice becomes a line of the ledger, which is signed by the coordinator as every line is.
"""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from time import time
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError

from fedce.base.errors import RunError, first_problem
from fedce.base.files import read_json, write_json
from fedce.base.identity import Identity, coordinator
from fedce.base.keys import checked_key
from fedce.record.entries import Change, SignedNotice
from fedce.record.folder import RunFolder
from fedce.record.forms import Form, Time
from fedce.record.standing import Standings

Kind = Literal["rotate", "replace", "revoke", "withdraw"]
Key = Annotated[str, AfterValidator(checked_key)]
REFUSED = ".refused"
"""The ending of a waiting notice that could not be entered."""


class Notice(Form):
    """What is signed."""

    kind: Kind
    run: Annotated[str, Field(min_length=1, max_length=128)]
    site: str
    key: Key
    """The site's key when the notice was written."""
    new: Key | None = None
    """Its key from now on."""
    time: Time


def notice_of(signed: SignedNotice, where: str) -> Notice:
    try:
        return Notice.model_validate_json(signed.content)
    except ValidationError as error:
        raise RunError(f"{where} holds no notice ({first_problem(error)})") from None


def signed_notice(
    kind: Kind, run: str, site: str, key: str, signer: Identity, new: Identity | str | None = None
) -> SignedNotice:
    """A notice, signed by its author and, if the new key's owner is here, by the new key."""
    public = new.public if isinstance(new, Identity) else new
    content = Notice(kind=kind, run=run, site=site, key=key, new=public, time=time()).model_dump_json()
    proof = new.sign(content) if isinstance(new, Identity) else ""
    return SignedNotice(content=content, signature=signer.sign(content), proof=proof)


def write_notice(path: Path, signed: SignedNotice) -> None:
    write_json(path, signed.model_dump())


def read_notice(path: Path) -> SignedNotice:
    try:
        signed = SignedNotice.model_validate(read_json(path))
    except ValidationError as error:
        raise RunError(f"{path} holds no notice ({first_problem(error)})") from None
    notice_of(signed, str(path))
    return signed


def line_for(signed: SignedNotice, standings: Standings, where: str) -> dict[str, Any]:
    """The ledger's line of a notice; a RunError if the notice may not be entered."""
    notice = notice_of(signed, where)
    by = standings.author_of(notice, signed)
    if isinstance(by, RunError):
        raise RunError(f"{where}: {by}")
    new = {} if notice.new is None else {"new": notice.new}
    about = {"site": notice.site, "key": notice.key, **new, "by": by, "signed": signed.model_dump()}
    return {"kind": notice.kind, "time": time(), **about}


def enter(run: RunFolder, signed: SignedNotice, where: str) -> str:
    """Enter a notice in the ledger: at once if the run is finished, otherwise at the next round boundary.

    Returns what happened, in words.
    """
    if run.ledger().begun.run is None:
        raise RunError(
            f"{run.path} is a run of the local engine, whose sites have no keys; let it go on without a site with "
            "'fedce run --resume RUN --rounds N --set data.sites=[...]'"
        )
    if _is_entered(run, signed):
        return "is in the ledger already"
    standings = Standings.of(run.ledger())
    line_for(signed, standings, where)
    if (identity := coordinator()).public != standings.coordinator:
        raise RunError(
            f"{run.path} belongs to the coordinator {standings.coordinator}; set FEDCE_KEY to that key's file"
        )
    write_notice(run.notices_folder / f"{sha256(signed.content.encode()).hexdigest()[:16]}.json", signed)
    if run.ledger().end is None or run.is_locked:
        # A round that was saved but not yet recorded must come first: only a session knows of it.
        return "enters the ledger at the next round boundary"
    with run.lock():
        run.mend_ledger()
        run.check_chain()
        run.sign = identity.sign
        take_waiting(run, lambda refused: None)
    return "is entered in the ledger"


def take_waiting(run: RunFolder, notice: Callable[[str], None]) -> list[Change]:
    """Enter all waiting notices in the ledger; returns their lines."""
    entered = []
    for path in sorted(run.notices_folder.glob("*.json")):
        try:
            signed = read_notice(path)
            # A kill may come between the line and the removal of the file.
            if not _is_entered(run, signed):
                line = line_for(signed, Standings.of(run.ledger()), path.name)
                run.append(line)
                entered.append(run.ledger().lines[-1])
        except RunError as error:
            notice(f"a notice was not entered in the ledger: {error}")
            path.replace(path.with_suffix(REFUSED))
        else:
            path.unlink()
    return [line for line in entered if isinstance(line, Change)]


def _is_entered(run: RunFolder, signed: SignedNotice) -> bool:
    return any(line.signed.content == signed.content for line in run.ledger().of(Change))
