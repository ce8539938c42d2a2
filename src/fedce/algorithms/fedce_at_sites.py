"""FedCE with Eq. 2 measured at the sites (D1), by the model of the next round: nobody has to see single updates."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedce.algorithms.fedce import BothTerms, FedCE
from fedce.core.algorithm import Answers, Ask, State, Traits, hyperparameters
from fedce.core.messages import Reply, Task
from fedce.core.params import Params, cosine
from fedce.core.recorded import Facts
from fedce.core.site import Memory, Site


def gamma_cos_at_site(w_prev: Params, w_i_prev: Params, w: Params, rho_i: float) -> float:
    """Eq. 2 from what the site holds: the others' update is w - w_prev (all sites) minus the site's own part."""
    delta_i = w_i_prev.trainable - w_prev.trainable
    similarity = cosine(delta_i, (w.trainable - w_prev.trainable) - np.float32(rho_i) * delta_i)
    return 1.0 - similarity if similarity is not None else float(delta_i.any())


@dataclass(frozen=True)
class Received:
    """What a site keeps: the common model that it started from."""

    params: Params


@hyperparameters
class FedCEAtSites(FedCE):
    """A round's weights follow from the rounds before it: the novelty of this round is known one round later."""

    @property
    def keeps(self) -> type:
        return Received

    @property
    def traits(self) -> Traits:
        return Traits(weighs_by_earlier_rounds=True, sites_claim_novelty=True)

    def local(self, site: Site, task: Task, memory: Memory | None) -> tuple[Reply, Memory]:
        cos = None
        if memory and memory.own and memory.round_no == task.round_no - 1 and task.rho is not None:
            # A site that is the whole model can't be left out of it.
            cos = gamma_cos_at_site(memory.own.params, memory.params, task.params, task.rho) if task.rho < 1 else None
        reply, after = super().local(site, task, memory)
        return replace(reply, novelty=cos), replace(after, own=Received(task.params))

    def measure(self, state: State, answers: Answers, ask: Ask) -> dict[str, Any]:
        return {reply.site: BothTerms(reply.n_train, reply.novelty, reply.error_without) for reply in answers}

    def signed(self, said: Any, before: Facts) -> dict[str, Any]:
        return {"cos": said.novelty}
