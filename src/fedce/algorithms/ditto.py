"""Ditto (Li et al., 2021): beside the common model every site trains a model of its own, pulled towards it."""

from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import Field

from fedce.algorithms.base import (
    Ask,
    Memory,
    Pull,
    Site,
    State,
    average_by_samples,
    evaluate_own,
    hyperparameters,
    train,
)
from fedce.messages import Reply, Task


@hyperparameters
class Ditto:
    """FedAvg for the common model; each site uses its own."""

    lam: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.1
    """Strength of the pull of the own model towards the common one; 0 is Standalone."""

    personal: ClassVar[bool] = True
    exchanges: ClassVar[bool] = True

    def local(self, site: Site, task: Task, memory: Memory | None) -> tuple[Reply, Memory]:
        own = memory.personal if memory and memory.personal else task.params
        moments = memory.personal_moments if memory else {}
        score = site.score(own)
        personal = site.train(own, task.round_no, moments, Pull(task.params, self.lam))
        reply, kept = train(site, task, memory)
        return (
            replace(reply, score=score),
            replace(kept, personal=personal.params, personal_moments=personal.moments),
        )

    def evaluate(self, site: Site, task: Task, memory: Memory | None) -> Reply:
        return evaluate_own(site, task, memory.personal if memory and memory.personal else task.params)

    def round(self, state: State, ask: Ask) -> State:
        return average_by_samples(state, ask(state.tasks()))
