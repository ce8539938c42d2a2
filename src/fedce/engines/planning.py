"""Before round 1: the coordinator collects the sites' fingerprints over the network, and plans what nobody wrote."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from time import monotonic, sleep
from typing import Any

from pydantic import ValidationError

from fedce.base.config import Config, stated_in, with_planned
from fedce.base.errors import ConfigError, DataError, ReplyError, first_problem
from fedce.base.files import write_sealed
from fedce.base.recipes import value_at
from fedce.data.fingerprint import Fingerprint, Fingerprints
from fedce.engines.courier import Courier
from fedce.engines.joining import SILENT_SECONDS, Reports, Rules, check_author, key_of
from fedce.federation.plan import resolve
from fedce.learning.planning import Planned, completed_by, plan_of, together
from fedce.record.folder import RunFolder
from fedce.site.wire import Failure, FingerprintForm, Hello, Parcel, Signed, kind_of

POLL_SECONDS = 0.1
PAUSE_SECONDS = 5.0
"""Seconds until a node that could not answer is asked again."""


@dataclass(frozen=True)
class Sent:
    """A site's answer: its fingerprint as it signed it; None if the site refuses to send one."""

    signed: Signed
    form: FingerprintForm
    fingerprint: Fingerprint | None


@dataclass
class Collecting:
    """Asks every node for its site's fingerprint, until all members have answered."""

    courier: Courier
    rules: Rules
    reports: Reports
    clock: Callable[[], float] = monotonic
    pause: Callable[[float], None] = sleep
    by_site: dict[str, Sent] = field(default_factory=dict)
    _asked: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Ticket to node and nonce."""
    _ask_at: dict[str, float] = field(default_factory=dict)

    def all(self) -> dict[str, Sent]:
        """The answers by site. After join_seconds, min_sites answers are enough, as for the first round."""
        began = self.clock()
        while True:
            self._ask()
            for ticket, answer in self.courier.collect():
                if (asked := self._asked.pop(ticket, None)) is not None:
                    self._take(*asked, answer)
            missing = self.rules.members.keys() - self.by_site.keys()
            waited = self.clock() - began >= self.rules.join_seconds
            if len(self.by_site) >= self.rules.min_sites and ((self.rules.members and not missing) or waited):
                return dict(sorted(self.by_site.items()))
            self.pause(POLL_SECONDS)

    def _ask(self) -> None:
        here, now = set(self.courier.nodes()), self.clock()
        for node in sorted(here):
            if now >= self._ask_at.get(node, 0.0):
                nonce = secrets.token_hex(16)
                hello = Hello(run=self.rules.run, nonce=nonce, wants="fingerprint")
                if ticket := self.courier.send(node, Parcel(hello.model_dump_json(), {}), 0):
                    self._asked[ticket] = (node, nonce)
                    self._ask_at[node] = now + SILENT_SECONDS
        for ticket in [ticket for ticket, (node, _) in self._asked.items() if node not in here]:
            del self._asked[ticket]

    def _take(self, node: str, nonce: str, answer: Parcel | str) -> None:
        try:
            sent = _read(answer, nonce, self.rules)
        except ReplyError as error:
            self.reports.notice(f"node {node} sent no fingerprint: {str(error)[:300]}")
            self._ask_at[node] = self.clock() + PAUSE_SECONDS
            return
        self._ask_at[node] = inf
        before = self.by_site.setdefault(sent.form.name, sent)
        if before.form.key != sent.form.key:
            self.reports.notice(
                f"node {node} was refused: {sent.form.name!r} has sent its fingerprint with another key"
            )
        elif sent.fingerprint is None:
            self.reports.notice(f"{sent.form.name}: sends no fingerprint; the plan is made without it")


def _read(answer: Parcel | str, nonce: str, rules: Rules) -> Sent:
    if isinstance(answer, str):
        raise ReplyError(answer)
    signed = Signed.read(answer.about)
    if kind_of(signed.content) == "failure":
        raise ReplyError(Failure.read(signed.content).what)
    form = FingerprintForm.read(signed.content)
    check_author(form, signed, nonce, rules)
    if (expected := key_of(form.name, {}, rules)) and form.key != expected:
        raise ReplyError(f"it has another key than the member {form.name!r}")
    if (version := form.versions.get("fedce")) != rules.version:
        raise ReplyError(f"it runs fedce {version}, the server {rules.version}; all need the same")
    try:
        found = Fingerprint.model_validate_json(form.fingerprint) if form.fingerprint else None
    except ValidationError as error:
        raise ReplyError(f"its fingerprint has the wrong form ({first_problem(error)[:300]})") from None
    if found is not None and found.site != form.name:
        raise ReplyError(f"it sent the fingerprint of {found.site!r}, and is {form.name!r}")
    return Sent(signed, form, found)


@dataclass(frozen=True)
class FromSites:
    """An experiment whose missing keys were planned from the sites' fingerprints."""

    config: Config
    values: Mapping[str, Any]
    """The planned values by key, which the sites are told."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """The key with which each site sent its fingerprint."""

    def rules(self, rules: Rules) -> Rules:
        """The rules of the run: a site that sent a fingerprint must join with the same key."""
        members = {name: key or self.keys.get(name, "") for name, key in rules.members.items()}
        return replace(rules, members=members, size=self.config.data.size, planned=self.values)


def planned_by_sites(config: Config, run_folder: RunFolder, collecting: Collecting) -> FromSites:
    """Plan what the experiment leaves to the sites' fingerprints; a run that has begun keeps its plan."""
    if not config.unplanned:
        return FromSites(config, {})
    if run_folder.ledger().start is not None:
        values = _values(run_folder.config, config.unplanned)
        return FromSites(with_planned(config, values), values)
    sent = collecting.all()
    found = _plan(config, sent)
    collecting.reports.notice(found.line)
    content = {site: {"key": one.form.key, **one.signed.model_dump()} for site, one in sent.items()}
    write_sealed(run_folder.fingerprints_file, {"sites": content})
    # With what follows from the algorithm: FedBN, for one, keeps norm layers at the sites whatever a plan says.
    planned = resolve(with_planned(config, {one.key: one.value for one in found.chosen}))
    keys = {site: one.form.key for site, one in sent.items()}
    return FromSites(planned, _values(planned, config.unplanned), keys)


def _values(planned: Config, keys: Sequence[str]) -> dict[str, Any]:
    tree = stated_in(planned)
    return {key: value for key in keys if (value := value_at(tree, key)) is not None}


def _plan(config: Config, sent: Mapping[str, Sent]) -> Planned:
    known = [(one.fingerprint, one.form.shape) for one in sent.values() if one.fingerprint is not None]
    if len(known) < 2:
        refused = ", ".join(site for site, one in sent.items() if one.fingerprint is None)
        raise ConfigError(
            f'recipe = "plan": a plan needs fingerprints of at least two sites, and {len(known)} sent one '
            f"(refused by: {refused or 'nobody'}); write {config.unplanned[0]} and the other keys of a plan yourself"
        )
    tree = stated_in(config)
    shapes = {shape for _, shape in known}
    try:
        fingerprints = together([fingerprint for fingerprint, _ in known])
        # If all sites have images of one size that nobody may change, the network is planned for it.
        shape = shapes.pop() if len(shapes) == 1 else None
        return completed_by(tree, plan_of(Fingerprints(fingerprints, shape), tree))
    except DataError as error:
        raise ConfigError(f'recipe = "plan": {error}') from None
