"""CFFL (Lyu et al., 2020): weights by reputation, which follows the validation score of a site's own model."""

from dataclasses import replace
from math import sinh
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from fedce.algorithms.base import (
    Ask,
    State,
    aggregate,
    evaluate_global,
    hyperparameters,
    normalise,
    remember,
    reputations,
    train,
)

MEMORY = 0.8
SMALLEST_SCORE = 1e-6


@hyperparameters
class CFFL:
    """Sites whose own models score well gain reputation; those who fall too low are no longer asked."""

    alpha: Annotated[float, Field(gt=0, le=50)] = 5.0
    """How much better scores are favoured."""
    coef: Annotated[float, Field(ge=0, lt=1)] = 1 / 3
    """A site whose reputation falls below coef / N is dropped; 0 drops nobody."""
    variant: Literal["stable", "published"] = "stable"
    """sinh of the round's score, or of the running reputation, which collapses to one site."""

    personal: ClassVar[bool] = False
    exchanges: ClassVar[bool] = True
    local = staticmethod(train)
    evaluate = staticmethod(evaluate_global)

    def round(self, state: State, ask: Ask) -> State:
        replies = ask([replace(task, score_local=True) for task in state.tasks()])
        x = normalise({reply.site: max(reply.score_local or 0.0, SMALLEST_SCORE) for reply in replies})
        reputation = self.reputation(reputations(state, x), x)
        low = {site for site, value in reputation.items() if value < self.coef / len(reputation)}
        stay = tuple(site for site in state.sites if site not in low)
        if low and len(stay) >= 2:
            reputation = normalise({site: 0.0 if site in low else value for site, value in reputation.items()})
            state = replace(state, sites=stay)
            notes = tuple(f"CFFL dropped {site}: its reputation fell below {self.coef:.3g} / N" for site in sorted(low))
        else:
            notes = ()
        return replace(aggregate(state, replies, reputation, *remember(state, reputation)), notes=notes)

    def reputation(self, old: dict[str, float], x: dict[str, float]) -> dict[str, float]:
        if self.variant == "stable":
            grown = normalise({site: sinh(self.alpha * x[site]) for site in x})
            return normalise({site: MEMORY * old[site] + (1 - MEMORY) * grown[site] for site in x})
        return normalise({site: sinh(self.alpha * (MEMORY * old[site] + (1 - MEMORY) * x[site])) for site in x})
