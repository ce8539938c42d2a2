"""NVFlare 2.9's own FedCE aggregator as an algorithm of fedce, to compare both in the same federation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_opt.pt.fedce import FedCEConstants, FedCEModelAggregator

from fedce.algorithms.fedce import FedCE
from fedce.core.algorithm import Aggregated, Algorithm, Answers, Ask, State, Terms, Traits, hyperparameters
from fedce.core.credit import Credit, Gains
from fedce.core.messages import Reply, Task
from fedce.core.params import Params
from fedce.core.site import Memory, Site


@dataclass(frozen=True)
class TheirTerms(Terms):
    """What NVFlare's aggregator holds about a site after a round."""

    weight: float
    cos: float
    err: float
    """Mean over the rounds so far."""


@hyperparameters
class NVFlareFedCE(Algorithm):
    """NVFlare's class aggregates each round from what its clients would send: model differences, mean errors so far."""

    mode: Literal["plus", "times"] = "plus"

    terms = TheirTerms

    @property
    def traits(self) -> Traits:
        return Traits(accumulates=False, weights_are_measured=True)

    def local(self, site: Site, task: Task, memory: Memory | None) -> tuple[Reply, Memory]:
        return FedCE().local(site, task, memory)

    def measure(self, state: State, answers: Answers, ask: Ask) -> dict[str, Any]:
        terms, _ = self._aggregated(state, answers)
        return terms

    def gains(self, credit: Credit, terms: Mapping[str, Any]) -> Gains:
        return {site: (term.weight, term.cos, term.err) for site, term in terms.items()}

    def weigh(self, credit: Credit, terms: Mapping[str, Any]) -> dict[str, float]:
        return {site: term.weight for site, term in terms.items()}

    def aggregate(self, state: State, answers: Answers, rho: Mapping[str, float]) -> Aggregated:
        _, change = self._aggregated(state, answers)
        return Aggregated(_moved(state, answers, change))

    def _aggregated(self, state: State, answers: Answers) -> tuple[dict[str, TheirTerms], Mapping[str, Any]]:
        return answers.once("nvflare", lambda: self._aggregate(state, answers))

    def _aggregate(self, state: State, answers: Answers) -> tuple[dict[str, TheirTerms], Mapping[str, Any]]:
        aggregator = FedCEModelAggregator(mode=self.mode, trainable_param_names=["trainable"])
        # Earlier rounds are restored into a new aggregator for each round, so that a run can be resumed.
        aggregator._contribution_weights = dict(state.shares)
        aggregator._cosine_counts = {site: account.rounds for site, account in state.credit.items()}
        aggregator._cosine_means = {site: account.totals[1] for site, account in state.credit.items()}
        errors = {reply.site: _mean_error(state.credit, reply) for reply in answers}
        for reply in answers:
            aggregator.accept_model(_difference(reply, state, errors[reply.site]))
        mean = aggregator.aggregate_model()
        weights = dict(mean.meta[FedCEConstants.CONTRIBUTION_WEIGHTS])
        terms = {
            reply.site: TheirTerms(
                reply.n_train,
                weight=weights[reply.site],
                cos=aggregator._cosine_means[reply.site],
                err=errors[reply.site],
            )
            for reply in answers
        }
        return terms, mean.params


def _mean_error(credit: Credit, reply: Reply) -> float:
    n_rounds, old = (credit[reply.site].rounds, credit[reply.site].totals[2]) if reply.site in credit else (0, 1.0)
    error = reply.error_without
    return old if error is None else (n_rounds * old + error) / (n_rounds + 1)


def _difference(reply: Reply, state: State, error: float) -> FLModel:
    assert reply.params is not None
    change = torch.from_numpy(reply.params.vector - state.params.vector)
    n = state.params.layout.n_trainable
    return FLModel(
        params={"trainable": change[:n], "rest": change[n : state.params.layout.n_averaged]},
        params_type=ParamsType.DIFF,
        current_round=reply.round_no,
        meta={"client_name": reply.site, FedCEConstants.MINUS_MODEL_SCORE: error},
    )


def _moved(state: State, answers: Answers, change: Mapping[str, Any]) -> Params:
    layout = state.params.layout
    vector = state.params.vector.copy()
    vector[: layout.n_averaged] += np.concatenate([np.asarray(change["trainable"]), np.asarray(change["rest"])])
    counters = [reply.params.vector[layout.n_averaged :] for reply in answers if reply.params is not None]
    vector[layout.n_averaged :] = np.max(counters, axis=0)
    return Params(layout, vector)
