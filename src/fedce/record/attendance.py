"""Which sites took part in each round, and why others did not; and whether a ledger says so for every site."""

from collections.abc import Collection, Mapping

from fedce import algorithms
from fedce.core.best import has_stalled
from fedce.core.draw import Draw
from fedce.record.checks import Part
from fedce.record.entries import Change, Continued, End, Join, Round
from fedce.record.folder import RunFolder
from fedce.record.ledger import Ledger
from fedce.record.standing import Standings

LEFT_OUT = "left out by the experiment"
EXPELLED = "expelled"
ABSENT = "absent"
NOT_DRAWN = "not drawn"
NOT_THERE = "not there when the round began"
NO_REPLY = "no reply"
"""Reasons why a site whose reply was not rejected has no part in a round."""


class Attendance(Part):
    """No round is missing, and no site is missing in a round without a reason that is possible in this run."""

    def __init__(self, run: RunFolder, ledger: Ledger) -> None:
        super().__init__()
        self.config = run.config
        self.is_local = self.config.engine.name == "local" and ledger.begun.run is None
        self._rounds(ledger)
        if ledger.format < 3:
            self.unchecked.append("why sites have no part in a round: an earlier version did not record it")
            return
        members = set(ledger.begun.sites)
        standings = Standings.begun(ledger)
        for number, line in enumerate(ledger, 1):
            standings.take(number, line)
            self.gone = standings.gone
            if isinstance(line, Join):
                members.add(line.site)
            elif isinstance(line, Continued):
                self._members(f"line {number}", line, members)
                members = set(line.sites) if self.is_local else members
            elif isinstance(line, Round):
                self._round(f"line {number}", line, members)
            elif isinstance(line, End):
                no_reply = "" if self.is_local else NO_REPLY
                reasons = {site: (self.gone.get(site, no_reply),) for site in line.missing}
                self._present(f"line {number}", line.evaluations, line, members, reasons)
        self.facts.append(f"in {len(ledger.rounds)} rounds every site took part, or the ledger says why not")

    def _members(self, where: str, line: Continued, before: Collection[str]) -> None:
        """Members that came or went at a continuation are named."""
        stated = {*before, *line.changed.joined} - {*line.changed.left}
        if self.is_local and stated != set(line.sites):
            different = ", ".join(sorted(stated ^ set(line.sites)))
            self.problems.append(f"{where}: the line does not say that {different} came or went")

    def _rounds(self, ledger: Ledger) -> None:
        n_rounds = len(ledger.rounds)
        expected = self.config.n_rounds if set(ledger.fingerprints) - set(self.config.leave_out) else 0
        if ledger.end is None or n_rounds == expected:
            return
        scores = [done.mean_score for done in ledger.rounds]
        if not (n_rounds < expected and has_stalled(scores, self.config.patience)):
            self.problems.append(f"the run ended after {n_rounds} rounds, but its experiment has {expected}")

    def _round(self, where: str, done: Round, members: Collection[str]) -> None:
        asked = set(done.asked)
        if unasked := sorted(done.sites.keys() - asked):
            self.problems.append(f"{where}: {', '.join(unasked)} took part but was not asked")
        for site in sorted(asked & self.gone.keys()):
            self.problems.append(f"{where}: {site} was asked, although the ledger says before: {self.gone[site]}")
        reasons = {site: self._reasons(site, site in asked) for site in done.missing}
        self._present(where, done.sites, done, members, reasons)

    def _reasons(self, site: str, was_asked: bool) -> tuple[str, ...]:
        """The reasons for which this site may have no part in a round of this experiment."""
        config = self.config
        if site in self.gone:
            return (self.gone[site],)
        if site in config.leave_out:
            return (LEFT_OUT,)
        if was_asked:
            return () if self.is_local and site not in config.freerider.plant else (NO_REPLY,)
        algorithm = algorithms.built_in(config)
        expels = algorithm is None or algorithm.traits.expels
        return (
            *((EXPELLED,) if expels else ()),
            *((ABSENT, NOT_DRAWN) if config.sites_per_round is not None else ()),
            *(() if self.is_local else (NOT_THERE,)),
        )

    def _present(
        self,
        where: str,
        there: Collection[str],
        line: Round | End,
        members: Collection[str],
        reasons: Mapping[str, tuple[str, ...]],
    ) -> None:
        missing, rejected = line.missing, line.rejected
        for site in sorted({*members, *missing}):
            if site in missing and (site in there or site in rejected):
                self.problems.append(f"{where}: {site} took part, but is recorded as missing ({missing[site]})")
            elif site in missing and missing[site] not in reasons[site]:
                self.problems.append(f"{where}: {site} is missing as {missing[site]!r}, which this run does not allow")
            elif site not in missing and site not in there and site not in rejected:
                self.problems.append(f"{where}: {site} is missing, and the ledger does not say why")


class Draws(Part):
    """If not all sites take part in every round: no site was passed over."""

    def __init__(self, run: RunFolder, ledger: Ledger) -> None:
        super().__init__()
        config = run.config
        if config.sites_per_round is None:
            return
        if (algorithm := algorithms.built_in(config)) is not None and algorithm.traits.expels:
            self.unchecked.append(f"which sites are drawn: {config.algorithm.name} expels sites")
            return
        self._check(Draw(config.sites_per_round, config.seed), config.leave_out, ledger)

    def _check(self, lot: Draw, leave_out: Collection[str], ledger: Ledger) -> None:
        draws = dict.fromkeys((site for site in ledger.begun.sites if site not in leave_out), 0)
        n_checked = 0
        for number, line in enumerate(ledger, 1):
            if isinstance(line, Join) and line.site not in (*draws, *leave_out):
                # The ledger does not say from which round on a late comer may be drawn.
                self.unchecked.append(f"which sites are drawn after round {n_checked}: {line.site} joined late")
                return
            if isinstance(line, Change) or (isinstance(line, Continued) and line.changed.joined + line.changed.left):
                self.unchecked.append(f"which sites are drawn after round {n_checked}: members came or went")
                return
            if not isinstance(line, Round):
                continue
            here = {site: n for site, n in draws.items() if site not in line.absent}
            asked, expected = set(line.asked), set(lot.sites(here, line.round_no))
            if asked != expected:
                passed_over, instead = ", ".join(sorted(expected - asked)), ", ".join(sorted(asked - expected))
                self.problems.append(f"line {number}: {passed_over} was passed over for {instead or 'nobody'}")
                return
            if unasked := sorted(line.sites.keys() - asked):
                self.problems.append(f"line {number}: {', '.join(unasked)} took part but was not drawn")
                return
            draws |= {site: draws[site] + 1 for site in asked}
            n_checked += 1
        self.facts.append(f"the sites of {n_checked} rounds drawn again")
