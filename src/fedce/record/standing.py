"""Whose key is valid, and which sites may no longer take part, after each line of a ledger."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, Self

from fedce.base.errors import RunError
from fedce.base.identity import is_signed
from fedce.record.entries import Change, Join, Line, Replace, Revoke, Rotate, Round, SignedNotice, Withdraw
from fedce.record.ledger import Ledger

WITHDRAWN = "withdrawn"
REVOKED = "key revoked"
"""Reasons why a site that joined may no longer take part."""
SIGNERS: Mapping[str, tuple[str, ...]] = {
    "rotate": ("site",),
    "withdraw": ("site",),
    "revoke": ("site", "coordinator"),
    "replace": ("coordinator",),
}
"""Who may sign which notice."""


class Noticed(Protocol):
    """What a notice says, or the line that was made of it."""

    @property
    def kind(self) -> str: ...
    @property
    def run(self) -> str: ...
    @property
    def site(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def new(self) -> str | None: ...


@dataclass(frozen=True)
class Standing:
    """A site's key, and why the site may no longer take part, if it may not."""

    key: str
    gone: str = ""


@dataclass
class Standings:
    """The sites' standings after some lines of a ledger.

    >>> standings = Standings("1a2b", "the coordinator's key")
    >>> standings.by_site["north"] = Standing("a key")
    >>> standings.by_site["north"].gone
    ''
    """

    run: str
    coordinator: str
    by_site: dict[str, Standing] = field(default_factory=dict)
    used: dict[str, str] = field(default_factory=dict)
    """Every key that a site has or had, and the site."""
    ended: dict[str, int] = field(default_factory=dict)
    """Keys that are no longer valid, and the number of the line that ended them."""

    @classmethod
    def begun(cls, ledger: Ledger) -> Self:
        return cls(ledger.begun.run or "", ledger.begun.coordinator)

    @classmethod
    def of(cls, ledger: Ledger) -> Self:
        """The standings after all lines of a ledger."""
        standings = cls.begun(ledger)
        for number, line in enumerate(ledger, 1):
            standings.take(number, line)
        return standings

    @property
    def gone(self) -> dict[str, str]:
        """The sites that may no longer take part, with the reason."""
        return {site: standing.gone for site, standing in self.by_site.items() if standing.gone}

    def site_by_key(self, n_lines: int) -> dict[str, str]:
        """The keys that were valid after these lines or came later, and their sites."""
        return {key: site for key, site in self.used.items() if self.ended.get(key, n_lines + 1) > n_lines}

    def take(self, number: int, line: Line) -> None:
        """Go one line further; whether the line was allowed, `author_of` says before."""
        if isinstance(line, Join) and line.site not in self.by_site:
            self.by_site[line.site] = Standing(line.key)
            self.used[line.key] = line.site
        elif isinstance(line, Change) and line.site in self.by_site:
            before = self.by_site[line.site]
            if not isinstance(line, Withdraw):
                self.ended.setdefault(before.key, number)
            self.by_site[line.site] = _after(before, line)
            self.used[self.by_site[line.site].key] = line.site

    def author_of(self, notice: Noticed, signed: SignedNotice) -> Literal["site", "coordinator"] | RunError:
        """Who signed a notice, if it may be entered now; otherwise the reason why it may not."""
        standing = self.by_site.get(notice.site)
        if notice.run != self.run:
            return RunError(f"it is for the run {notice.run}, and this is {self.run}")
        if standing is None:
            return RunError(f"{notice.site} has not joined this run")
        if standing.gone == WITHDRAWN:
            return RunError(f"{notice.site} has withdrawn from this run")
        if standing.gone == REVOKED and notice.kind != "replace":
            return RunError(f"the key of {notice.site} is revoked; the coordinator must replace it first")
        if notice.key != standing.key:
            return RunError(f"it is about the key {notice.key}, and the key of {notice.site} is {standing.key}")
        if notice.kind in ("rotate", "replace"):
            if notice.new is None:
                return RunError("it names no new key")
            if notice.new == self.coordinator or notice.new in self.used:
                return RunError(f"its new key {notice.new} was used before; make a new one")
        if notice.kind == "rotate" and not is_signed(signed.content, signed.proof, notice.new or ""):
            return RunError("it is not signed by the new key")
        keys: dict[Literal["site", "coordinator"], str] = {"site": standing.key, "coordinator": self.coordinator}
        for author, key in keys.items():
            if author in SIGNERS[notice.kind] and is_signed(signed.content, signed.signature, key):
                return author
        return RunError(f"it is not signed by the {' or the '.join(SIGNERS[notice.kind])}")


def _after(before: Standing, line: Change) -> Standing:
    if isinstance(line, Rotate | Replace):
        return Standing(line.new)
    if isinstance(line, Revoke):
        return replace(before, gone=REVOKED)
    return replace(before, gone=WITHDRAWN)


def changes_of(ledger: Ledger) -> list[tuple[int, Change]]:
    """The changes of keys and membership, each with the number of rounds before it."""
    found, n_rounds = [], 0
    for line in ledger:
        if isinstance(line, Round):
            n_rounds = line.round_no + 1
        elif isinstance(line, Change):
            found.append((n_rounds, line))
    return found


def gone_in(changes: list[tuple[int, Change]], round_no: int) -> dict[str, str]:
    """The sites that may not take part in a round (from 0 on), with the reason."""
    gone: dict[str, str] = {}
    for n_rounds, line in changes:
        if n_rounds > round_no:
            break
        if isinstance(line, Withdraw | Revoke):
            gone[line.site] = WITHDRAWN if isinstance(line, Withdraw) else REVOKED
        else:
            gone.pop(line.site, None)
    return gone


def change_sentences(ledger: Ledger) -> list[tuple[str, str]]:
    """Each change for readers of a report: the site, and a sentence."""
    return [(line.site, _sentence(n_rounds, line)) for n_rounds, line in changes_of(ledger)]


def _sentence(n_rounds: int, line: Change) -> str:
    when = f"after round {n_rounds}" if n_rounds else "before round 1"
    if isinstance(line, Withdraw):
        return f"{line.site} withdrew {when}: its later answers are not used, and what it earned before stays."
    if isinstance(line, Revoke):
        whom = "the coordinator" if line.by == "coordinator" else line.site
        return f"The key of {line.site} was revoked by {whom} {when}."
    if isinstance(line, Replace):
        return f"The coordinator replaced the key of {line.site} {when}, without a signature of the earlier key."
    return f"{line.site} changed its key {when}."
