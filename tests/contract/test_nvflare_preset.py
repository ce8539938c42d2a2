"""Preset "nvflare" against NVFlare 2.9.0's own aggregator, on random traces (D14)."""

import numpy as np
import pytest

from fedce.algorithms import FedCERunningMeans
from fedce.core.messages import Reply
from support import params

fedce_nvflare = pytest.importorskip(
    "nvflare.app_opt.pt.fedce", reason="nvflare is not installed (pip install -c constraints.txt -e '.[nvflare]')"
)


def nvflare_weights(mode, updates, errors):
    from nvflare.app_common.abstract.fl_model import FLModel, ParamsType

    aggregator = fedce_nvflare.FedCEModelAggregator(mode=mode)
    history = []
    for k, (round_updates, _) in enumerate(zip(updates, errors, strict=True)):
        aggregator.reset_stats()
        for i, update in enumerate(round_updates):
            # What its client sends: 1 - the mean over rounds of the Dice without it, round 0 counted as Dice 0.
            mean_error = np.mean([1.0, *[errors[j][i] for j in range(1, k + 1)]])
            meta = {"client_name": f"site{i}", "fedce_minus_val": float(mean_error)}
            aggregator.accept_model(
                FLModel(params={"w": update}, params_type=ParamsType.DIFF, meta=meta, current_round=k)
            )
        history.append(dict(aggregator.aggregate_model().meta["fedce_coef"]))
    return history


def our_weights(combine, updates, errors):
    algorithm = FedCERunningMeans(combine=combine, max_share=1.0)
    n_sites, size = updates.shape[1:]
    state = algorithm.begin([f"site{i}" for i in range(n_sites)], params([0.0] * size))
    history = []
    for k, round_updates in enumerate(updates):
        replies = [
            Reply(
                f"site{i}",
                k,
                n_train=10,
                params=params(state.params.vector + update),
                error_without=float(errors[k][i]) if k else None,
            )
            for i, update in enumerate(round_updates)
        ]
        state = algorithm.round(state, lambda tasks, replies=replies: replies)
        history.append(dict(state.rho))
    return history


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.parametrize(("combine", "mode"), [("sum", "plus"), ("product", "times")])
def test_same_weights_as_nvflare(seed, combine, mode):
    rng = np.random.default_rng(seed)
    n_rounds, n_sites, size = int(rng.integers(1, 8)), int(rng.integers(2, 8)), int(rng.integers(2, 60))
    common = rng.normal(size=size) * rng.uniform(0, 3)
    updates = (rng.normal(size=(n_rounds, n_sites, size)) + common).astype(np.float32)
    errors = rng.uniform(0, 1, (n_rounds, n_sites))
    for ours, theirs in zip(our_weights(combine, updates, errors), nvflare_weights(mode, updates, errors), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-6)
