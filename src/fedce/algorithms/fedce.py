"""FedCE (Jiang et al., CVPR 2023): weights by contribution, estimated in gradient space and in data space.

The paper's equations 2 to 6 in order, then the two halves that call them. Decisions (D..) are in docs/paper.md.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from math import prod
from operator import itemgetter
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedce.base.ranges import NOVELTY
from fedce.core.algorithm import Algorithm, Answers, Ask, State, Terms, hyperparameters
from fedce.core.credit import Credit, Gains
from fedce.core.messages import Reply, Task
from fedce.core.params import Params, one_blas_thread
from fedce.core.site import Memory, Site, train, without_site
from fedce.core.weights import capped, normalise

FLOOR = 1e-6


@dataclass(frozen=True)
class BothTerms(Terms):
    """Eqs. 2 and 3, before any normalisation; None where they could not be measured."""

    cos: float | None = None
    err: float | None = None


def gamma_cos(products: NDArray[np.float64], c: NDArray[np.float64]) -> list[float]:
    """Eq. 2: 1 - cos(delta_i, sum of c_j delta_j over the others j), in [0, 2], from the updates' inner products."""
    others = np.where(np.eye(len(c), dtype=bool), 0.0, c)  # In row i the weights of all but i.
    with one_blas_thread():
        square_of_others = np.einsum("ij,ij->i", others @ products, others)
    norms = np.sqrt(np.diag(products) * np.maximum(square_of_others, 0.0))
    cosines = np.divide(np.einsum("ij,ij->i", products, others), norms, out=np.zeros(len(c)), where=norms > 0)
    # A missing direction is not a new direction (D5). Rounding may carry a cosine past its bounds.
    return [0.0 if products[i, i] == 0 else NOVELTY.nearest(1.0 - float(cosine)) for i, cosine in enumerate(cosines)]


def gamma_err(site: Site, w_without_i: Params) -> tuple[float, tuple[float, ...]]:
    """Eq. 3: the error of the others' model on this site's validation cases, and on bootstrap samples of them."""
    return 1.0 - site.score(w_without_i), tuple(1.0 - score for score in site.score_replicates(w_without_i))


def normalised(gamma: Mapping[str, float | None]) -> dict[str, float]:
    """Scaled to a sum of 1. Floored, because noise over noise is noise (D6); unmeasured terms count as average (D9)."""
    measured = {site: max(value, FLOOR) for site, value in gamma.items() if value is not None}
    mean = sum(measured.values()) / len(measured) if measured else 1.0
    return {site: measured.get(site, mean) / (mean * len(gamma)) for site in gamma}


def combined(how: str, cos: Mapping[str, float | None], err: Mapping[str, float | None]) -> dict[str, float]:
    """Eq. 4: product (Multi.), sum (Sum.), and the ablations with only one term."""
    g_cos, g_err = normalised(cos), normalised(err)
    rule: Any = {"product": prod, "sum": sum, "cos": itemgetter(0), "err": itemgetter(1)}[how]
    return {i: float(rule((g_cos[i], g_err[i]))) for i in cos}


def rho_of(credit: Mapping[str, float], max_share: float) -> dict[str, float]:
    """Eq. 5: credit as weights that sum to 1 (D7), none above max_share, because 1 - rho is a divisor (D11)."""
    return capped(normalise(credit), max_share)


@hyperparameters
class FedCE(Algorithm):
    """Every site weighs by its estimated contribution.

    >>> FedCE(combine="sum")
    FedCE(combine='sum', start='uniform', max_share=0.8)
    """

    combine: Literal["product", "sum", "cos", "err"] = "product"
    start: Literal["uniform", "samples"] = "uniform"
    """The weights before any measurement (D2)."""
    max_share: Annotated[float, Field(gt=0, le=1)] = 0.8

    terms = BothTerms

    def local(self, site: Site, task: Task, memory: Memory | None) -> tuple[Reply, Memory]:
        others = without_site(task, memory)
        site.scores([others, task.params] if others else [task.params])  # Both in one pass over the images.
        err, replicates = gamma_err(site, others) if others else (None, ())
        reply, memory = train(site, task, memory)
        return replace(reply, error_without=err, error_replicates=replicates), memory

    def measure(self, state: State, answers: Answers, ask: Ask) -> dict[str, Any]:
        cos = self.novelty(state, answers)
        return {reply.site: BothTerms(reply.n_train, cos[reply.site], reply.error_without) for reply in answers}

    def novelty(self, state: State, answers: Answers, without: Collection[str] = ()) -> dict[str, float]:
        """Eq. 2 with the weights that the sites have earned so far; sites in `without` are not counted as others."""
        c = self.weigh(state.credit, {reply.site: BothTerms(reply.n_train) for reply in answers})
        weights = np.array([0.0 if site in without else weight for site, weight in c.items()])
        return dict(zip(c, gamma_cos(answers.products, weights), strict=True))

    def gains(self, credit: Credit, terms: Mapping[str, Any]) -> Gains:
        """Eq. 4. What an average site earns does not depend on the number of sites (D10)."""
        cos, err = ({i: getattr(t, key) for i, t in terms.items() if t.cos is not None} for key in ("cos", "err"))
        unit = len(cos) ** (2 if self.combine == "product" else 1)
        return {i: (unit * gamma,) for i, gamma in combined(self.combine, cos, err).items()}

    def weigh(self, credit: Credit, terms: Mapping[str, Any]) -> dict[str, float]:
        """Eq. 5 by the mean credit over the rounds in which a site was measured; a newcomer counts as average (D10)."""
        known = Credit({i: credit[i] for i in terms if i in credit})
        if not known:
            first = {i: float(term.n_train) if self.start == "samples" else 1.0 for i, term in terms.items()}
            return rho_of(first, self.max_share)
        earned = self.earned(known)
        if not any(earned.values()):  # No site has earned anything yet.
            earned = dict.fromkeys(earned, 1.0)
        newcomer = sum(earned.values()) / len(earned)
        return rho_of({i: earned.get(i, newcomer) for i in terms}, self.max_share)

    def shares(self, credit: Credit, n_rounds: Mapping[str, int] | None = None) -> dict[str, float]:
        return replace(self, max_share=1.0).weigh(credit, dict.fromkeys(credit, BothTerms(0)))  # D11 caps rho alone.

    @property
    def uses_errors(self) -> bool:
        return self.combine != "cos"
