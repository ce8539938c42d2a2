"""An algorithm of your own in one file: sites weigh by how much their training gains.

Every site tells the validation Dice of the model that it received and of the model that it trained from it. The gain
is what its images taught that the common model did not know yet; its weight is its mean part of all gains so far.
From the repository's root:

    fedce run --algorithm examples.own_algorithm:ValidationGain --scale tiny --set algorithm.floor=0.05

An example, not a published method: a site with more images takes more steps in a round and so gains more, labels of
its own kind gain as much as rare patients do, and a site that lies about its gain is believed.
docs/own-algorithm.md goes through the parts; tests/contract holds it to what every algorithm must hold.
"""

from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import Field

from fedce.algorithms.base import (
    Ask,
    Memory,
    Site,
    State,
    aggregate,
    evaluate_global,
    hyperparameters,
    mean_weights,
    normalise,
    train,
)
from fedce.messages import Reply, Task


def gain(reply: Reply) -> float:
    """Validation Dice after local training less before; training that made it worse counts as no gain."""
    return max((reply.score_local or 0.0) - (reply.score or 0.0), 0.0)


@hyperparameters
class ValidationGain:
    """Every site weighs by what its training adds to its validation Dice, relative to what the others' adds."""

    floor: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.02
    """Dice that is added to every gain, so that nobody falls to nothing; the larger, the nearer to Uniform."""

    personal: ClassVar[bool] = False
    exchanges: ClassVar[bool] = True
    evaluate = staticmethod(evaluate_global)

    def local(self, site: Site, task: Task, memory: Memory | None) -> tuple[Reply, Memory]:
        return train(site, replace(task, score_local=True), memory)

    def round(self, state: State, ask: Ask) -> State:
        replies = ask(state.tasks())
        gains = normalise({reply.site: gain(reply) + self.floor for reply in replies})
        # The mean over the rounds, because the gain of one round on a few validation images is mostly noise.
        accounts, shares = mean_weights(state.accounts, gains)
        rho = normalise({reply.site: shares[reply.site] for reply in replies})
        return aggregate(state, replies, rho, accounts, shares)
