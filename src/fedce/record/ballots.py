"""Whether the ballots of a ledger were held when they were due, and about the sites that had a part in the model."""

from collections import Counter
from dataclasses import replace

from fedce.base.identity import is_signed
from fedce.core.ballot import REFERENCE, Ballots, weighed_in
from fedce.core.decoys import secret_text
from fedce.record.checks import Part
from fedce.record.entries import Continued, Round, Session
from fedce.record.folder import RunFolder
from fedce.record.ledger import Ledger
from fedce.valuation.worth import RULE


class BallotsHeld(Part):
    """A coordinator could choose the ballots that it likes: so every one that was due must be there, and no other."""

    def __init__(self, run: RunFolder, ledger: Ledger) -> None:
        super().__init__()
        reason = ledger.begun.no_worth
        if reason is None:
            return
        due, n_held, n_decoys, n_silent = self._rule(run, ledger), 0, 0, 0
        rule, n_before = ledger.begun.worth_rule, Counter[str]()
        self.text, self.key = secret_text(run.config.seed), ledger.start.coordinator if ledger.start else ""
        for number, line in enumerate(ledger, 1):
            if isinstance(line, Session):
                reason, rule = line.no_worth, line.worth_rule
            if isinstance(line, Continued):
                due = replace(due, n_rounds=line.changed.rounds[1])
            if not isinstance(line, Round):
                continue
            # By an earlier rule other ballots were due.
            is_due = not reason and due.is_due(line.round_no, self._weighed(line), n_before)
            if rule == RULE and is_due != (line.ballot is not None):
                self.problems.append(f"line {number}: {'a ballot is missing' if is_due else 'no ballot was due'}")
            elif line.ballot is not None:
                n_held, n_decoys = n_held + 1, n_decoys + bool(line.ballot.decoy)
                n_before.update(line.ballot.without)
                n_silent += len(line.ballot.no_vote)
                self.problems += [f"line {number}: {what}" for what in self._problems(line, due, rule)]
        if n_held:
            when = "each held when it was due" if rule == RULE else "held by an earlier rule"
            self.facts.append(f"{n_held} ballots, {when}")
        if n_silent:
            self.facts.append(f"{n_silent} votes that were asked for and not given, each with its reason")
        if n_decoys:
            whose = "the secret that the coordinator signed" if self.key else "a secret that nobody signed"
            self.facts.append(f"{n_decoys} ballots with a decoy, drawn from {whose}")

    def _rule(self, run: RunFolder, ledger: Ledger) -> Ballots:
        """The rule by which ballots were due at first; a run that was continued had fewer rounds then."""
        longer = ledger.of(Continued)
        n_rounds = longer[0].changed.rounds[0] if longer else run.config.n_rounds
        return replace(Ballots.asked_by(run.config), n_rounds=n_rounds)

    @staticmethod
    def _weighed(line: Round) -> list[str]:
        return weighed_in({site: facts.weight for site, facts in line.sites.items()}, line.sites)

    def _problems(self, line: Round, due: Ballots, rule: int | None) -> list[str]:
        assert line.ballot is not None
        found = []
        if sorted(line.ballot.without) != self._weighed(line):
            found.append("the ballot is not about the sites that had a weight")
        allowed = {REFERENCE} if due.on_reference else set(due.scorers_of(sorted(line.sites)))
        if strangers := sorted(line.ballot.scores.keys() - allowed):
            found.append(f"{', '.join(strangers)} scored, and was not to be asked")
        # A coordinator that leaves out a vote must at least say so, and the site can object.
        lost = sorted(allowed - line.ballot.scores.keys() - line.ballot.no_vote.keys())
        if lost and rule == RULE:
            found.append(f"the votes of {', '.join(lost)} are missing, without a reason")
        if line.ballot.decoy and not self._is_secret(line.ballot.secret):
            found.append("the decoy was not drawn from the secret that the coordinator signed")
        return found

    def _is_secret(self, secret: str) -> bool:
        """A coordinator could choose the decoy that it likes; only one secret belongs to its key and the seed.

        Without a key nothing proves who wrote the ledger, and so nothing proves where its secret comes from.
        """
        return not self.key or is_signed(self.text, secret, self.key)
