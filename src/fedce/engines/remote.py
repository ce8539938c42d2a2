"""Sites on other machines, whatever carries the messages: who is there, who may come in, who is slow, who is gone.

A `Courier` (Flower, NVFlare) moves parcels to nodes and back and knows nothing else. A node is an address that changes
with every restart; a site is a name with a key. Everything that goes wrong is noted, and the round goes on.
"""

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic, sleep
from typing import Protocol

from fedce.errors import ReplyError
from fedce.identity import is_signed
from fedce.messages import Member, Reply, Task
from fedce.params import Layout
from fedce.wire import Failure, Hello, MemberForm, Parcel, ReplyForm, Signed, kind_of, reply_from, task_parcel

POLL_SECONDS = 0.1
MEET_SECONDS = 1.0
REMIND_SECONDS = 60.0
MAX_TRIES = 3
"""How often a task is sent to a site that gives no answer, in one round."""


class Courier(Protocol):
    """Carries parcels to nodes and back."""

    def nodes(self) -> Iterable[str]:
        """Who can be reached now."""

    def send(self, node: str, parcel: Parcel, round_no: int) -> str:
        """Returns a ticket, by which the answer will be known."""

    def collect(self) -> Iterable[tuple[str, Parcel | str]]:
        """What has come since the last call, by ticket; a text says why there will be no answer."""


@dataclass(frozen=True)
class Event:
    """Something that members should find in the record."""

    round_no: int | None
    site: str
    what: str
    joined: "Known | None" = None


@dataclass(frozen=True)
class Known:
    """Somebody who has joined: from then on the name belongs to the key."""

    key: str
    member: Member


@dataclass(frozen=True)
class Rules:
    """Who may take part, and how long is waited."""

    run: str
    """The run's own identifier, so that nothing of another run is taken for this one's."""
    members: Mapping[str, str]
    """Name to public key; "" takes the first key that comes, no names at all: whoever comes."""
    min_sites: int
    join_seconds: float
    deadline_seconds: float | None
    version: str
    """Of fedce; all must run the same, or numbers could differ."""


@dataclass
class _Open:
    """A parcel that is on its way."""

    node: str
    site: str
    """Empty for a hello, as it is not yet known who is there."""
    round_no: int
    nonce: str = ""


class RemoteEngine:
    """`ask` over a courier."""

    def __init__(
        self,
        courier: Courier,
        rules: Rules,
        note: Callable[[Event], None],
        known: Mapping[str, Known] | None = None,
        notice: Callable[[str], None] = lambda message: None,
        clock: Callable[[], float] = monotonic,
        pause: Callable[[float], None] = sleep,
    ) -> None:
        self.courier, self.rules = courier, rules
        self.known: dict[str, Known] = dict(known or {})
        self.node_by_site: dict[str, str] = {}
        self.n_bytes = 0
        """Carried so far, both ways, without what the engine adds."""
        self._note, self._notice, self._clock, self._pause = note, notice, clock, pause
        self._layout: Layout | None = None
        self._n_channels = 0
        self._greeted: set[str] = set()
        self._refused: set[str] = set()
        self._open: dict[str, _Open] = {}
        self._over: dict[str, _Open] = {}
        self._round_no: int | None = None
        self._next_meeting = 0.0

    def bind(self, layout: Layout, n_channels: int) -> None:
        """The network, once it is known; before that there is nothing to ask."""
        self._layout, self._n_channels = layout, n_channels

    def gather(self) -> dict[str, Member]:
        """Wait for the members, then say who they are; sorted by name."""
        began = reminded = self._clock()
        while True:
            self._meet()
            self._collect({})
            waited = self._clock() - began
            missing = sorted(self.rules.members.keys() - self.node_by_site.keys())
            enough = len(self.node_by_site) >= self.rules.min_sites
            if enough and ((self.rules.members and not missing) or waited >= self.rules.join_seconds):
                break
            if self._clock() - reminded >= REMIND_SECONDS:
                reminded = self._clock()
                self._notice(f"waiting for {', '.join(missing) or 'sites'}; {len(self.node_by_site)} are there")
            self._pause(POLL_SECONDS)
        return {name: self.known[name].member for name in sorted(self.known)}

    def sites(self, known: Sequence[str]) -> tuple[str, ...]:
        """Who is to be asked in the next round: everybody so far, and those who have joined since."""
        self._meet()
        self._collect({})
        return tuple(sorted({*known, *self.node_by_site}))

    def ask(self, tasks: Sequence[Task]) -> list[Reply]:
        assert self._layout is not None
        self._round_no = tasks[0].round_no
        # A site may be killed at any time, so it keeps every round.
        waiting = {task.site: replace(task, persist=True) for task in tasks}
        needed = min(self.rules.min_sites, len(tasks))
        tries = dict.fromkeys(waiting, 0)
        replies: list[Reply] = []
        began = reminded = self._clock()
        while waiting:
            self._meet()
            on_their_way = {parcel.site for parcel in self._open.values()}
            for site, task in waiting.items():
                if site in self.node_by_site and site not in on_their_way:
                    tries[site] += 1
                    self._send(self.node_by_site[site], site, task_parcel(task, self.rules.run, self._n_channels))
            replies += self._collect(waiting)
            for site in [site for site in waiting if tries[site] >= MAX_TRIES and not self._is_open(site)]:
                self._say(site, f"gave no answer to {MAX_TRIES} tries; the round goes on without it")
                del waiting[site]
            late = self.rules.deadline_seconds is not None and self._clock() - began >= self.rules.deadline_seconds
            absent = not any(site in self.node_by_site for site in waiting)
            if len(replies) >= needed and waiting and (late or absent):
                for site in sorted(waiting):
                    self._say(site, "is too slow" if site in self.node_by_site else "is absent")
                break
            if self._clock() - reminded >= REMIND_SECONDS:
                reminded = self._clock()
                self._notice(f"round {self._round_no + 1}: waiting for {', '.join(sorted(waiting))}")
            if waiting:
                self._pause(POLL_SECONDS)
        self._end_round()
        return replies

    def _is_open(self, site: str) -> bool:
        return any(parcel.site == site for parcel in self._open.values())

    def _end_round(self) -> None:
        """What is still on its way is of a round that is over."""
        for ticket in [ticket for ticket, parcel in self._open.items() if parcel.site]:
            self._over[ticket] = self._open.pop(ticket)

    def _say(self, site: str, what: str) -> None:
        self._note(Event(self._round_no, site, what))

    def _send(self, node: str, site: str, parcel: Parcel, nonce: str = "") -> None:
        ticket = self.courier.send(node, parcel, self._round_no or 0)
        self.n_bytes += parcel.n_bytes
        self._open[ticket] = _Open(node, site, self._round_no if self._round_no is not None else -1, nonce)

    def _meet(self) -> None:
        """See who came and who left; ask newcomers who they are."""
        if self._clock() < self._next_meeting:
            return
        self._next_meeting = self._clock() + MEET_SECONDS
        here = set(self.courier.nodes())
        for site, node in list(self.node_by_site.items()):
            if node not in here:
                del self.node_by_site[site]
                self._say(site, "left")
        for ticket in [ticket for ticket, parcel in self._open.items() if parcel.node not in here]:
            del self._open[ticket]
        self._greeted &= here
        self._refused &= here
        for node in sorted(here - self._greeted - self._refused):
            self._greeted.add(node)
            nonce = secrets.token_hex(16)
            hello = Hello(run=self.rules.run, nonce=nonce)
            self._send(node, "", Parcel(hello.model_dump_json(), {}), nonce)

    def _collect(self, waiting: dict[str, Task]) -> list[Reply]:
        """Take in what has come; a reply takes its site off the list."""
        replies: list[Reply] = []
        for ticket, answer in self.courier.collect():
            if isinstance(answer, Parcel):
                self.n_bytes += answer.n_bytes
            if (parcel := self._open.pop(ticket, None)) is None:
                if (over := self._over.pop(ticket, None)) is not None:
                    self._say(over.site, f"its answer for round {over.round_no + 1} came when that was over: refused")
            elif not parcel.site:
                self._seat(parcel, answer)
            elif parcel.site in waiting:
                replies += self._take(parcel, answer, waiting)
        return replies

    def _take(self, parcel: _Open, answer: Parcel | str, waiting: dict[str, Task]) -> list[Reply]:
        site = parcel.site
        if isinstance(answer, str):
            # Nothing that the site said, so it is asked again; the number of tries is limited.
            self._say(site, f"no answer: {answer[:300]}")
            return []
        task = waiting.pop(site)
        try:
            return [self._reply(site, task, answer)]
        except ReplyError as error:
            self._say(site, f"refused: {error}")
            return []

    def _reply(self, site: str, task: Task, answer: Parcel) -> Reply:
        assert self._layout is not None
        signed = Signed.read(answer.about)
        if not is_signed(signed.content, signed.signature, self.known[site].key):
            raise ReplyError("its answer is not signed with its key")
        if kind_of(signed.content) == "failure":
            raise ReplyError(f"it failed: {Failure.read(signed.content).what}")
        form = ReplyForm.read(signed.content)
        expected = (self.rules.run, site, task.round_no, task.action)
        if (form.run, form.site, form.round_no, form.action) != expected:
            raise ReplyError(f"it answered for {form.site}, round {form.round_no + 1}, {form.action}")
        return replace(reply_from(form, answer.arrays, self._layout), signed=signed.model_dump())

    def _seat(self, parcel: _Open, answer: Parcel | str) -> None:
        """A newcomer says who it is."""
        node = parcel.node
        self._greeted.add(node)
        if isinstance(answer, str):
            self._notice(f"node {node} gave no answer to a hello: {answer[:300]}")
            self._greeted.discard(node)  # To be asked again.
            return
        name = "?"
        try:
            signed = Signed.read(answer.about)
            if kind_of(signed.content) == "failure":
                raise ReplyError(f"it failed: {Failure.read(signed.content).what}")
            form = MemberForm.read(signed.content)
            name = form.name
            self._check(form, signed, parcel.nonce)
        except ReplyError as error:
            self._refused.add(node)
            self._say(name, f"node {node} was refused: {error}")
            return
        before = self.node_by_site.get(name)
        self.node_by_site[name] = node
        if name not in self.known:
            self.known[name] = Known(form.key, form.member)
            self._note(Event(self._round_no, name, "joined", self.known[name]))
        else:
            self._say(name, "came back" if before is None else "came back under another address")
        if before is not None and before != node:
            # What was sent to the old address is sent again to the new one.
            self._refused.add(before)
            for ticket in [ticket for ticket, other in self._open.items() if other.site == name]:
                del self._open[ticket]

    def _check(self, form: MemberForm, signed: Signed, nonce: str) -> None:
        if not is_signed(signed.content, signed.signature, form.key):
            raise ReplyError("it does not hold the key that it shows")
        if (form.run, form.nonce) != (self.rules.run, nonce):
            raise ReplyError("its answer is to another question")
        if self.rules.members and form.name not in self.rules.members:
            raise ReplyError(f"{form.name!r} is not among the members")
        if (expected := self.rules.members.get(form.name)) and form.key != expected:
            raise ReplyError(f"it has another key than the member {form.name!r}")
        if (version := form.versions.get("fedce")) != self.rules.version:
            raise ReplyError(f"it runs fedce {version}, the server {self.rules.version}; all need the same")
        known = self.known.get(form.name)
        if known is not None and form.key != known.key:
            raise ReplyError(f"it has another key than the {form.name!r} that joined before")
        if known is not None and form.fingerprint != known.member.fingerprint:
            raise ReplyError("it has other data than when it joined; restore it, or start a new run")
        if self._n_channels and form.shape[0] > self._n_channels:
            raise ReplyError(f"its images have {form.shape[0]} channels, the network takes {self._n_channels}")
        first = next(iter(self.known.values()), None)
        if first is not None:
            ours, its = first.member, form.member
            if ours.shape[1:] != its.shape[1:]:
                raise ReplyError(
                    f"its images are {its.shape[2]}x{its.shape[1]}, those of {ours.name!r} "
                    f"{ours.shape[2]}x{ours.shape[1]}; set data.size"
                )
            if ours.classes != its.classes:
                raise ReplyError(f"its classes are {its.classes}, those of {ours.name!r} {ours.classes}")
