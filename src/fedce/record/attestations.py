"""The head of a ledger, attested outside the ledger: signed by the coordinator, countersigned by members, time-stamped.

An attestation is an in-toto statement in a DSSE envelope, in a file of its own. A member who keeps it can show later
that lines which were there are gone or changed; lines that were added since are no contradiction.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from fedce import __version__
from fedce.base.errors import RunError, first_problem
from fedce.base.files import write_bytes
from fedce.base.identity import Identity, coordinator
from fedce.record.checks import Part
from fedce.record.entries import Session
from fedce.record.envelope import IN_TOTO, Envelope
from fedce.record.folder import RunFolder
from fedce.record.forms import Count, Form
from fedce.record.stamps import check_is_for, checked_time

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "urn:fedce:ledger-head:v1"
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class _Subject(Form):
    name: str
    digest: Mapping[Literal["sha256"], Sha256]


class Head(Form):
    """What is attested: that a ledger had these lines at a time."""

    run: str | None
    """The run's name among sites on other machines; None on the local engine."""
    start: Sha256
    """The hash of the first line, which no other run has."""
    n_lines: Annotated[Count, Field(ge=1)]
    head: Sha256
    """The hash of the last line."""
    n_rounds: Count
    coordinator: str
    time: str
    """By the coordinator's clock."""
    versions: Mapping[str, str]
    """The versions that the run was last started or resumed with."""
    fedce: str
    """The version that wrote the attestation."""


class Statement(Form):
    kind: Annotated[Literal["https://in-toto.io/Statement/v1"], Field(alias="_type")]
    subject: Annotated[list[_Subject], Field(min_length=1, max_length=1)]
    predicate_type: Annotated[Literal["urn:fedce:ledger-head:v1"], Field(alias="predicateType")]
    predicate: Head


@dataclass(frozen=True)
class Attestation:
    """An attestation in its file."""

    path: Path
    envelope: Envelope
    statement: Statement

    @classmethod
    def read(cls, path: Path) -> "Attestation":
        envelope = Envelope.read(path)
        if envelope.payload_type != IN_TOTO:
            raise RunError(f"{path} holds {envelope.payload_type!r:.100}, not an in-toto statement")
        try:
            statement = Statement.model_validate_json(envelope.payload)
        except ValidationError as error:
            raise RunError(f"{path} does not attest a ledger ({first_problem(error)})") from None
        return cls(path, envelope, statement)

    @property
    def head(self) -> Head:
        return self.statement.predicate

    @property
    def digest(self) -> str:
        """The SHA-256 of the statement, which stays as it is when members countersign."""
        return sha256(self.envelope.payload.encode()).hexdigest()

    @property
    def stamp(self) -> Path:
        """The reply of a time-stamping authority, if there is one."""
        return self.path.with_suffix(".tsr")

    def problem_with(self, lines: Sequence[str], hashes: Sequence[str]) -> str | None:
        """What was done to a ledger whose lines are not the attested ones; None if they are, perhaps with more."""
        name, attested = self.path.name, self.head
        if not hashes or hashes[0] != attested.start:
            return f"{name} attests another first line: it belongs to another run, or the whole ledger was made anew"
        if len(hashes) < attested.n_lines:
            return f"the end was cut off: {name} attests {attested.n_lines} lines, and the ledger has {len(hashes)}"
        if hashes[attested.n_lines - 1] != attested.head:
            return f"lines were rewritten: line {attested.n_lines} is not the one that {name} attests"
        if digest_of_lines(lines[: attested.n_lines]) != self.statement.subject[0].digest["sha256"]:
            return f"lines were rewritten: a line before line {attested.n_lines} is not the one that {name} attests"
        return None


def digest_of_lines(lines: Sequence[str]) -> str:
    """The SHA-256 of a ledger's first lines as they are on disk: what 'head -n N ledger.jsonl | sha256sum' prints."""
    return sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


def attest(run: RunFolder) -> Attestation:
    """Attest the ledger as it is now, as its coordinator."""
    run.check_chain()
    lines, ledger = run.lines(), run.ledger()
    identity, its = coordinator(), ledger.begun.coordinator
    if identity.public != its:
        belongs = f"belongs to the coordinator {its}; set FEDCE_KEY to that key's file" if its else "is not signed"
        raise RunError(f"{run.ledger_file} {belongs}; only its coordinator can attest it")
    lines = lines[: len(ledger)]
    path = run.path / f"attestation-{len(lines)}.json"
    hashes = [sha256(line.encode()).hexdigest() for line in lines]
    if path.exists():
        found = Attestation.read(path)
        if (problem := found.problem_with(lines, hashes)) is not None:
            raise RunError(f"{path} exists, and {problem}")
        return found
    statement = {
        "_type": STATEMENT,
        "subject": [{"name": run.ledger_file.name, "digest": {"sha256": digest_of_lines(lines)}}],
        "predicateType": PREDICATE,
        "predicate": {
            "run": ledger.begun.run,
            "start": hashes[0],
            "n_lines": len(lines),
            "head": hashes[-1],
            "n_rounds": len(ledger.rounds),
            "coordinator": its,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": dict(ledger.of(Session)[-1].versions),
            "fedce": __version__,
        },
    }
    Envelope(json.dumps(statement, allow_nan=False)).signed_by(identity).write(path)
    return Attestation.read(path)


def newest_in(run: RunFolder) -> Attestation:
    if not (found := run.attestation_files):
        raise RunError(f"{run.path} holds no attestation; its coordinator makes one with 'fedce ledger attest'")
    return Attestation.read(found[-1])


def countersign(attestation: Attestation, identity: Identity) -> None:
    """Add a member's signature. The caller has verified the ledger with this attestation before."""
    attestation.envelope.signed_by(identity).write(attestation.path)


def add_signatures(attestation: Attestation, copies: Sequence[Path]) -> int:
    """Take over signatures from members' copies of the attestation; returns how many there are now."""
    envelope = attestation.envelope
    for path in copies:
        other = Attestation.read(path)
        if other.envelope.payload != envelope.payload:
            raise RunError(f"{path} is not a copy of {attestation.path}: it attests something else")
        for key in other.envelope.signatures:
            if not other.envelope.is_signed_by(key):
                raise RunError(f"{path}: the signature of {key} does not fit; ask for the file again")
        envelope = envelope.with_signatures_of(other.envelope)
    envelope.write(attestation.path)
    return len(envelope.signatures)


def attach_stamp(attestation: Attestation, reply: Path) -> Path:
    """Keep the reply of a time-stamping authority beside the attestation."""
    try:
        content = reply.read_bytes()
    except OSError as error:
        raise RunError(f"can't read {reply}: {error.strerror}") from None
    check_is_for(content, attestation.digest, reply)
    write_bytes(attestation.stamp, content)
    return attestation.stamp


class Attested(Part):
    """The ledger still has the lines that were attested, and who vouches for them.

    `keys_after` gives, for a number of lines, the keys that were valid then or came later, and their sites.
    """

    def __init__(
        self,
        files: Sequence[Path],
        lines: Sequence[str],
        coordinator: str,
        keys_after: Callable[[int], Mapping[str, str]],
        authority: Path | None,
    ) -> None:
        super().__init__()
        self.coordinator, self.keys_after, self.authority = coordinator, keys_after, authority
        hashes = [sha256(line.encode()).hexdigest() for line in lines]
        for path in files:
            try:
                attestation = Attestation.read(path)
            except RunError as error:
                self.problems.append(str(error))
                continue
            if problem := attestation.problem_with(lines, hashes):
                self.problems.append(problem)
            self._signatures(attestation, fits=problem is None, n_lines=len(lines))
            self._stamp(attestation)

    def _signatures(self, attestation: Attestation, *, fits: bool, n_lines: int) -> None:
        name, envelope, head = attestation.path.name, attestation.envelope, attestation.head
        if not envelope.is_signed_by(self.coordinator):
            self.problems.append(f"{name} is not signed by the coordinator {self.coordinator or '(there is none)'}")
            return
        members, site_by_key = [], self.keys_after(head.n_lines)
        for key in envelope.signatures:
            if not envelope.is_signed_by(key):
                self.problems.append(f"{name}: the signature of {site_by_key.get(key, key)} does not fit")
            elif key in site_by_key:
                members.append(site_by_key[key])
            elif key != self.coordinator:
                self.unchecked.append(f"whose signature on {name} is by {key}: no member had this key then")
        if not fits:
            return
        whose = f"countersigned by {', '.join(sorted(members))}" if members else "countersigned by no known member"
        since = f"; {n_lines - head.n_lines} lines were added since" if n_lines > head.n_lines else ""
        self.facts.append(f"the first {head.n_lines} lines are those of {name} ({head.time}), {whose}{since}")

    def _stamp(self, attestation: Attestation) -> None:
        stamp = attestation.stamp
        if not stamp.exists():
            return
        if self.authority is None:
            self.unchecked.append(f"the time stamp {stamp.name}: give its authority's certificates with --authority")
            return
        try:
            check_is_for(stamp.read_bytes(), attestation.digest, stamp)
            when = checked_time(stamp, attestation.digest, self.authority)
        except (RunError, OSError) as error:
            self.problems.append(f"the time stamp {stamp.name} proves nothing: {error}")
        else:
            self.facts.append(f"{attestation.path.name} existed on {when}, by the authority's stamp")
