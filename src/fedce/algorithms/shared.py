"""What several methods share: weights by images, equal weights, measured weights, and reputations."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fedce.core.algorithm import Algorithm, Answers, Ask, State, Terms, Traits
from fedce.core.credit import Credit, Gains
from fedce.core.messages import Reply, Task
from fedce.core.site import Memory, Site, train
from fedce.core.weights import normalise


class BySamples(Algorithm):
    """Weights and contributions by the number of training images, as in FedAvg."""

    @property
    def traits(self) -> Traits:
        return Traits(accumulates=False)


class Alike(BySamples):
    """All sites weigh the same."""

    def gains(self, credit: Credit, terms: Mapping[str, Any]) -> Gains:
        return dict.fromkeys(terms, (1.0,))


@dataclass(frozen=True)
class Weighed(Terms):
    """The terms of a method whose weights follow from the models alone."""

    weight: float


class ByMeanWeight(Algorithm):
    """A site's contribution is its mean weight over the rounds in which it took part.

    Weights count relative to an equal share, so that rounds with fewer sites do not pay more.
    """

    terms: ClassVar[type[Terms]] = Weighed

    @property
    def traits(self) -> Traits:
        return Traits(weights_are_measured=True)

    def gains(self, credit: Credit, terms: Mapping[str, Any]) -> Gains:
        weights = self.weigh(credit, terms)
        return {site: (len(weights) * weight,) for site, weight in weights.items()}

    def weigh(self, credit: Credit, terms: Mapping[str, Any]) -> dict[str, float]:
        return {site: term.weight for site, term in terms.items()}


@dataclass(frozen=True)
class Loss(Terms):
    """The training loss of the received model."""

    loss_before: float


class TellsLoss(Algorithm):
    """Sites report the training loss of the received model, by which they are weighed."""

    terms: ClassVar[type[Terms]] = Loss

    def local(self, site: Site, task: Task, memory: Memory | None) -> tuple[Reply, Memory]:
        loss_before = site.loss(task.params)
        reply, memory = train(site, task, memory)
        return replace(reply, loss_before=loss_before), memory

    def measure(self, state: State, answers: Answers, ask: Ask) -> dict[str, Any]:
        return {reply.site: Loss(reply.n_train, reply.loss_before or 0.0) for reply in answers}


class ByReputation(Algorithm):
    """A site's contribution is its reputation, which a round changes; an absent site keeps its part of the whole.

    An account holds two reputations: among all sites, and among the sites of this site's last round.
    """

    @property
    def traits(self) -> Traits:
        return Traits(accumulates=False)

    def reputations(self, before: Mapping[str, float], terms: Mapping[str, Any]) -> dict[str, float]:
        """The reputations of a round's sites after the round; they sum to 1."""
        raise NotImplementedError

    def earlier(self, credit: Credit, sites: Iterable[str]) -> dict[str, float]:
        """The reputations of a round's sites before the round."""
        return reputations_of(credit, sites)

    def gains(self, credit: Credit, terms: Mapping[str, Any]) -> Gains:
        now = self.reputations(self.earlier(credit, terms), terms)
        values = [account.value for account in credit.values()]
        newcomer = sum(values) / len(values) if values else 1.0
        part = sum(credit[site].value if site in credit else newcomer for site in now)
        part = part if part > 0 else newcomer * len(now)
        return {site: (value * part, value) for site, value in now.items()}

    def weigh(self, credit: Credit, terms: Mapping[str, Any]) -> dict[str, float]:
        return {site: credit[site].totals[1] for site in terms}


def reputations_of(credit: Credit, sites: Iterable[str]) -> dict[str, float]:
    """The reputations of these sites so far, scaled to a sum of 1; a newcomer starts as an average member."""
    known = {site: credit[site].value for site in sites if site in credit}
    newcomer = sum(known.values()) / len(known) if known else 1.0
    values = {site: known.get(site, newcomer) for site in sites}
    # If all reputations have fallen to zero, all sites present start again with equal ones.
    return normalise(values if sum(values.values()) > 0 else dict.fromkeys(values, 1.0))


def reputations_from_zero(credit: Credit, sites: Iterable[str]) -> dict[str, float]:
    """The reputations of these sites so far, scaled to a sum of 1; a site that was never measured has 0."""
    known = {site: credit[site].value if site in credit else 0.0 for site in sites}
    return normalise(known) if sum(known.values()) > 0 else known
