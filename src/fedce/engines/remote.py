"""Sites on other machines: which are connected, which may join, which are slow, and which are gone.

A `Courier` (Flower, NVFlare) only moves parcels to nodes and back. A node is an address that changes with every
restart; a site is a name with a key. A problem with one site is noted, and the round goes on.
"""

import json
import secrets
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from time import monotonic, sleep

from fedce.base.errors import ReplyError
from fedce.base.identity import is_signed
from fedce.core.messages import Member, Reply, Task
from fedce.core.params import Layout, Params
from fedce.engines.courier import Courier
from fedce.engines.joining import SILENT_SECONDS, Event, Known, Reports, Rules, check_author, check_member, key_of
from fedce.engines.packing import Packing
from fedce.engines.shared import Shelf
from fedce.engines.waiting import Deadline, Waiting
from fedce.site.wire import Failure, Hello, MemberForm, Parcel, ReplyForm, Signed, kind_of, reply_from

POLL_SECONDS = 0.1
MEET_SECONDS = 1.0
MAX_TRIES = 3
"""How often a task is sent in one round to a site that does not answer."""
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 300.0
"""Seconds until a node that failed is asked again; the pause doubles each time."""
MAX_OVER = 1000
"""At most this many unanswered parcels of earlier rounds are remembered; the oldest are dropped."""


@dataclass
class _Ticket:
    """A parcel that was sent and is not yet answered."""

    node: str
    site: str
    """The site's name; empty for a hello, because the site at the node is not yet known."""
    round_no: int
    nonce: str = ""


@dataclass
class _Node:
    """An address, and when it is to be asked for its site."""

    ask_at: float = 0.0
    pause: float = FIRST_PAUSE
    patience: float = SILENT_SECONDS
    asked: bool = False
    """Whether it was asked; a node that failed to answer is asked again."""
    key: str = ""
    """The key that it is to answer with, if it answered with another one: a site may have several."""


class RemoteEngine:
    """The engine for sites on other machines: `ask` sends tasks over a courier."""

    def __init__(
        self,
        courier: Courier,
        rules: Rules,
        reports: Reports,
        known: Mapping[str, Known] | None = None,
        shelf: Shelf | None = None,
        clock: Callable[[], float] = monotonic,
        pause: Callable[[float], None] = sleep,
    ) -> None:
        self.courier, self.rules = courier, rules
        self._shelf = shelf or Shelf(Path(tempfile.gettempdir()))
        self.known: dict[str, Known] = dict(known or {})
        self.node_by_site: dict[str, str] = {}
        self._reports, self._clock, self._pause = reports, clock, pause
        self._waiting = Waiting(reports, clock)
        self._layout: Layout | None = None
        self._whole: Layout | None = None
        # In a resumed run, the sites that were there at its start have settled the network.
        self._n_channels = max((entry.member.shape[0] for entry in self.known.values()), default=0)
        self._nodes: dict[str, _Node] = {}
        self._open: dict[str, _Ticket] = {}
        self._over: dict[str, _Ticket] = {}
        """Tickets of earlier rounds."""
        self._round_no: int | None = None
        self._sent: tuple[Params, str] | None = None
        self._next_meeting = 0.0
        self._deadline = Deadline(rules.deadline_seconds)
        self._packing = Packing(rules.pack)

    def bind(self, layout: Layout, n_channels: int, whole: Layout | None = None) -> None:
        """Set the network, once it is known; no task can be sent before.

        `layout` is the exchanged part; `whole` is a site's own model, which the site hands over at the end.
        """
        self._layout, self._whole, self._n_channels = layout, whole or layout, n_channels

    def gather(self) -> dict[str, Member]:
        """Wait for the members; returns them, sorted by name."""
        self._waiting.begin(None)
        while True:
            self._meet()
            self._collect({})
            missing = sorted(self.rules.members.keys() - self.node_by_site.keys() - self._gone)
            enough = len(self.node_by_site) >= self.rules.min_sites
            if enough and ((self.rules.members and not missing) or self._waiting.seconds >= self.rules.join_seconds):
                break
            self._waiting.look(self.node_by_site, missing, self._n_unnamed)
            self._pause(POLL_SECONDS)
        return {name: self.known[name].member for name in sorted(self.known)}

    @property
    def _n_unnamed(self) -> int:
        return len(self._nodes.keys() - set(self.node_by_site.values()))

    def sites(self, known: Sequence[str]) -> tuple[str, ...]:
        """The sites of the next round: all known so far, and those that have joined since."""
        self._meet()
        self._collect({})
        return tuple(sorted({*known, *self.node_by_site} - self._gone))

    def change(self, site: str, key: str, gone: str) -> None:
        """A site has another key from now on, or may no longer take part."""
        before = self.known[site]
        self.known[site] = replace(before, key=key, gone=gone)
        # Nodes that were refused with this key are asked again, and now.
        self._next_meeting = 0.0
        seated = {*self.node_by_site.values()}
        self._nodes = {node: found for node, found in self._nodes.items() if node in seated}
        if gone and (node := self.node_by_site.pop(site, None)) is not None:
            self._nodes[node] = _Node(ask_at=inf)

    @property
    def _gone(self) -> set[str]:
        return {site for site, entry in self.known.items() if entry.gone}

    def here(self, sites: Sequence[str]) -> tuple[str, ...]:
        return tuple(site for site in sites if site in self.node_by_site)

    def ask(self, tasks: Sequence[Task]) -> list[Reply]:
        assert self._layout is not None
        self._round_no = tasks[0].round_no
        if tasks[0].action == "train":  # Later questions of a round may be about the models that came in it.
            self._shelf.clear()
        # A site may be killed at any time, so it keeps every round.
        asked = _Asked({task.site: replace(task, persist=True) for task in tasks})
        needed = min(self.rules.min_sites, len(tasks))
        self._waiting.begin(self._round_no)
        while asked.waiting:
            self._meet()
            self._send_what_is_due(asked)
            came = self._collect(asked.waiting)
            asked.replies += came
            asked.arrivals += [self._waiting.seconds] * len(came)
            self._give_up(asked, needed)
            if asked.waiting and len(asked.replies) >= needed and self._waited_long_enough(asked):
                self._tell_who_is_missing(asked)
                break
            self._waiting.look(self.node_by_site, asked.waiting, self._n_unnamed)
            if asked.waiting:
                self._pause(POLL_SECONDS)
        # Parcels that are still unanswered now belong to an earlier round.
        for ticket in [ticket for ticket, parcel in self._open.items() if parcel.site]:
            self._put_aside(ticket)
        if tasks[0].action == "train":
            self._deadline = self._deadline.after(asked.arrivals)
        return asked.replies

    def _send_what_is_due(self, asked: "_Asked") -> None:
        # A node does one task after another: further tasks would only delay the answer to the newest.
        busy = {parcel.node for parcel in (*self._open.values(), *self._over.values())}
        for site, task in asked.waiting.items():
            node = self.node_by_site.get(site)
            if node is not None and node not in busy and self._clock() >= asked.send_at[site]:
                asked.tries[site] += 1
                asked.send_at[site] = self._clock() + FIRST_PAUSE * asked.tries[site]
                parcel = self._packing.parcel(task, self.rules.run, self._n_channels, self.known[site].key)
                self._send(node, site, parcel)

    def _give_up(self, asked: "_Asked", needed: int) -> None:
        """Leave a site out of the round if it does not answer or can't do its task, unless it is needed."""
        on_their_way = {parcel.site for parcel in self._open.values()}
        for site in [site for site in asked.waiting if asked.tries[site] >= MAX_TRIES and site not in on_their_way]:
            if len(asked.replies) + len(asked.waiting) > needed:
                self._say(site, f"gave no answer to {MAX_TRIES} tries; the round goes on without it")
                del asked.waiting[site]

    def _waited_long_enough(self, asked: "_Asked") -> bool:
        """Whether the deadline has passed, or no connected site could still answer."""
        late = self._waiting.seconds >= self._deadline.seconds
        return late or not any(site in self.node_by_site for site in asked.waiting)

    def _tell_who_is_missing(self, asked: "_Asked") -> None:
        behind = {parcel.node: parcel.round_no for parcel in self._over.values()}
        for site in sorted(asked.waiting):
            node = self.node_by_site.get(site)
            if node is None:
                self._say(site, "is absent")
            elif node in behind:
                self._say(site, f"is too slow: still at round {behind[node] + 1}")
            else:
                self._say(site, "is too slow")

    def _put_aside(self, ticket: str) -> None:
        self._over[ticket] = self._open.pop(ticket)
        if len(self._over) > MAX_OVER:
            del self._over[next(iter(self._over))]

    def _say(self, site: str, what: str) -> None:
        self._reports.note(Event(self._round_no, site, what))
        if self._round_no is None:  # There is no ledger yet that could hold the event.
            self._reports.notice(f"{site}: {what}")

    def _send(self, node: str, site: str, parcel: Parcel, nonce: str = "") -> None:
        ticket = self.courier.send(node, parcel, self._round_no or 0)
        if ticket:
            self._open[ticket] = _Ticket(node, site, self._round_no if self._round_no is not None else -1, nonce)

    def _meet(self) -> None:
        """Find nodes that came or left, and ask new nodes for their site."""
        now = self._clock()
        if now < self._next_meeting:
            return
        self._next_meeting = now + MEET_SECONDS
        here = set(self.courier.nodes())
        for node in self._nodes.keys() - here:
            del self._nodes[node]
        for site, node in list(self.node_by_site.items()):
            if node not in here:
                del self.node_by_site[site]
                self._say(site, "left")
                # An older address, which the lost one had replaced, may still be alive.
                self._nodes = {other: found for other, found in self._nodes.items() if found.ask_at < inf}
        for tickets in (self._open, self._over):
            for ticket in [ticket for ticket, parcel in tickets.items() if parcel.node not in here]:
                del tickets[ticket]
        silent = {ticket.node for ticket in self._open.values() if not ticket.site}
        for node in sorted(here):
            found = self._nodes.setdefault(node, _Node())
            if (node in silent or not found.asked) and now >= found.ask_at:
                found.asked, found.ask_at = True, now + found.patience
                found.patience = min(2 * found.patience, LONGEST_PAUSE)
                nonce = secrets.token_hex(16)
                planned = json.dumps(dict(self.rules.planned)) if self.rules.planned else ""
                hello = Hello(run=self.rules.run, nonce=nonce, key=found.key, planned=planned)
                self._send(node, "", Parcel(hello.model_dump_json(), {}), nonce)

    def _collect(self, waiting: dict[str, Task]) -> list[Reply]:
        """Take the answers that have come; a reply removes its site from `waiting`."""
        replies: list[Reply] = []
        for ticket, answer in self.courier.collect():
            if (parcel := self._open.pop(ticket, None)) is not None:
                if not parcel.site:
                    self._seat(parcel, answer)
                elif parcel.site in waiting:
                    replies += self._take(parcel.site, answer, waiting)
            elif (over := self._over.pop(ticket, None)) is not None:
                came = "its answer" if isinstance(answer, Parcel) else "its error"
                late = f"{came} for round {over.round_no + 1} arrived after that round had ended and was ignored"
                self._say(over.site, late)
        return replies

    def _take(self, site: str, answer: Parcel | str, waiting: dict[str, Task]) -> list[Reply]:
        if isinstance(answer, str):
            # The message failed on its way, so the site is asked again; the number of tries is limited.
            self._packing.forget(site)
            self._say(site, f"no answer: {answer[:300]}")
            return []
        try:
            reply = self._reply(site, waiting[site], answer)
        except _FailedError as error:
            self._packing.forget(site)
            self._say(site, f"failed: {error}")
            return []
        except ReplyError as error:
            self._say(site, f"refused: {error}")
            del waiting[site]
            return []
        self._packing.arrived(waiting.pop(site))
        return [reply]

    def _reply(self, site: str, task: Task, answer: Parcel) -> Reply:
        assert self._layout is not None
        known = self.known[site]
        signed = Signed.read(answer.about)
        if not is_signed(signed.content, signed.signature, known.key):
            raise ReplyError("its answer is not signed with its key")
        if kind_of(signed.content) == "failure":
            raise _FailedError(Failure.read(signed.content).what)
        form = ReplyForm.read(signed.content)
        expected = (self.rules.run, site, task.round_no, task.action)
        if (form.run, form.site, form.round_no, form.action) != expected:
            raise ReplyError(f"it answered for {form.site}, round {form.round_no + 1}, {form.action}")
        if form.received != self._digest_of(task):
            raise ReplyError("it answered to another model than it was sent")
        if form.n_train != known.member.n_train:
            raise ReplyError(f"it claims {form.n_train} training images, and joined with {known.member.n_train}")
        if form.evaluation and form.evaluation.test_dice_by_class.keys() != set(known.member.scored):
            raise ReplyError(f"it evaluated the classes {', '.join(form.evaluation.test_dice_by_class)}")
        layout = self._whole if task.action == "evaluate" and self._whole else self._layout
        came = reply_from(form, answer.arrays, layout, self.rules.pack, task.params)
        reply = replace(came, signed=signed.model_dump())
        if reply.params is None:
            return reply
        return replace(reply, params=replace(reply.params, vector=self._shelf.keep(reply.params.vector)))

    def _digest_of(self, task: Task) -> str:
        """The digest of a task's model; most tasks of a round bring the same one."""
        if self._sent is None or self._sent[0] is not task.params:
            self._sent = (task.params, task.params.digest)
        return self._sent[1]

    def _seat(self, parcel: _Ticket, answer: Parcel | str) -> None:
        """Take a new node's answer to the question which site it is."""
        node, name = self._nodes[parcel.node], "?"
        # If the node was asked more than once, its first answer counts.
        self._open = {ticket: other for ticket, other in self._open.items() if other.site or other.node != parcel.node}
        try:
            if isinstance(answer, str):
                raise _FailedError(answer)
            signed = Signed.read(answer.about)
            if kind_of(signed.content) == "failure":
                raise _FailedError(Failure.read(signed.content).what)
            form = MemberForm.read(signed.content)
            name = form.name
            check_author(form, signed, parcel.nonce, self.rules)
            expected = key_of(name, self.known, self.rules)
            if expected and form.key != expected and not node.key:
                node.asked, node.ask_at, node.key = False, self._clock(), expected
                return
            check_member(form, self.known, self.rules, self._n_channels)
        except _FailedError as error:
            if node.pause == FIRST_PAUSE:
                self._say("?", f"node {parcel.node} did not name its site, and is asked again: {str(error)[:300]}")
            node.asked, node.ask_at = False, self._clock() + node.pause
            node.pause = min(2 * node.pause, LONGEST_PAUSE)
            return
        except ReplyError as error:
            self._say(name, f"node {parcel.node} was refused: {error}")
            return
        before = self.node_by_site.get(name)
        self.node_by_site[name] = parcel.node
        self._packing.forget(name)
        if name not in self.known:
            self.known[name] = Known(form.key, form.member)
            self._reports.note(Event(self._round_no, name, "joined", self.known[name]))
        else:
            self._say(name, "came back" if before is None else "came back under another address")
        if before is not None and before != parcel.node:
            # Tasks sent to the old address are sent again to the new one; the old one may still be asked later.
            for ticket in [ticket for ticket, other in self._open.items() if other.site == name]:
                self._put_aside(ticket)
            if before in self._nodes:
                self._nodes[before] = _Node(ask_at=inf)


class _FailedError(ReplyError):
    """A site could not do its task; it is asked again."""


@dataclass
class _Asked:
    """The tasks of one round, and which sites have not answered yet."""

    waiting: dict[str, Task]
    replies: list[Reply] = field(default_factory=list)
    arrivals: list[float] = field(default_factory=list)
    """After how many seconds each reply came."""
    tries: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    send_at: dict[str, float] = field(default_factory=lambda: defaultdict(float))
