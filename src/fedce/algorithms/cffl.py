"""CFFL (Lyu et al., 2020): weights by reputation, which follows the validation score of a site's own model (B2)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import sinh
from typing import Annotated, Any, Literal

from pydantic import Field

from fedce.algorithms.rewards import Rewards, add, sum_of, top, updates_of
from fedce.algorithms.shared import ByReputation, reputations_from_zero, reputations_of
from fedce.core.algorithm import Aggregated, Answers, Ask, State, Terms, Traits, hyperparameters
from fedce.core.credit import Credit
from fedce.core.messages import Reply, Task
from fedce.core.params import Params
from fedce.core.site import Memory, Site, evaluate_own
from fedce.core.weights import normalise

MEMORY = 0.8
AUTHORS_MEMORY = 0.2
SMALLEST_SCORE = 1e-6


@dataclass(frozen=True)
class OwnScore(Terms):
    """The validation score of a site's own model."""

    score_local: float


@hyperparameters
class CFFL(ByReputation):
    """Sites whose own models score well gain reputation; sites whose reputation falls too low are no longer asked."""

    alpha: Annotated[float, Field(gt=0, le=50)] = 5.0
    """How strongly better scores are favoured."""
    coef: Annotated[float, Field(ge=0, lt=1)] = 1 / 3
    """A site whose reputation falls below coef / N is dropped; 0 drops no site."""
    variant: Literal["stable", "published"] = "stable"
    """stable: one model for all, by sinh of the round's score. published: the authors' rule, with download quotas."""

    terms = OwnScore

    @property
    def traits(self) -> Traits:
        is_shared = self.variant == "stable"
        return Traits(personal=not is_shared, is_mean=is_shared, accumulates=False, expels=True)

    def initial_own(self, params: Params) -> Rewards | None:
        return Rewards() if self.variant == "published" else None

    def task(self, state: State, site: str) -> Task:
        task = replace(super().task(state, site), score_local=True)
        if self.variant == "stable":
            return task
        return replace(task, params=state.own.models.get(site, state.params))

    def evaluate(self, site: Site, task: Task, memory: Memory | None) -> Reply:
        if self.variant == "published":
            return evaluate_own(site, task, task.params)
        return super().evaluate(site, task, memory)

    def measure(self, state: State, answers: Answers, ask: Ask) -> dict[str, Any]:
        return {reply.site: OwnScore(reply.n_train, reply.score_local or 0.0) for reply in answers}

    def earlier(self, credit: Credit, sites: Iterable[str]) -> dict[str, float]:
        return (reputations_from_zero if self.variant == "published" else reputations_of)(credit, sites)

    def reputations(self, before: Mapping[str, float], terms: Mapping[str, Any]) -> dict[str, float]:
        x = normalise({site: max(term.score_local, SMALLEST_SCORE) for site, term in terms.items()})
        reputation = self.reputation(before, x)
        low = {site for site, value in reputation.items() if value < self.coef / len(reputation)}
        too_few_stay = self.variant == "stable" and len(reputation) - len(low) < 2
        if not low or too_few_stay:
            return reputation
        return normalise({site: 0.0 if site in low else value for site, value in reputation.items()})

    def reputation(self, old: Mapping[str, float], x: Mapping[str, float]) -> dict[str, float]:
        if self.variant == "stable":
            grown = normalise({site: sinh(self.alpha * x[site]) for site in x})
            return normalise({site: MEMORY * old[site] + (1 - MEMORY) * grown[site] for site in x})
        mixed = {site: AUTHORS_MEMORY * old[site] + (1 - AUTHORS_MEMORY) * x[site] for site in x}
        return normalise({site: sinh(self.alpha * value) for site, value in mixed.items()})

    def dropped(self, credit: Credit, terms: Mapping[str, Any]) -> dict[str, str]:
        low = sorted(site for site in terms if credit[site].value == 0)
        return {site: f"CFFL dropped {site}: its reputation fell below {self.coef:.3g} / N" for site in low}

    def aggregate(self, state: State, answers: Answers, rho: Mapping[str, float]) -> Aggregated:
        mean = super().aggregate(state, answers, rho)
        return mean if self.variant == "stable" else self._downloaded(state, answers, rho, mean.params)

    def _downloaded(self, state: State, answers: Answers, rho: Mapping[str, float], mean: Params) -> Aggregated:
        """Each site adds the largest entries of the common update to its model: the fewer, the lower its reputation.

        A dropped site gets nothing and keeps the model that it trained.
        """
        together = sum_of(updates_of(answers), [rho[site] for site in answers.sites])
        best = max(rho.values())
        models = dict(state.own.models)
        for site, trained in zip(answers.sites, answers.models, strict=True):
            quota = int(rho[site] / best * len(together))
            models[site] = add(answers.starts[site], top(together, quota), mean) if rho[site] > 0 else trained
        return Aggregated(add(state.params, together, mean), Rewards(models))
