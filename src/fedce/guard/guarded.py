"""The guard around any algorithm: bad replies are left out, doubtful sites earn less, overstated claims are corrected.

The algorithm is unaware of the guard. docs/trust.md says what is found and what is not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedce.core.algorithm import Aggregated, Answers, Ask, Replayer, State, Terms
from fedce.core.credit import Credit, Gains
from fedce.core.messages import Reply
from fedce.core.params import Params, folded, one_blas_thread, sketch, wide_sketch
from fedce.core.recorded import Facts
from fedce.core.weights import normalise
from fedce.core.wrapping import Wrapping, of_inner
from fedce.guard.claims import Book, Books, squared_distances
from fedce.guard.evidence import Claim, Related, Updates, sketches_with
from fedce.guard.names import Attendance
from fedce.guard.signs import Signs, look
from fedce.guard.verdicts import (
    Verdict,
    believed_errors,
    books_of,
    lengths_with,
    related_with,
    suspects_after,
    with_bounds,
)

PROBATION = 5
"""Number of rounds after which the guard knows a site."""
MANY = 100
"""Among more sites, updates are compared by wide sketches: all pairs of whole updates take too long."""
NOVELTY_SLACK = 0.05
"""A site's own measure of Eq. 2 may exceed the server's by this much."""


@dataclass(frozen=True)
class GuardState:
    """What the guard remembers, and what the guarded algorithm keeps."""

    inner: Any = None
    sketches: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    """Sketches of each site's last updates."""
    suspects: tuple[str, ...] = ()
    """Sites that went against the others, and have not returned."""
    moved: Mapping[str, float] = field(default_factory=dict)
    """How far the part of each site moved the last common model: squared distances."""
    books: Mapping[str, Book] = field(default_factory=dict)
    """What each site claimed so far beyond what its own score says."""
    lengths: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Lengths of each site's last updates that were used, in medians of their rounds."""
    related: Mapping[str, Related] = field(default_factory=dict)
    """Each site's agreement with the others in its first rounds."""
    attendance: Attendance = field(default_factory=lambda: Attendance({}, {}))
    """Who took part when, and which names continue the updates of a name that is then absent."""
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    """The verdicts of the last round."""


@dataclass(frozen=True)
class GuardedTerms(Terms):
    inner: Any
    """What the algorithm measured; None for a site whose reply is not used."""
    verdict: Verdict
    novelty: float | None = None
    """Eq. 2 as the site claims it, as far as the guard believes it; only if sites measure Eq. 2."""


@dataclass(frozen=True)
class Examined:
    """A round as the guard sees it."""

    believed: Answers
    """The replies that the algorithm gets to see."""
    verdicts: Mapping[str, Verdict]
    sketches: Mapping[str, NDArray[np.float32]]
    products: NDArray[np.float64]
    """Inner products of all updates of the round."""
    attendance: Attendance


@dataclass(frozen=True)
class Guarded(Wrapping):
    """An algorithm with the guard around it: it sees only replies that are believed, and gains count as far as trusted.

    >>> from fedce.core.algorithm import Algorithm
    >>> good, bad = Verdict(None, Signs(length=1.0)), Verdict(None, Signs(length=0.0), trust=0.0)
    >>> terms = {"north": GuardedTerms(30, Terms(30), good), "south": GuardedTerms(10, None, bad)}
    >>> Guarded(Algorithm()).earn(Credit(), terms)["south"]
    Account(rounds=1, totals=(0.0,))
    """

    def initial_own(self, params: Params) -> GuardState:
        return GuardState(self.inner.initial_own(params))

    def measure(self, state: State, answers: Answers, ask: Ask) -> dict[str, Any]:
        found = self._examined(state, answers)
        terms = self.inner.measure(of_inner(state), found.believed, ask)
        return {
            reply.site: GuardedTerms(
                reply.n_train,
                terms.get(reply.site),
                found.verdicts[reply.site],
                believed_novelty(reply.novelty, _novelty_in(state.own.verdicts.get(reply.site))),
            )
            for reply in answers
        }

    def _examined(self, state: State, answers: Answers) -> Examined:
        return answers.once("guard", lambda: self._examine(state, answers))

    def _examine(self, state: State, answers: Answers) -> Examined:
        wide = {
            reply.site: wide_sketch(reply.params.trainable, answers.starts[reply.site].trainable)
            for reply in answers
            if reply.params is not None
        }
        own: GuardState = state.own
        updates = {site: folded(found) for site, found in wide.items()}
        sketches = sketches_with(own.sketches, updates, sketch(state.params.trainable))
        products = answers.products if len(answers) <= MANY else inner_products_of(list(wide.values()))
        attendance = own.attendance.with_round(state.round_no, sketches, list(wide))
        claims = {reply.site: claim_of(reply, own) for reply in answers}
        entered = {site: state.rho.get(site, 0.0) for site in answers.sites}
        signs = look(
            Updates(
                answers.sites,
                products,
                sketches,
                claims,
                entered,
                suspects=own.suspects,
                round_no=state.round_no,
                moved={site: far for site, far in own.moved.items() if site not in state.strangers + state.shortened},
                owing=own.moved.keys(),
                lengths_before=own.lengths,
                absent_names=attendance.seen,
            )
        )
        signs = with_bounds(signs, own.books)
        if self.traits.sites_claim_novelty:
            compared = Answers(answers.replies, answers.starts)
            compared.once("products", lambda: products)
            signs = self._with_novelty(state, compared, signs)
        verdicts = {reply.site: Verdict.of(reply.error_without, signs[reply.site]) for reply in answers}
        used = [reply for reply in answers if verdicts[reply.site].trust > 0] or list(answers)
        errors = believed_errors({reply.site: verdicts[reply.site] for reply in used})
        believed = [
            replace(
                reply,
                error_without=errors[reply.site],
                novelty=believed_novelty(reply.novelty, _novelty_in(own.verdicts.get(reply.site))),
            )
            for reply in used
        ]
        return Examined(answers.with_replies(believed), verdicts, sketches, products, attendance)

    def _with_novelty(self, state: State, answers: Answers, signs: Mapping[str, Signs]) -> dict[str, Signs]:
        """The signs with Eq. 2 as the server measures it, to check the sites' own claims in the next round."""
        bad = [site for site, found in signs.items() if found.is_bad]
        measured = self.inner.novelty(  # type: ignore[attr-defined]
            of_inner(state), answers, without=bad if len(bad) < len(signs) else ()
        )
        return {site: replace(found, novelty=measured[site]) for site, found in signs.items()}

    def gains(self, credit: Credit, terms: Mapping[str, Any]) -> Gains:
        """Gains as far as each site is trusted; a bad site earns nothing in a round that measures other sites."""
        gains = self.inner.gains(credit, _used(terms))
        if not gains:
            return {}
        nothing = tuple(0.0 for _ in next(iter(gains.values())))
        counting = {site: term for site, term in terms.items() if site in gains or term.inner is None}
        return {
            site: tuple(term.verdict.trust * gain for gain in gains.get(site, nothing))
            for site, term in counting.items()
        }

    def earn(self, credit: Credit, terms: Mapping[str, Any]) -> Credit:
        """Noise is recognised only after some rounds: a bad site that is not known yet loses what it had."""
        gains = self.gains(credit, terms)
        kept = {site: terms[site].verdict.past for site in gains if terms[site].verdict.past < 1}
        kept |= {
            site: 0.0
            for site in gains
            if terms[site].verdict.trust == 0 and site in credit and credit[site].rounds < PROBATION
        }
        before = credit.keeping(kept)
        return before.plus(gains) if self.traits.accumulates else before.replaced(gains)

    def weigh(self, credit: Credit, terms: Mapping[str, Any]) -> dict[str, float]:
        rho = self.inner.weigh(credit, _used(terms))
        if not self.traits.accumulates and any(0 < term.verdict.trust < 1 for term in terms.values()):
            rho = normalise(rho)
        return {site: rho.get(site, 0.0) for site in terms}

    def shares(self, credit: Credit, n_rounds: Mapping[str, int] | None = None) -> dict[str, float]:
        """A site measured in too few rounds to be known gets at most the smallest share of a known site: otherwise a
        sender of noise could take part in two rounds and leave with their credit.
        """
        n_rounds = n_rounds or {site: account.rounds for site, account in credit.items()}
        found = _without_floor(self.inner.shares(credit), credit)
        known = [share for site, share in found.items() if n_rounds[site] >= PROBATION and share > 0]
        new = {site: n for site, n in n_rounds.items() if n < PROBATION}
        if not known or not new:
            return found
        return normalise({**found, **{site: min(found[site], min(known)) * n / PROBATION for site, n in new.items()}})

    def aggregate(self, state: State, answers: Answers, rho: Mapping[str, float]) -> Aggregated:
        found = self._examined(state, answers)
        entering = {site: rho[site] for site in found.believed.sites}
        after = self.inner.aggregate(of_inner(state), found.believed, entering)
        own = GuardState(
            after.own,
            found.sketches,
            suspects_after(state.own.suspects, found.verdicts),
            self._moved(answers.sites, found.products, entering),
            books_of(state.own.books, found.verdicts),
            lengths_with(state.own.lengths, found.verdicts),
            related_with(state.own.related, found.verdicts),
            found.attendance,
            found.verdicts,
        )
        return replace(after, own=own)

    def _moved(
        self, sites: Sequence[str], products: NDArray[np.float64], entering: Mapping[str, float]
    ) -> dict[str, float]:
        """How far the part of each site moved the common model; nothing if no errors are asked for."""
        if not self.inner.uses_errors:
            return {}
        weights = np.array([entering.get(site, 0.0) for site in sites])
        far = squared_distances(products, weights).tolist()
        return {site: distance for site, distance in zip(sites, far, strict=True) if entering.get(site, 0.0) > 0}

    def dropped(self, credit: Credit, terms: Mapping[str, Any]) -> dict[str, str]:
        return self.inner.dropped(credit, _used(terms))

    def recorded(self, term: GuardedTerms) -> dict[str, Any]:
        measured = {} if term.inner is None else self.inner.recorded(term.inner)
        if self.traits.sites_claim_novelty:
            measured["cos"] = term.novelty
        return {**measured, **term.verdict.recorded}

    def read(self, sites: Mapping[str, Facts]) -> dict[str, Any]:
        verdicts = {site: Verdict.read(facts) for site, facts in sites.items()}
        used = [site for site in sites if verdicts[site].trust > 0] or list(sites)
        errors = believed_errors({site: verdicts[site] for site in used})
        inner = self.inner.read({site: {**sites[site], "err": errors[site]} for site in used})
        return {site: GuardedTerms(facts["n_train"], inner.get(site), verdicts[site]) for site, facts in sites.items()}

    def signed(self, said: Any, before: Facts) -> dict[str, Any]:
        found = self.inner.signed(said, before)
        if "cos" not in found:
            return found
        return {**found, "cos": believed_novelty(found["cos"], before.get("signs", {}).get("novelty"))}

    def lasting(self, rounds: Sequence[Mapping[str, Any]], site: str) -> list[float]:
        """A site loses what it earned if it was bad before the guard knew it; a site with a twin shares it."""
        parts = [1.0] * len(rounds)
        there = [n for n, terms in enumerate(rounds) if site in terms]
        bad = [k for k, n in enumerate(there[:PROBATION]) if rounds[n][site].verdict.trust == 0]
        for n in there[: bad[-1]] if bad else []:
            parts[n] = 0.0
        for n in there:
            if (past := rounds[n][site].verdict.past) < 1:
                parts[:n] = [part * past for part in parts[:n]]
        return parts

    def smoothed(self, facts: Facts) -> Facts:
        """The facts with a bound on the claimed error that has no jump."""
        verdict = Verdict.read(facts)
        return facts if verdict.most is None else {**facts, "err": verdict.believed, "most": None}

    def replay(self) -> Replayer:
        return GuardReplayer(self)


class GuardReplayer(Replayer):
    """Also checks that each verdict follows from the signs, and the signs from what the ledger holds."""

    is_guarded = True

    def __init__(self, algorithm: Guarded) -> None:
        super().__init__(algorithm)
        self.suspects: tuple[str, ...] = ()
        self.books: Books = {}
        self.entered: Mapping[str, float] = {}

    def round(self, sites: Mapping[str, Facts]) -> tuple[dict[str, float], dict[str, float], list[tuple[str, str]]]:
        rho, shares, problems = super().round(sites)
        verdicts = {site: Verdict.read(facts) for site, facts in sites.items()}
        bounded = with_bounds({site: verdict.signs for site, verdict in verdicts.items()}, self.books)
        for site, verdict in verdicts.items():
            signs = verdict.signs
            if "most_excess" not in sites[site]["signs"]:
                self.is_of_earlier_rules = True
                continue
            excess = None if signs.owes_error else Claim(sites[site]["score"], verdict.err, ()).excess
            known = (signs.suspected, signs.excess, signs.weight, signs.most_excess)
            follows = (site in self.suspects, excess, self.entered.get(site, 0.0), bounded[site].most_excess)
            if known != follows or (signs.owes_error and not self.entered.get(site)):
                problems.append((site, "what the guard saw does not follow from the ledger"))
            if Verdict.of(verdict.err, signs) != verdict:
                problems.append((site, "the trust in it does not follow from what the guard saw"))
        self.suspects = suspects_after(self.suspects, verdicts)
        self.books = books_of(self.books, verdicts)
        self.entered = {site: float(facts["weight"]) for site, facts in sites.items()}
        return rho, shares, problems


def _without_floor(shares: dict[str, float], credit: Credit) -> dict[str, float]:
    """Some methods give every site a little; a site that earned nothing while others did gets nothing."""
    idle = [site for site, share in shares.items() if share > 0 and not any(credit[site].totals)]
    if not idle or len(idle) == len(shares):
        return shares
    return normalise({**shares, **dict.fromkeys(idle, 0.0)})


def inner_products_of(sketches: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Inner products of the updates that have these wide sketches, up to the sketches' error."""
    rows = np.array(sketches)
    with one_blas_thread():
        found: NDArray[np.float64] = rows @ rows.T
    return found


def _used(terms: Mapping[str, GuardedTerms]) -> dict[str, Any]:
    return {site: term.inner for site, term in terms.items() if term.inner is not None}


def _novelty_in(last: Verdict | None) -> float | None:
    return last.signs.novelty if last else None


def claim_of(reply: Reply, own: GuardState) -> Claim:
    """What a reply claims, with what was known of the site before."""
    related = own.related.get(reply.site, Related())
    claim = Claim(reply.score, reply.error_without, reply.error_replicates, related=related)
    if (last := own.verdicts.get(reply.site)) is None:
        return claim
    return replace(
        claim,
        last_error=last.err,
        was_uniform=last.signs.uniform,
        rounds_alike=last.signs.rounds_alike,
        opposites=last.signs.opposites,
    )


def believed_novelty(claimed: float | None, measured: float | None) -> float | None:
    """Eq. 2 as the site measured it for its last update, unless the server measured less."""
    return measured if claimed is not None and measured is not None and claimed > measured + NOVELTY_SLACK else claimed
