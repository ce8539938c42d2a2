"""An algorithm of your own in one file: sites are weighted by how much their training gains.

Every site reports the validation Dice of the model that it received and of the model that it trained from it. The
difference, its gain, shows what its images taught the model; a site's weight is its mean part of all gains so far.
From the repository's root:

    fedce run --algorithm examples.own_algorithm:ValidationGain --scale tiny --set algorithm.floor=0.05

This is an example, not a published method: a site with more images makes more steps in a round and so gains more,
unusual labels gain as much as rare patients do, and a site that lies about its gain is believed.
docs/own-algorithm.md explains the parts; tests/contract checks what every algorithm must fulfil.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import Field

from fedce.core.algorithm import Algorithm, Answers, Ask, State, Terms, hyperparameters
from fedce.core.credit import Credit, Gains
from fedce.core.messages import Reply, Task
from fedce.core.weights import normalise


@dataclass(frozen=True)
class Gain(Terms):
    """What the ledger keeps about a site: its validation Dice after local training minus that before."""

    gain: float


def gain(reply: Reply) -> float:
    """The site's gain; training that made the model worse counts as 0."""
    return max((reply.score_local or 0.0) - (reply.score or 0.0), 0.0)


@hyperparameters
class ValidationGain(Algorithm):
    """Weights a site by what its training adds to its validation Dice, relative to the other sites' gains."""

    floor: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.02
    """Dice that is added to every gain, so that no weight falls to 0; the larger, the nearer to Uniform."""

    terms = Gain

    def task(self, state: State, site: str) -> Task:
        return replace(super().task(state, site), score_local=True)

    def measure(self, state: State, answers: Answers, ask: Ask) -> dict[str, Any]:
        return {reply.site: Gain(reply.n_train, gain(reply)) for reply in answers}

    def gains(self, credit: Credit, terms: Mapping[str, Any]) -> Gains:
        """Gains relative to an average site, so that rounds with fewer sites do not pay more."""
        parts = normalise({site: term.gain + self.floor for site, term in terms.items()})
        return {site: (len(parts) * part,) for site, part in parts.items()}

    def weigh(self, credit: Credit, terms: Mapping[str, Any]) -> dict[str, float]:
        """The mean over the rounds, because the gain of one round on a few validation images is mostly noise."""
        return normalise({site: credit[site].means[0] for site in terms})
