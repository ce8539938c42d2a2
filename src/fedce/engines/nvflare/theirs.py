"""NVFlare 2.9's own FedCE aggregator as one of our algorithms, to set beside ours in the same federation."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_opt.pt.fedce import FedCEConstants, FedCEModelAggregator

from fedce.algorithms.base import Account, Ask, Memory, Site, State, evaluate_global, hyperparameters, normalise
from fedce.algorithms.fedce import FedCE
from fedce.messages import Reply, Task
from fedce.params import Params


@hyperparameters
class NVFlareFedCE:
    """Each round is aggregated by NVFlare's class, as its clients would be: model differences, mean errors so far."""

    mode: Literal["plus", "times"] = "plus"

    personal: ClassVar[bool] = False
    exchanges: ClassVar[bool] = True
    evaluate = staticmethod(evaluate_global)

    def local(self, site: Site, task: Task, memory: Memory | None) -> tuple[Reply, Memory]:
        return FedCE().local(site, task, memory)

    def round(self, state: State, ask: Ask) -> State:
        replies = ask(state.tasks())
        aggregator = FedCEModelAggregator(mode=self.mode, trainable_param_names=["trainable"])
        # All that it knows of earlier rounds; an aggregator of one's own for each keeps the round resumable.
        aggregator._contribution_weights = dict(state.shares)
        aggregator._cosine_counts = {site: account.rounds for site, account in state.accounts.items()}
        aggregator._cosine_means = {site: account.cos / account.rounds for site, account in state.accounts.items()}
        errors = {reply.site: _mean_error(state.accounts, reply) for reply in replies}
        for reply in replies:
            aggregator.accept_model(_difference(reply, state, errors[reply.site]))
        mean = aggregator.aggregate_model()
        counts, means = aggregator._cosine_counts, aggregator._cosine_means
        accounts = {
            site: Account(counts[site], cos=counts[site] * means[site], err=counts[site] * error)
            for site, error in errors.items()
        }
        weights = dict(mean.meta[FedCEConstants.CONTRIBUTION_WEIGHTS])
        return replace(
            state,
            round_no=state.round_no + 1,
            params=_moved(state, replies, mean.params),
            rho={reply.site: weights[reply.site] for reply in replies},
            shares=normalise(weights),
            accounts={**state.accounts, **accounts},
            terms={},
        )


def _mean_error(accounts: Mapping[str, Account], reply: Reply) -> float:
    old = accounts.get(reply.site, Account())
    error = reply.error_without
    if error is None:
        return old.err / old.rounds if old.rounds else 1.0
    return (old.err + error) / (old.rounds + 1)


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


def _moved(state: State, replies: list[Reply], change: Mapping[str, Any]) -> Params:
    layout = state.params.layout
    vector = state.params.vector.copy()
    vector[: layout.n_averaged] += np.concatenate([np.asarray(change["trainable"]), np.asarray(change["rest"])])
    counters = [reply.params.vector[layout.n_averaged :] for reply in replies if reply.params is not None]
    vector[layout.n_averaged :] = np.max(counters, axis=0)
    return Params(layout, vector)
