"""FedCE (Jiang et al., CVPR 2023): weights by contribution, estimated in gradient space and in data space.

The paper's equations 2-6 in order, then the two halves that call them. Decisions (D..) are in docs/paper.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedce.algorithms.base import (
    Account,
    Ask,
    Memory,
    Site,
    State,
    Terms,
    aggregate,
    capped,
    evaluate_global,
    hyperparameters,
    models_of,
    normalise,
    train,
    without_site,
)
from fedce.algorithms.guard import Sketches, believed_novelty, examined, judged, suspects_after
from fedce.messages import Reply, Task
from fedce.params import Params, cosine, gram, one_blas_thread
from fedce.ranges import NOVELTY

FLOOR = 1e-6
PROBATION = 3
"""Rounds after which the guard knows a site."""


def gamma_cos(products: NDArray[np.float64], c: NDArray[np.float64]) -> list[float]:
    """Eq. 2: 1 - cos(delta_i, sum of c_j delta_j over the others j), in [0, 2], from the updates' inner products."""
    others = np.where(np.eye(len(c), dtype=bool), 0.0, c)  # In row i the weights of all but i.
    with one_blas_thread():
        square_of_others = np.einsum("ij,ij->i", others @ products, others)
    norms = np.sqrt(np.diag(products) * np.maximum(square_of_others, 0.0))
    cosines = np.divide(np.einsum("ij,ij->i", products, others), norms, out=np.zeros(len(c)), where=norms > 0)
    # No direction is not a new direction (D5). Rounding may carry a cosine past its bounds.
    return [0.0 if products[i, i] == 0 else NOVELTY.nearest(1.0 - float(cosine)) for i, cosine in enumerate(cosines)]


def gamma_cos_at_site(w_prev: Params, w_i_prev: Params, w: Params, rho_i: float) -> float:
    """Eq. 2 from what the site holds: w - w_prev is everybody's update, so the others' is that less its own (D1)."""
    delta_i = w_i_prev.trainable - w_prev.trainable
    similarity = cosine(delta_i, (w.trainable - w_prev.trainable) - np.float32(rho_i) * delta_i)
    return 1.0 - similarity if similarity is not None else float(delta_i.any())


def gamma_err(site: Site, w_without_i: Params) -> float:
    """Eq. 3: the error that the others' model makes on this site's validation images."""
    return 1.0 - site.score(w_without_i)


def normalised(gamma: Mapping[str, float | None]) -> dict[str, float]:
    """To a sum of 1. Floored, because noise over noise is noise (D6); what was not measured counts as average (D9)."""
    measured = {site: max(value, FLOOR) for site, value in gamma.items() if value is not None}
    mean = sum(measured.values()) / len(measured) if measured else 1.0
    return {site: measured.get(site, mean) / (mean * len(gamma)) for site in gamma}


def combined(how: str, cos: Mapping[str, float | None], err: Mapping[str, float | None]) -> dict[str, float]:
    """Eq. 4: product (Multi.), sum (Sum.), and the ablations with one term alone."""
    g_cos, g_err = normalised(cos), normalised(err)
    gamma: Mapping[str, Callable[[str], float]] = {
        "product": lambda i: g_cos[i] * g_err[i],
        "sum": lambda i: g_cos[i] + g_err[i],
        "cos": lambda i: g_cos[i],
        "err": lambda i: g_err[i],
    }
    return {i: gamma[how](i) for i in cos}


def rho_of(credit: Mapping[str, float], max_share: float) -> dict[str, float]:
    """Eq. 5: credit as weights that sum to 1 (D7), none above max_share, because 1 - rho is a divisor (D11)."""
    return capped(normalise(credit), max_share)


@hyperparameters
class FedCE:
    """Every site weighs by its estimated contribution."""

    combine: Literal["product", "sum", "cos", "err"] = "product"
    estimate: Literal["server", "site"] = "server"
    """Who measures Eq. 2: the server, on this round's updates, or each site, on the last round's (D1)."""
    preset: Literal["paper", "nvflare"] = "paper"
    """Combine in each round and accumulate, or average the raw terms over the rounds and combine (D14)."""
    start: Literal["uniform", "samples"] = "uniform"
    """The weights before anything was measured (D2)."""
    max_share: Annotated[float, Field(gt=0, le=1)] = 0.8
    guard: Literal["standard", "off"] = "standard"
    """Give no credit and no weight to updates that are bad rather than new (docs/trust.md); off: the paper as it is."""

    personal: ClassVar[bool] = False
    exchanges: ClassVar[bool] = True
    evaluate = staticmethod(evaluate_global)

    def local(self, site: Site, task: Task, memory: Memory | None) -> tuple[Reply, Memory]:
        err = cos = None
        err_replicates: tuple[float, ...] = ()
        if (w_without_i := without_site(task, memory)) and task.rho is not None:
            err = gamma_err(site, w_without_i)
            err_replicates = tuple(1.0 - score for score in site.score_replicates(w_without_i))
            if memory and memory.received and memory.round_no == task.round_no - 1:
                cos = gamma_cos_at_site(memory.received, memory.params, task.params, task.rho)
        reply, memory = train(site, task, memory)
        received = task.params if self.estimate == "site" else None
        reply = replace(reply, error_without=err, error_replicates=err_replicates, novelty=cos)
        return reply, replace(memory, received=received)

    def round(self, state: State, ask: Ask) -> State:
        replies = ask(state.tasks())
        n_train = {reply.site: reply.n_train for reply in replies}
        rho_prev = self.weights(state.accounts, n_train)
        terms, sketches = self.measure(state, replies, rho_prev)
        accounts = self.earn(state.accounts, terms)
        rho = self.weights_of_round(state.accounts, accounts, terms, n_train)
        shares = self.shares(accounts) if accounts else rho
        after = aggregate(state, replies, rho, accounts, shares, terms)  # Eq. 6
        return replace(after, sketches=sketches, suspects=suspects_after(state.suspects, terms))

    def measure(
        self, state: State, replies: list[Reply], rho_prev: Mapping[str, float]
    ) -> tuple[dict[str, Terms], Sketches]:
        """This round's raw terms, Eqs. 2 and 3, and what the guard makes of them and keeps."""
        if self.estimate == "site" and self.guard == "off":
            return {reply.site: Terms(reply.novelty, reply.error_without) for reply in replies}, {}
        products = gram(models_of(replies), state.params)
        c = np.array([rho_prev[reply.site] for reply in replies])
        if self.guard == "off":
            cos = gamma_cos(products, c)
            return {r.site: Terms(value, r.error_without) for r, value in zip(replies, cos, strict=True)}, {}
        signs, sketches = examined(state, replies, products)
        if any(not found.is_bad for found in signs.values()):
            c *= [not signs[reply.site].is_bad for reply in replies]
        terms = {}
        for reply, measured in zip(replies, gamma_cos(products, c), strict=True):
            found = signs[reply.site]
            if self.estimate == "server":
                terms[reply.site] = judged(Terms(measured, reply.error_without), found)
            else:
                novelty = believed_novelty(reply.novelty, state.terms.get(reply.site, Terms()))
                terms[reply.site] = judged(Terms(novelty, reply.error_without), replace(found, novelty=measured))
        return terms, sketches

    def earn(self, accounts: Mapping[str, Account], terms: Mapping[str, Terms]) -> dict[str, Account]:
        """Eq. 5's sums over rounds. What an average site earns does not depend on the number of sites (D10)."""
        measured = {i: term for i, term in terms.items() if term.cos is not None}
        good = {i: term for i, term in measured.items() if term.trust > 0}
        cos, err = {i: term.cos for i, term in good.items()}, {i: term.believed for i, term in good.items()}
        unit = len(good) ** (2 if self.combine == "product" else 1)
        gamma = combined(self.combine, cos, err)
        earned = dict(accounts)
        for i, term in measured.items():
            old = accounts.get(i, Account())
            unmeasured = old.err / old.rounds if old.rounds else 1.0
            if term.trust == 0 and old.rounds < PROBATION:  # Noise takes some rounds to be known for it.
                old = Account(old.rounds)
            if term.past < 1:
                old = Account(old.rounds, *(term.past * total for total in (old.value, old.cos, old.err)))
            earned[i] = Account(
                rounds=old.rounds + 1,
                value=old.value + term.trust * unit * gamma.get(i, 0.0),
                cos=old.cos + term.trust * (term.cos or 0.0),
                err=old.err + term.trust * (unmeasured if (e := term.believed) is None else e),
            )
        return earned

    def weights_of_round(
        self,
        before: Mapping[str, Account],
        after: Mapping[str, Account],
        terms: Mapping[str, Terms],
        n_train: Mapping[str, int],
    ) -> dict[str, float]:
        """Eq. 5 for those whose updates are used; with estimate="site" by what was earned before this round."""
        used = {i: n for i, n in n_train.items() if terms[i].trust > 0} or n_train
        rho = self.weights(after if self.estimate == "server" else before, used)
        return {i: rho.get(i, 0.0) for i in n_train}

    def weights(self, accounts: Mapping[str, Account], n_train: Mapping[str, int]) -> dict[str, float]:
        """Eq. 5: the weights of the sites in n_train, by the mean credit of the rounds in which each was measured."""
        known = {i: accounts[i] for i in n_train if i in accounts}
        if not known:
            start = {i: float(n) if self.start == "samples" else 1.0 for i, n in n_train.items()}
            return rho_of(start, self.max_share)
        if self.preset == "paper":
            credit = {i: account.value / account.rounds for i, account in known.items()}
        else:
            cos = {i: account.cos / account.rounds for i, account in known.items()}
            err = {i: account.err / account.rounds for i, account in known.items()}
            credit = normalised(combined(self.combine, cos, err))
        if not any(credit.values()):  # Nobody has earned anything yet.
            credit = dict.fromkeys(credit, 1.0)
        newcomer = sum(credit.values()) / len(credit)
        return rho_of({i: credit.get(i, newcomer) for i in n_train}, self.max_share)

    def shares(self, accounts: Mapping[str, Account], n_rounds: Mapping[str, int] | None = None) -> dict[str, float]:
        """Contributions so far, of everybody ever measured.

        Guarded, whoever was measured in fewer rounds than the guard needs to know a site counts as at most the least
        of those whom it knows: noise could otherwise come for two rounds and leave with their credit. `n_rounds` says
        how many, where the accounts are of some rounds of a run alone.
        """
        n_rounds = n_rounds or {i: account.rounds for i, account in accounts.items()}
        found = self.weights(accounts, dict.fromkeys(accounts, 0))
        known = [share for i, share in found.items() if n_rounds[i] >= PROBATION and share > 0]
        new = {i: n for i, n in n_rounds.items() if n < PROBATION}
        if self.guard == "off" or not known or not new:
            return found
        return normalise({**found, **{i: min(found[i], min(known)) * n / PROBATION for i, n in new.items()}})
