"""Whether everything in a ledger is signed by its author."""

from collections.abc import Mapping

from fedce import algorithms
from fedce.base.errors import ReplyError, RunError
from fedce.base.identity import is_signed
from fedce.core.ballot import REFERENCE
from fedce.core.decoys import Drawn
from fedce.core.recorded import Facts
from fedce.record.checks import Part
from fedce.record.entries import Change, End, EvaluationFacts, Join, Line, Replace, Round, Session
from fedce.record.folder import RunFolder
from fedce.record.ledger import Ledger, signed_text
from fedce.record.notices import notice_of
from fedce.record.standing import Standings
from fedce.record.votes import Signed
from fedce.site.wire import ReplyForm

REPORTED = {"n_train": "n_train", "score": "score", "loss": "loss", "err": "error_without"}
"""Keys of the ledger, and the fields of the site's answer that they come from."""
ASKED_FOR = ("score_local", "loss_before")
"""Keys of the ledger that a site reports only if asked."""


class Signatures(Part):
    """The coordinator's signature on every line, and the sites' signatures on their answers."""

    def __init__(
        self,
        run: RunFolder,
        ledger: Ledger,
        expected: str | None,
        trusted: str | None,
        pinned: Mapping[str, str],
    ) -> None:
        super().__init__()
        self.n_signed = self.n_lines_signed = 0
        self.algorithm = algorithms.built_in(run.config, ledger.format)
        key = ledger.begun.coordinator
        if expected is not None and key != expected:
            self.problems.append(f"the coordinator's key is {key or 'missing'}, not {expected}")
        self.doubt = "" if key and key == trusted else doubt_of(key)
        engine = run.config.engine
        stated = {site: own for site, own in engine.members.items() if own}
        self.standings = Standings.begun(ledger)
        joined = {line.site for line in ledger.of(Join)}
        self.joined_with = {line.key for line in ledger.of(Join)}
        for site in sorted(pinned.keys() - joined):
            self.problems.append(f"{site}, whose key you stated, never joined")
        # If no site has a key, all sites were the coordinator's own processes.
        have_keys = bool(joined or stated or pinned) or engine.name != "local" or ledger.begun.run is not None
        self.run = ledger.begun.run or ""
        before: Mapping[str, Facts] = {}
        round_no = 0
        for number, line in enumerate(ledger, 1):
            self._line(number, line, expected or key)
            self._change(f"line {number}", line, stated)
            self.standings.take(number, line)
            if have_keys and isinstance(line, Round):
                round_no = line.round_no + 1
                for site in line.sites:
                    self._answer(f"line {number}, {site}", site, line, before)
                self._votes(f"line {number}", line)
                before = line.facts
            if have_keys and isinstance(line, End):
                for site, said in line.evaluations.items():
                    self._evaluation(f"line {number}, {site}", site, said, round_no)
        self._pinned(ledger, pinned)
        if key:
            self.facts.append(f"{self.n_lines_signed} lines signed by the coordinator {key}")
        else:
            self.unchecked.append("the author: no coordinator signed the ledger")
        if have_keys:
            self.facts.append(f"{self.n_signed} answers signed by {len(joined)} sites")
        else:
            self.unchecked.append(
                "what the sites said: all were processes of the coordinator, without keys of their own"
            )

    def _change(self, where: str, line: Line, stated: Mapping[str, str]) -> None:
        """A site joins once and with its key, and only the right key's owner changes a key or withdraws."""
        if isinstance(line, Join):
            if line.site in self.standings.by_site:
                self.problems.append(f"{where}: {line.site} joins a second time")
            if (expected := stated.get(line.site, line.key)) != line.key:
                self.problems.append(f"{where}: {line.site} joins with the key {line.key}, but its key is {expected}")
        elif isinstance(line, Change):
            notice = notice_of(line.signed, where)
            by = self.standings.author_of(notice, line.signed)
            said = (line.kind, line.site, line.key, line.content.get("new"), line.by)
            if isinstance(by, RunError):
                self.problems.append(f"{where} ({line.kind} {line.site}): {by}")
            elif said != (notice.kind, notice.site, notice.key, notice.new, by):
                self.problems.append(f"{where} ({line.kind} {line.site}): something else was signed")

    def _pinned(self, ledger: Ledger, pinned: Mapping[str, str]) -> None:
        """The keys that the caller knows are the sites' keys, and no later key came without their signature."""
        for number, line in enumerate(ledger, 1):
            if isinstance(line, Join) and self.standings.used.get(own := pinned.get(line.site, line.key)) != line.site:
                self.problems.append(f"line {number}: {line.site} joins with the key {line.key}, but its key is {own}")
            if not isinstance(line, Replace):
                continue
            if line.site not in pinned:
                self.unchecked.append(
                    f"whether {line.site} agreed to the key that the coordinator gave it in line {number}: "
                    f"give the site's key, with --site {line.site}=KEY"
                )
            elif self.standings.ended.get(pinned[line.site], number + 1) <= number:
                self.problems.append(f"line {number}: the coordinator replaced the key that you stated for {line.site}")

    def _line(self, number: int, line: Line, key: str) -> None:
        if not key:
            if line.signature is not None:
                self.problems.append(f"line {number} is signed, but line 1 names no coordinator: line 1 was changed")
            return
        if isinstance(line, Session) and line.coordinator not in ("", key):
            self.problems.append(f"line {number}: the run was continued by another coordinator, {line.coordinator}")
        elif not is_signed(signed_text(line.content), line.signature or "", key):
            self.problems.append(f"line {number} is not signed by the coordinator")
        else:
            self.n_lines_signed += 1

    def _form(self, where: str, site: str, signed: Signed | None, round_no: int) -> ReplyForm | None:
        """The answer that the site signed with its key of that time; None, and a problem, if it signed none."""
        standing = self.standings.by_site.get(site)
        if standing is None or signed is None:
            self.problems.append(f"{where}: its answer is not signed" if standing else f"{where} never joined")
            return None
        if standing.gone:
            self.problems.append(f"{where}: its answer was used, although the ledger says before: {standing.gone}")
        if not is_signed(signed.content, signed.signature, standing.key):
            since = "joined with" if standing.key in self.joined_with else "has since it was changed"
            self.problems.append(f"{where}: the signature is not by the key that the site {since}")
            return None
        try:
            form = ReplyForm.read(signed.content)
        except ReplyError as error:
            self.problems.append(f"{where}: {error}")
            return None
        if (form.run, form.site, form.round_no) != (self.run, site, round_no):
            self.problems.append(
                f"{where}: the signed answer is of {form.site}, round {form.round_no + 1}, or of another run"
            )
        self.n_signed += 1
        return form

    def _answer(self, where: str, site: str, done: Round, before: Mapping[str, Facts]) -> None:
        """The recorded answer of a site is the one it signed; `before` holds the facts of the round before."""
        if (form := self._form(where, site, done.sites[site].signed, done.round_no)) is None:
            return
        facts = done.facts[site]
        said = {name: getattr(form, field) for name, field in REPORTED.items()}
        said["err_replicates"] = [round(error, 5) for error in form.error_replicates]
        said |= {name: getattr(form, name) for name in ASKED_FOR if name in facts}
        if self.algorithm is not None:
            said |= self.algorithm.signed(form, before.get(site, {}))
        for name, value in said.items():
            if facts.get(name) != value:
                self.problems.append(f"{where}: {name} is {facts.get(name)}, but the site signed {value}")

    def _votes(self, where: str, done: Round) -> None:
        """The recorded scores of a ballot are those that the scorers signed."""
        if done.ballot is None:
            return
        for site, scores in done.ballot.scores.items():
            if site == REFERENCE:  # The coordinator's own images: its signature is on the line.
                continue
            answers = done.ballot.signed.get(site, [])
            forms = [self._form(f"{where}, vote of {site}", site, one, done.round_no) for one in answers]
            said = [score for form in forms if form is not None for score in form.scores]
            if said != as_sent(done, site, list(scores)):
                self.problems.append(f"{where}, vote of {site}: the site signed other scores, or none")

    def _evaluation(self, where: str, site: str, said: EvaluationFacts, round_no: int) -> None:
        if (form := self._form(where, site, said.signed, round_no)) is None:
            return
        if form.evaluation is None or form.evaluation.evaluation != said.evaluation:
            self.problems.append(f"{where}: the site signed another evaluation of the final model")


def as_sent(done: Round, site: str, scores: list[float]) -> list[float]:
    """A scorer's scores in the order in which the models were sent, with that of the decoy."""
    held = done.ballot
    if held is None or not held.decoy:
        return scores
    weights = {left: done.sites[left].weight for left in held.without if left in done.sites}
    drawn = Drawn.of(held.secret, done.round_no, weights)
    return drawn.as_sent([*scores, held.decoy[site]]) if len(weights) == len(held.without) else scores


def doubt_of(key: str) -> str:
    """Why a coordinator's key that the caller neither gave nor holds proves nothing, and what to give."""
    if not key:
        return (
            "no coordinator signed it, so anybody could have written it; "
            "--head HASH, with the hash of a line that you got from the coordinator, shows that it is the same ledger"
        )
    return (
        f"it is signed by {key}, a key that nobody vouches for; "
        "give the key that you got from the coordinator, with --coordinator KEY"
    )
