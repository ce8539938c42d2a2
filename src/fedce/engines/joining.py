"""Which sites may join a federation of other machines, and what is kept of those that have joined."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedce.base.errors import ReplyError
from fedce.base.identity import is_signed
from fedce.base.tables import Pack
from fedce.core.messages import Member
from fedce.record.connections import Connections
from fedce.site.wire import FingerprintForm, MemberForm, Signed

SILENT_SECONDS = 60.0
"""A node that has not answered the coordinator's first question for this long is asked again. A question may be lost: a
SuperNode of Flower that still has a message of an earlier run may answer that one instead."""


@dataclass(frozen=True)
class Event:
    """An event that members should find in the record."""

    round_no: int | None
    site: str
    what: str
    joined: "Known | None" = None


@dataclass(frozen=True)
class Known:
    """A site that has joined: from then on its name belongs to its key."""

    key: str
    member: Member
    gone: str = ""
    """Why it may no longer take part; empty: it may."""


@dataclass(frozen=True)
class Rules:
    """Which sites may take part, and how long the server waits for them."""

    run: str
    """The run's identifier, so that no message of another run is accepted."""
    members: Mapping[str, str]
    """Name to public key. With "", the first key that comes with the name counts; without names, any site may join."""
    min_sites: int
    join_seconds: float
    deadline_seconds: float | None
    version: str
    """The version of fedce; all sites must run the same one, or numbers could differ."""
    classes: Mapping[str, tuple[int, ...]] | None = None
    """The classes and the image size that the experiment states; otherwise the first site's would count."""
    size: int | None = None
    pack: Pack = "none"
    """How models travel."""
    planned: Mapping[str, Any] = field(default_factory=dict)
    """Values that were planned from the sites' fingerprints, by key; a site trains with them."""


@dataclass(frozen=True)
class Reports:
    """Callbacks for what an engine tells of its sites."""

    note: Callable[[Event], None]
    """An event for the ledger."""
    notice: Callable[[str], None] = lambda message: None
    """A line for people, now."""
    connections: Callable[[Connections], None] = lambda connections: None
    """Which sites are connected, and whose answer is awaited, whenever this has changed."""


def key_of(site: str, known: Mapping[str, Known], rules: Rules) -> str:
    """The key of a site that has joined, or that the experiment states; empty: any key may join."""
    return known[site].key if site in known else rules.members.get(site, "")


def check_author(form: MemberForm | FingerprintForm, signed: Signed, nonce: str, rules: Rules) -> None:
    """The answer is to our question, by the key that it shows, for a name that may take part."""
    if not is_signed(signed.content, signed.signature, form.key):
        raise ReplyError("it does not hold the key that it shows")
    if (form.run, form.nonce) != (rules.run, nonce):
        raise ReplyError("its answer belongs to another question")
    if rules.members and form.name not in rules.members:
        raise ReplyError(f"{form.name!r} is not among the members")


def check_is_no_second_name(form: MemberForm, known: Mapping[str, Known]) -> None:
    """A hospital takes part once: under two names it would be paid twice."""
    for name, other in known.items():
        if name == form.name:
            continue
        if other.key == form.key:
            raise ReplyError(f"it has the key of {name!r}; give each site a key of its own (fedce keys)")
        if other.member.fingerprint == form.fingerprint and not other.gone:
            raise ReplyError(f"it has the same images as {name!r}; a hospital joins under one name")


def check_member(form: MemberForm, known: Mapping[str, Known], rules: Rules, n_channels: int) -> None:
    """The site is the one that it was, may still take part, and has data that fit the experiment and the others."""
    before, its = known.get(form.name), form.member
    if (expected := key_of(form.name, known, rules)) and form.key != expected:
        whose = f"member {form.name!r}" if rules.members.get(form.name) else f"site {form.name!r} that joined before"
        raise ReplyError(f"it has another key than the {whose}")
    check_is_no_second_name(form, known)
    if (version := form.versions.get("fedce")) != rules.version:
        raise ReplyError(f"it runs fedce {version}, the server {rules.version}; all need the same")
    if before is not None and before.gone:
        raise ReplyError(f"{form.name!r} may no longer take part: {before.gone}")
    if before is not None and form.fingerprint != before.member.fingerprint:
        raise ReplyError("its data differ from those it joined with; restore them, or start a new run")
    if n_channels and form.shape[0] > n_channels:
        raise ReplyError(f"its images have {form.shape[0]} channels, the network takes {n_channels}")
    if unknown := sorted(set(its.labelled) - its.classes.keys()):
        raise ReplyError(f"it labels {unknown[0]!r}, which is not among its classes {', '.join(its.classes)}")
    # Their order counts too: it is that of the network's outputs.
    if rules.classes is not None and list(its.classes.items()) != list(rules.classes.items()):
        raise ReplyError(f"its classes are {its.classes}, the experiment's {rules.classes}")
    if rules.size is not None and its.shape[1:] != (rules.size, rules.size):
        raise ReplyError(f"its images are {its.shape[2]}x{its.shape[1]}, and data.size is {rules.size}")
    if (first := next(iter(known.values()), None)) is not None:
        ours = first.member
        if ours.shape[1:] != its.shape[1:]:
            raise ReplyError(
                f"its images are {its.shape[2]}x{its.shape[1]}, those of {ours.name!r} "
                f"{ours.shape[2]}x{ours.shape[1]}; set data.size"
            )
        if list(ours.classes.items()) != list(its.classes.items()):
            raise ReplyError(f"its classes are {its.classes}, those of {ours.name!r} {ours.classes}")
