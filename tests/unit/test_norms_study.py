"""The study of norms: every method with every norm, in the study's setting and by the plan."""

import pytest

from fedce.base.config import load
from fedce.learning.planning import planned
from fedce.questions.jobs import Store
from fedce.studies import norms
from fedce.studies.base import Context

SMALL = {"rounds": 2, "model.channels": (4, 8), "data.scale": "tiny", "data.size": 32}


@pytest.fixture
def context(tmp_path, monkeypatch) -> Context:
    monkeypatch.setattr(norms, "STATED", {"rounds": 2, "personalise": 1, "model": {"channels": (4, 8)}})
    return Context(load(None, SMALL), [0], Store(tmp_path), methods=("standalone", "fedavg", "fedce"))


def test_every_method_with_every_norm_alone_and_personalised(context):
    wanted = norms.trainings(context)
    context.store.run(wanted)
    outcome = norms.evaluate(context)
    keys = [tuple(row[:3]) for row in outcome.tables[0].rows]
    assert ("recipe small", "batch", "Standalone") in keys
    assert ("recipe small", "site", "Standalone") not in keys
    assert ("recipe small", "site-affine", "FedBN") in keys
    assert ("plan", "site", "alone") in keys
    assert ("plan", "site", "FedCE (Multi.), personalised") in keys
    # Two methods with three norms, Standalone with two, FedBN with one; FedCE by the plan.
    assert len({context.store.path(config) for config in wanted}) == 6 + 2 + 1 + 1
    assert outcome.findings[0].startswith("One seed")
    gains = outcome.tables[1]
    by_plan = context.result(norms._planned(context)).values
    assert [row[0] for row in gains.rows] == context.names
    for site, together, alone, gain, low, high, first in gains.rows:
        assert (together, alone) == pytest.approx((100 * by_plan["dice"][site], 100 * by_plan["alone"][site]))
        assert gain == first == pytest.approx(together - alone)
        ends = by_plan["gain_interval"][site] or (None, None)
        assert (low, high) == tuple(end and pytest.approx(100 * end) for end in ends)
    assert any(row[4] is not None and row[4] <= row[3] <= row[5] for row in gains.rows), "some site has enough cases"
    assert any("compared with FedAvg's (recipe small): " in sentence for sentence in outcome.findings)


def test_the_planned_setting_is_the_one_of_a_run_without_an_experiment_file(context):
    by_plan = planned({"recipe": "plan", "data": {"scale": "tiny"}}).config
    ours = norms._planned(context)
    assert (ours.data, ours.train) == (by_plan.data, by_plan.train)
    assert context.config.data.size == 32
    assert ours.data.size is None
