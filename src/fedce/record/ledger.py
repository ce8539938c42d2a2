"""A ledger: its lines in order, and what follows from several of them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from fedce.base.errors import RunError
from fedce.base.identity import is_signed
from fedce.core.recorded import Flag
from fedce.record.entries import Continued, DataFacts, End, Join, Line, Round, Session, Start

NO_LINE = "0" * 64
FORMAT = 4
"""Format of the ledger. From 2 on it holds digests of the experiment file and the models, and what sites said of the
final model; from 3 on everything that results follow from, the splits' digest, and why a site has no part in a round;
from 4 on what every method measured in a round, and what the guard saw of its sites.

A change of how results are worked out needs a new format: `fedce ledger verify` compares results.json with the ledger.
"""
L = TypeVar("L", bound=Line)


@dataclass(frozen=True)
class Ledger:
    """The lines of a run, from its start to its end or as far as the run has come.

    >>> from fedce.record.entries import Event
    >>> left = Event.of({"kind": "event", "time": 0.0, "site": "north", "what": "left"})
    >>> [line.summary for line in Ledger((left,))]
    ['north left']
    """

    lines: tuple[Line, ...] = ()

    def __iter__(self) -> Iterator[Line]:
        return iter(self.lines)

    def __len__(self) -> int:
        return len(self.lines)

    def of(self, kind: type[L]) -> list[L]:
        """The lines of this kind."""
        return [line for line in self.lines if isinstance(line, kind)]

    @cached_property
    def start(self) -> Start | None:
        return next(iter(self.of(Start)), None)

    @property
    def begun(self) -> Start:
        """The start; a RunError if there is no start."""
        if self.start is None:
            raise RunError("the ledger has no start")
        return self.start

    @cached_property
    def rounds(self) -> list[Round]:
        return self.of(Round)

    @cached_property
    def part(self) -> Start | Continued | None:
        """The line with which the run, or its latest continuation, began."""
        return next((line for line in reversed(self.lines) if isinstance(line, Start | Continued)), None)

    @cached_property
    def end(self) -> End | None:
        """The end, if the run has ended; an end from which the run was continued does not count."""
        since = self.lines.index(self.part) if self.part else 0
        return next((line for line in self.lines[since:] if isinstance(line, End)), None)

    @property
    def format(self) -> int:
        """The format that the first line states; a first line without one is of format 1."""
        return format_of(self.lines[0].content)

    @cached_property
    def sites(self) -> dict[str, DataFacts]:
        """What is recorded of each site's data: counts and a fingerprint."""
        facts: dict[str, DataFacts] = {}
        for line in self.lines:
            if isinstance(line, Start | Continued):
                facts |= line.sites
            elif isinstance(line, Join):
                facts.setdefault(line.site, line.member)
        return facts

    @property
    def fingerprints(self) -> dict[str, str]:
        """A fingerprint of each member's data when the run, or its latest continuation, began."""
        return {site: facts.fingerprint for site, facts in self.part.sites.items()} if self.part else {}

    @property
    def last_is_signed(self) -> bool:
        """Whether the last line is signed by the coordinator that last worked on the run, if this one has a key."""
        key = next((session.coordinator for session in reversed(self.of(Session))), "")
        if not self.lines or (not key and self.lines[-1].signature is None):
            return True
        return is_signed(signed_text(self.lines[-1].content), self.lines[-1].signature or "", key)


def content_of(line: str) -> Any:
    """A ledger's line as JSON; a ValueError if fedce would have written the value in any other way.

    So no line can hold NaN, a repeated key, white space or an escape that two readers could understand differently.
    """
    value = json.loads(line)
    if json.dumps(value, allow_nan=False) != line:
        raise ValueError("fedce would write this line differently")
    return value


def signed_text(content: Mapping[str, Any]) -> str:
    """The text that a line's signature is made of: the line without the signature. JSON preserves every number."""
    return json.dumps({key: value for key, value in content.items() if key != "signature"}, allow_nan=False)


def format_of(first: Any) -> int:
    """The format that a ledger's first line states."""
    stated = first.get("format", 1) if isinstance(first, dict) else 1
    if type(stated) is not int or stated < 1:
        raise RunError(f"line 1 of the ledger: expected a whole number from 1 on as its format, got {stated!r}")
    return stated


def check_format(first: Any, where: object) -> None:
    """Raise a RunError unless this version can read a ledger with this first line."""
    stated = first.get("format") if isinstance(first, dict) else None
    if type(stated) is int and stated > FORMAT:
        raise RunError(
            f"{where} has format {stated}, and this version of fedce reads formats up to {FORMAT}; install the version "
            "of fedce that wrote it"
        )


@dataclass(frozen=True)
class Sighting:
    """A flag, and the rounds in which it was seen."""

    flag: Flag
    rounds: tuple[int, ...]

    @property
    def times(self) -> str:
        first = self.rounds[0] + 1
        return f"round {first}" if len(self.rounds) == 1 else f"{len(self.rounds)} rounds from {first} on"

    @property
    def text(self) -> str:
        return f"{self.flag.text} in {self.times}"

    @property
    def text_without_name(self) -> str:
        return f"{self.flag.text_without_name} in {self.times}"


def sightings(rounds: Sequence[Round]) -> dict[str, list[Sighting]]:
    """Flags for a reader, by site: each flag once."""
    seen: dict[str, dict[Flag, tuple[int, ...]]] = {}
    for done in rounds:
        rejected = {site: [Flag("rejected", f"reply rejected ({why})")] for site, why in done.rejected.items()}
        said = [*((site, facts.flags) for site, facts in done.sites.items()), *rejected.items()]
        for site, flags in said:
            for flag in flags:
                found = seen.setdefault(site, {})
                found[flag] = (*found.get(flag, ()), done.round_no)
    return {site: [Sighting(flag, where) for flag, where in found.items()] for site, found in seen.items()}


def flags_by_site(rounds: Sequence[Round]) -> dict[str, list[str]]:
    """The sightings as text, as results.json has them."""
    return {site: [one.text for one in found] for site, found in sightings(rounds).items()}
