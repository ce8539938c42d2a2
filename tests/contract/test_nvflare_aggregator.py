"""Our aggregator in the place of NVFlare 2.9.0's own: the same numbers where that is right, and where it is not."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("nvflare", reason="nvflare is not installed: pip install -c constraints.txt -e '.[nvflare]'")

from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_opt.pt import fedce as fedce_nvflare

from fedce.base.errors import ConfigError, ReplyError
from fedce.engines.nvflare import FedCEAggregator


def update(site: str, round_no: int, values, error: float = 0.5, **meta) -> FLModel:
    params = {"w": torch.tensor(np.asarray(values, np.float32)), "steps": torch.tensor(3)}
    meta = {"client_name": site, "fedce_minus_val": error, **meta}
    return FLModel(params=params, params_type=ParamsType.DIFF, meta=meta, current_round=round_no, metrics={"dice": 0.5})


def typed(site: str, values, steps: int = 3) -> FLModel:
    """What a client may put into an update besides float32."""
    params = {"w": values, "steps": np.array(steps)}
    meta = {"client_name": site, "fedce_minus_val": 0.5}
    return FLModel(params=params, params_type=ParamsType.DIFF, meta=meta, current_round=1)


def one_round(aggregator, updates):
    aggregator.reset_stats()
    for one in updates:
        aggregator.accept_model(one)
    return aggregator.aggregate_model()


def trace(seed: int):
    """Rounds of updates and of mean errors, as random as a federation can be."""
    rng = np.random.default_rng(seed)
    n_rounds, n_sites, size = int(rng.integers(1, 8)), int(rng.integers(2, 8)), int(rng.integers(2, 60))
    common = rng.normal(size=size) * rng.uniform(0, 3)
    updates = rng.normal(size=(n_rounds, n_sites, size)) + common
    return updates, rng.uniform(0, 1, (n_rounds, n_sites))


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("mode", ["plus", "times"])
def test_the_same_weights_and_model_as_nvflare(seed, mode):
    ours = FedCEAggregator(mode, ["w"], max_share=1.0)
    theirs = fedce_nvflare.FedCEModelAggregator(mode, ["w"])
    for k, (of_round, errors) in enumerate(zip(*trace(seed), strict=True)):
        sent = [update(f"site{i}", k, u, float(e)) for i, (u, e) in enumerate(zip(of_round, errors, strict=True))]
        mine, its = one_round(ours, sent), one_round(theirs, sent)
        assert mine.meta["fedce_coef"] == pytest.approx(its.meta["fedce_coef"], abs=1e-6)
        np.testing.assert_allclose(mine.params["w"], its.params["w"], rtol=1e-4, atol=1e-5)
        assert mine.params_type == its.params_type
        assert mine.metrics == pytest.approx(its.metrics)


def weights_of(model: FLModel) -> dict[str, float]:
    return model.meta["fedce_coef"]


def test_weights_sum_to_one_over_those_present():
    """NVFlare's sum to 1.33 here, because it carries the absent site's weight along."""
    ours = FedCEAggregator(trainable_param_names=["w"])
    theirs = fedce_nvflare.FedCEModelAggregator(trainable_param_names=["w"])
    everybody = [("a", [1.0, 0.2]), ("b", [0.4, 1.0]), ("c", [1.0, 1.0])]
    for aggregator in (ours, theirs):
        one_round(aggregator, [update(site, 0, values) for site, values in everybody])
    without_c = [update(site, 1, values) for site, values in everybody[:2]]
    mine = one_round(ours, without_c)
    assert sum(weights_of(mine).values()) == pytest.approx(1)
    assert weights_of(mine)["c"] == 0.0
    assert sum(weights_of(one_round(theirs, without_c)).values()) > 1.1
    # A weight of 0 makes the client's "model without me" what it is: the model itself.
    network = torch.nn.Linear(2, 1)
    same = fedce_nvflare.PTFedCEHelper.make_minus_model(network, network.state_dict(), weights_of(mine)["c"])
    assert torch.equal(same.weight, network.weight)
    back = one_round(ours, [update(site, 2, values) for site, values in everybody])
    assert weights_of(back)["c"] > 0
    assert sum(weights_of(back).values()) == pytest.approx(1)
    assert {site: account.rounds for site, account in ours.credit.items()} == {"a": 3, "b": 3, "c": 2}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (update("c", 1, [np.nan, 1.0]), "not numbers"),
        (update("c", 1, [np.inf, 1.0]), "not numbers"),
        (typed("c", np.array([1e300, 0.0])), "too large"),
        (typed("a0", np.array([10**6, 10**6])), "not those of the others' model"),
        (typed("c", np.array(["x", "y"])), "expected numbers"),
        (typed("c", np.array([{}, {}], object)), "expected numbers"),
        (typed("c", np.ones(2), steps=2**40), "counts above 16777216"),
        (update("c", 1, [1.0, 1.0], error=float("nan")), "from 0 to 1"),
        (update("c", 1, [1.0, 1.0], error=1.5), "from 0 to 1"),
        (update("c", 1, [1.0, 1.0], error=-0.1), "from 0 to 1"),
        (update("c", 1, [1.0, 1.0, 1.0]), "not those of the others' model"),
        (update("", 1, [1.0, 1.0]), "does not name its site"),
        (update("a", 1, [9.0, 9.0]), "already sent"),
        (
            FLModel(params={"w": torch.ones(2)}, params_type=ParamsType.FULL, meta={"client_name": "c"}),
            "ParamsType.DIFF",
        ),
    ],
)
def test_what_cant_be_used_is_refused_and_harms_nobody(bad, reason, monkeypatch):
    said = []
    monkeypatch.setattr(FedCEAggregator, "warning", lambda self, message: said.append(message))
    poisoned, clean = FedCEAggregator(trainable_param_names=["w"]), FedCEAggregator(trainable_param_names=["w"])
    good = [("a", [1.0, 0.2]), ("b", [0.4, 1.0])]
    for aggregator in (poisoned, clean):
        one_round(aggregator, [update(site, 0, values) for site, values in [*good, ("c", [1.0, 1.0])]])
    sent = [update(site, 1, values) for site, values in good]
    first = one_round(poisoned, [*sent, bad])
    assert weights_of(first) == weights_of(one_round(clean, sent))
    assert torch.equal(first.params["w"], one_round(clean, sent).params["w"])
    assert any(reason in message for message in said)
    after = [update(site, 2, values) for site, values in [*good, ("c", [1.0, 1.0])]]
    assert weights_of(one_round(poisoned, after)) == weights_of(one_round(clean, after))


def test_one_nan_freezes_nvflares_own():
    """The reason for the case above: the model is gone, and no direction counts in any later round."""
    theirs = fedce_nvflare.FedCEModelAggregator(trainable_param_names=["w"])
    poisoned = one_round(theirs, [update("a", 0, [1.0, 0.2]), update("b", 0, [np.nan, 1.0])])
    assert poisoned.params["w"].isnan().any()
    later = [one_round(theirs, [update("a", k, [1.0, 0.2]), update("b", k, [0.4, k])]) for k in (1, 2, 3)]
    assert all(weights_of(model) == weights_of(later[0]) for model in later)


def test_one_update_alone_leaves_the_model_as_it_is():
    aggregator = FedCEAggregator(trainable_param_names=["w"])
    one_round(aggregator, [update("a", 0, [1.0, 0.2]), update("b", 0, [0.4, 1.0])])
    before = aggregator.credit
    alone = one_round(aggregator, [update("a", 1, [1.0, 0.2])])
    assert not alone.params["w"].any()
    assert aggregator.credit == before
    # A client can't be left out of a model that is its own alone: NVFlare's client refuses a weight of 1.
    assert max(weights_of(alone).values()) < 1
    with pytest.raises(ReplyError, match="no usable update"):
        one_round(FedCEAggregator(), [])


def test_history_goes_on_after_a_restart_and_a_round_counts_once(tmp_path: Path):
    file = str(tmp_path / "history.json")
    updates, errors = trace(5)
    updates, errors = updates[:, :3], errors[:, :3]

    def sent(k):
        return [update(f"site{i}", k, u, float(e)) for i, (u, e) in enumerate(zip(updates[k], errors[k], strict=True))]

    whole = FedCEAggregator(trainable_param_names=["w"])
    expected = [weights_of(one_round(whole, sent(k))) for k in range(len(updates))]
    for k in range(len(updates)):
        # A new process in every round; and the last round is run twice, as after a crash before its model was saved.
        got = weights_of(one_round(FedCEAggregator(trainable_param_names=["w"], history_file=file), sent(k)))
        again = weights_of(one_round(FedCEAggregator(trainable_param_names=["w"], history_file=file), sent(k)))
        assert got == again == expected[k]
    assert json.loads(Path(file).read_text())["round"] == len(updates) - 1


def test_arrays_come_back_as_they_were_sent():
    arrays = {"w": np.ones(2, np.float64), "steps": np.array(3)}
    sent = [
        FLModel(
            params=arrays,
            params_type=ParamsType.DIFF,
            meta={"client_name": site, "fedce_minus_val": 0.5},
            current_round=0,
        )
        for site in "ab"
    ]
    params = one_round(FedCEAggregator(), sent).params
    assert params["w"].dtype == np.float64
    assert params["steps"].dtype == np.int64
    assert params["steps"].shape == ()
    assert params["steps"] == 3
    tensors = one_round(FedCEAggregator(), [update(site, 0, [1.0, 0.2]) for site in "ab"]).params
    assert tensors["steps"].shape == torch.Size([])
    assert tensors["steps"].dtype == torch.int64


@pytest.mark.parametrize("odd", [torch.float16, torch.bfloat16, torch.float64])
def test_the_precision_of_one_is_not_that_of_all(odd):
    sent = [update(site, 0, [1.0, 0.2]) for site in "abc"]
    sent[0].params["w"] = sent[0].params["w"].to(odd)
    found = one_round(FedCEAggregator(), sent)
    assert found.meta["nr_aggregated"] == 3
    assert found.params["w"].dtype == torch.float32


def test_an_unknown_mode_is_one_clear_line():
    with pytest.raises(ConfigError, match="expected plus or times, got 'time', did you mean 'times'"):
        FedCEAggregator(mode="time")
