"""CFFL (Lyu et al., 2020): weights by reputation, which follows the validation score of a site's own model."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import sinh
from typing import Annotated, Any, Literal

from pydantic import Field

from fedce.algorithms.shared import ByReputation
from fedce.core.algorithm import Answers, Ask, State, Terms, Traits, hyperparameters
from fedce.core.credit import Credit
from fedce.core.messages import Task
from fedce.core.weights import normalise

MEMORY = 0.8
SMALLEST_SCORE = 1e-6


@dataclass(frozen=True)
class OwnScore(Terms):
    """The validation score of a site's own model."""

    score_local: float


@hyperparameters
class CFFL(ByReputation):
    """Sites whose own models score well gain reputation; those who fall too low are no longer asked."""

    alpha: Annotated[float, Field(gt=0, le=50)] = 5.0
    """How much better scores are favoured."""
    coef: Annotated[float, Field(ge=0, lt=1)] = 1 / 3
    """A site whose reputation falls below coef / N is dropped; 0 drops nobody."""
    variant: Literal["stable", "published"] = "stable"
    """sinh of the round's score, or of the running reputation, which collapses to one site."""

    terms = OwnScore

    @property
    def traits(self) -> Traits:
        return Traits(accumulates=False, expels=True)

    def task(self, state: State, site: str) -> Task:
        return replace(super().task(state, site), score_local=True)

    def measure(self, state: State, answers: Answers, ask: Ask) -> dict[str, Any]:
        return {reply.site: OwnScore(reply.n_train, reply.score_local or 0.0) for reply in answers}

    def reputations(self, before: Mapping[str, float], terms: Mapping[str, Any]) -> dict[str, float]:
        x = normalise({site: max(term.score_local, SMALLEST_SCORE) for site, term in terms.items()})
        reputation = self.reputation(before, x)
        low = {site for site, value in reputation.items() if value < self.coef / len(reputation)}
        if not low or len(reputation) - len(low) < 2:
            return reputation
        return normalise({site: 0.0 if site in low else value for site, value in reputation.items()})

    def reputation(self, old: Mapping[str, float], x: Mapping[str, float]) -> dict[str, float]:
        if self.variant == "stable":
            grown = normalise({site: sinh(self.alpha * x[site]) for site in x})
            return normalise({site: MEMORY * old[site] + (1 - MEMORY) * grown[site] for site in x})
        return normalise({site: sinh(self.alpha * (MEMORY * old[site] + (1 - MEMORY) * x[site])) for site in x})

    def dropped(self, credit: Credit, terms: Mapping[str, Any]) -> dict[str, str]:
        low = sorted(site for site in terms if credit[site].value == 0)
        return {site: f"CFFL dropped {site}: its reputation fell below {self.coef:.3g} / N" for site in low}
