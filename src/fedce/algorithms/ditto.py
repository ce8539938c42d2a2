"""Ditto (Li et al., 2021): beside the common model every site trains its own, pulled towards the common one (B7)."""

from dataclasses import dataclass, field, replace
from typing import Annotated

from pydantic import Field

from fedce.algorithms.shared import BySamples
from fedce.core.algorithm import Traits, hyperparameters
from fedce.core.messages import Reply, Task
from fedce.core.params import Params
from fedce.core.site import Memory, Moments, Pull, Site, evaluate_own, train


@dataclass(frozen=True)
class Personal:
    """A site's own model, and the moments of its optimizer."""

    params: Params
    moments: Moments = field(default_factory=dict)


@hyperparameters
class Ditto(BySamples):
    """FedAvg for the common model; each site uses its own model."""

    lam: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.1
    """Strength of the pull of a site's own model towards the common one; 0 is Standalone."""

    @property
    def keeps(self) -> type:
        return Personal

    @property
    def traits(self) -> Traits:
        return Traits(personal=True, accumulates=False)

    def local(self, site: Site, task: Task, memory: Memory | None) -> tuple[Reply, Memory]:
        before = memory.own if memory and memory.own else Personal(task.params)
        score = site.score(before.params)
        own = site.train(before.params, task.round_no, before.moments, Pull(task.params, self.lam))
        reply, after = train(site, task, memory)
        return replace(reply, score=score), replace(after, own=Personal(own.params, own.moments))

    def evaluate(self, site: Site, task: Task, memory: Memory | None) -> Reply:
        return evaluate_own(site, task, memory.own.params if memory and memory.own else task.params)
