"""The baselines' formulas, by hand or against an independent oracle."""

from math import sinh

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

from fedce.algorithms import AFL, CFFL, CGSV, FedCI, FedOpt, Krum, QFedAvg, TrimmedMean
from fedce.algorithms.afl import onto_simplex
from fedce.algorithms.cgsv import cosines_with_sum
from fedce.algorithms.fedci import CoalitionModels
from fedce.algorithms.krum import krum_scores
from fedce.algorithms.qfedavg import published_weights
from fedce.algorithms.rewards import largest
from fedce.algorithms.trimmed_mean import trimmed
from fedce.core.messages import Reply
from fedce.core.params import Entry, Layout, Params, gram, weighted_sum
from fedce.valuation import shapley
from support import FakeFederation, FakeSite, layout, params


def fakes(updates, losses=None, scores=None, counts=None):
    return [
        FakeSite(
            "abcdefghijklmnop"[i],
            update,
            counts[i] if counts else 10,
            (lambda w, s=scores[i]: s) if scores else (lambda w: 0.5),
            losses[i] if losses else 0.5,
        )
        for i, update in enumerate(updates)
    ]


def test_qfedavg_weighs_by_loss_to_the_q():
    state = FakeFederation(QFedAvg(q=2), fakes([[1, 0], [0, 1]], losses=[0.2, 0.4])).run(1)
    assert dict(state.rho) == pytest.approx({"a": 0.2, "b": 0.8})
    np.testing.assert_allclose(state.params.vector, [0.2, 0.8])


def test_qfedavg_as_published_by_hand():
    # q = 1, L = 10: numerators 10 F_i; denominators 100 |delta_i|^2 + 10 F_i.
    a = published_weights(np.array([0.2, 0.4]), np.array([1.0, 4.0]), q=1, lr=0.1)
    assert a == pytest.approx([2 / (102 + 404), 4 / (102 + 404)])
    state = FakeFederation(QFedAvg(variant="published", local_lr=0.1), fakes([[1, 0], [0, 2]], losses=[0.2, 0.4])).run(
        1
    )
    np.testing.assert_allclose(state.params.vector, [2 / 506, 2 * 4 / 506], rtol=1e-6)
    assert "the model hardly moves" in state.notes[0]


def test_the_earlier_name_of_the_published_step_gives_the_same_model():
    members = [[1, 0], [0, 2]]
    now, earlier = (
        FakeFederation(QFedAvg(variant=variant, local_lr=0.1), fakes(members, losses=[0.2, 0.4])).run(3)
        for variant in ("published", "lipschitz")
    )
    assert now.params.digest == earlier.params.digest


def test_qfedavg_as_published_with_q_0_is_the_uniform_mean():
    assert published_weights(np.array([0.2, 0.4]), np.array([1.0, 4.0]), q=0, lr=0.1) == pytest.approx([0.5, 0.5])


def test_cffl_by_hand():
    x = {"a": 0.75, "b": 0.25}
    grown = sinh(5 * 0.75) / (sinh(5 * 0.75) + sinh(5 * 0.25))
    state = FakeFederation(CFFL(coef=0), fakes([[1, 0], [0, 1]], scores=[0.9, 0.3])).run(1)
    assert state.rho["a"] == pytest.approx(0.8 * 0.5 + 0.2 * grown)
    published = CFFL(variant="published").reputation({"a": 0.5, "b": 0.5}, x)
    assert published["a"] == pytest.approx(sinh(5 * 0.7) / (sinh(5 * 0.7) + sinh(5 * 0.3)))


def test_cffl_drops_who_falls_too_low_for_good():
    runner = FakeFederation(CFFL(), fakes([[1, 0], [0, 1], [1, 1]], scores=[0.9, 0.9, 0.01]))
    for _ in range(20):
        state = runner.run(1)
    assert state.sites == ("a", "b")
    assert state.shares["c"] == 0
    assert dict(state.rho) == pytest.approx({"a": 0.5, "b": 0.5})


@pytest.mark.parametrize(("variant", "largest_share"), [("published", 0.195), ("stable", 0.193)])
def test_no_variant_of_cffl_collapses_to_one_site_where_all_score_alike(variant, largest_share):
    """Sinh of the running reputation does (0.968) where the old one counts 0.8; the authors count it 0.2."""
    scores = [0.8, 0.79, 0.78, 0.77, 0.76, 0.9]
    x = {name: score / sum(scores) for name, score in zip("abcdef", scores, strict=True)}
    reputation = dict.fromkeys("abcdef", 1 / 6)
    for _ in range(2000):
        reputation = CFFL(variant=variant).reputation(reputation, x)
    assert max(reputation.values()) == pytest.approx(largest_share, abs=0.001)


def test_published_cffl_may_end_with_one_site():
    """The stable variant keeps two; the authors' rule has no such floor."""
    scores = [0.9, 0.01, 0.01]
    stable, published = (
        FakeFederation(CFFL(variant=variant), fakes(np.eye(3).tolist(), scores=scores)).run(20)
        for variant in ("stable", "published")
    )
    assert stable.sites == ("a", "b", "c")
    assert published.sites == ("a",)
    assert dict(published.shares) == pytest.approx({"a": 1, "b": 0, "c": 0})


def test_published_cffl_gives_each_site_its_quota_of_the_largest_entries():
    runner = FakeFederation(CFFL(variant="published"), fakes([[4, 3, 2, 1], [4, 3, 2, 1]], scores=[0.5, 0.45]))
    state = runner.run(1)
    together = np.array([4, 3, 2, 1])
    quota = int(state.rho["b"] / state.rho["a"] * 4)
    assert 0 < quota < 4
    np.testing.assert_allclose(state.own.models["a"].vector, together, rtol=1e-6)
    np.testing.assert_allclose(state.own.models["b"].vector, [*together[:quota], *([0] * (4 - quota))], rtol=1e-6)


def test_published_afl_weighs_by_the_last_round_and_returns_the_mean_of_all_models():
    runner = FakeFederation(AFL(step=0.5, variant="published"), fakes([[1, 0], [0, 1]], losses=[0.2, 0.6]))
    assert dict(runner.run(1).rho) == {"a": 0.5, "b": 0.5}
    state = runner.run(1)
    assert dict(state.rho) == pytest.approx({"a": 0.4, "b": 0.6})
    np.testing.assert_allclose(state.params.vector, [0.9, 1.1], rtol=1e-6)
    np.testing.assert_allclose(runner.algorithm.returned(state).vector, [0.7, 0.8], rtol=1e-6)


def test_published_cgsv_begins_with_sample_shares_and_updates_of_one_length():
    runner = FakeFederation(CGSV(variant="published", gamma=2.0), fakes([[10, 0], [0, 0.1]], counts=[30, 10]))
    state = runner.run(1)
    assert dict(state.rho) == {"a": 0.75, "b": 0.25}
    np.testing.assert_allclose(state.params.vector, [1.5, 0.5], rtol=1e-6)
    # phi = (3, 1) / sqrt(10); the second round enters with reputations in proportion to them.
    assert dict(state.shares) == pytest.approx({"a": 0.75, "b": 0.25})


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=8))
def test_the_simplex_projection_is_the_nearest_point(values):
    found = onto_simplex(np.array(values))
    assert found.sum() == pytest.approx(1)
    assert found.min() >= 0
    # Optimality: all positive entries were lowered by the same amount, the others by less.
    lowered = np.array(values) - found
    positive = lowered[found > 0]
    assert np.ptp(positive) == pytest.approx(0, abs=1e-9)
    assert (lowered[found == 0] <= positive.mean() + 1e-9).all()


def test_the_simplex_projection_against_a_solver():
    values = np.array([0.9, 0.4, -0.2, 0.6])
    solved = optimize.minimize(
        lambda x: ((x - values) ** 2).sum(),
        np.full(4, 0.25),
        bounds=[(0, 1)] * 4,
        constraints={"type": "eq", "fun": lambda x: x.sum() - 1},
        options={"ftol": 1e-14},
    )
    np.testing.assert_allclose(onto_simplex(values), solved.x, atol=1e-6)


def test_afl_climbs_towards_the_site_with_the_highest_loss():
    runner = FakeFederation(AFL(step=0.5), fakes([[1, 0], [0, 1]], losses=[0.2, 0.6]))
    assert dict(runner.run(1).rho) == pytest.approx({"a": 0.4, "b": 0.6})
    assert dict(runner.run(10).rho) == {"a": 0.0, "b": 1.0}


def test_cgsv_cosines_by_hand():
    # East, east and north, equal reputation: together (2, 1) / 3.
    products = gram([params([1, 0]), params([5, 0]), params([0, 2])], params([0, 0]))
    expected = np.array([2, 2, 1]) / np.sqrt(5)
    np.testing.assert_allclose(cosines_with_sum(products, np.full(3, 1 / 3)), expected)


def test_rewards_keep_the_largest_of_each_tensor():
    tensors = Layout((Entry("a", (4,), "trainable"), Entry("b", (1,), "trainable"), Entry("c", (2,), "buffer")))
    update = np.array([1, -4, 3, 2, 0.1], np.float32)
    assert largest(update, 0.5, tensors).tolist() == pytest.approx([0, -4, 3, 0, 0.1])
    assert largest(update, 1.0, tensors).tolist() == pytest.approx(update.tolist())


def test_krum_chooses_the_most_central():
    updates = [[0, 0.1], [0, 0], [0.1, 0], [5, 5]]
    products = gram([params(update) for update in updates], params([0, 0]))
    # One faulty of four: the nearest other counts.
    np.testing.assert_allclose(
        krum_scores(products, 1), [0.01, 0.01, 0.01, 2 * 4.9**2 + 2 * 0.1 * 4.9 + 0.01], rtol=0.02
    )
    state = FakeFederation(Krum(n_chosen=3), fakes(updates)).run(1)
    assert dict(state.rho) == pytest.approx({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3, "d": 0})


def test_the_trimmed_mean_is_scipys():
    values = np.random.default_rng(0).normal(size=(6, 5000)).astype(np.float32)
    mean, kept = trimmed([Params(layout(5000), row) for row in values], 1)
    np.testing.assert_allclose(mean.vector, stats.trim_mean(values.astype(np.float64), 1 / 6), rtol=1e-6, atol=1e-7)
    assert kept.sum() == pytest.approx(4)


def test_a_trimmed_outlier_has_no_share():
    state = FakeFederation(TrimmedMean(), fakes([[1, 1], [2, 2], [3, 3], [99, 99]])).run(2)
    assert state.shares["d"] == 0


@pytest.mark.parametrize("rule", ["adam", "yogi"])
def test_fedopt_by_hand(rule):
    state = FakeFederation(FedOpt(rule=rule, lr=0.1, tau=0.01), fakes([[1, 0], [3, 0]])).run(1)
    # The mean update is (2, 0); v starts at tau^2.
    v = 0.99 * 1e-4 + 0.01 * 4 if rule == "adam" else 1e-4 + 0.01 * 4
    assert state.params.vector[0] == pytest.approx(0.1 * 0.1 * 2 / (v**0.5 + 0.01), rel=1e-5)
    assert state.params.vector[1] == 0


def test_coalition_models_are_weighted_means_of_their_members():
    rng = np.random.default_rng(0)
    models = {name: params(rng.normal(size=5).tolist(), 1, 1) for name in "abcd"}
    weights = dict(zip("abcd", (0.1, 0.2, 0.3, 0.4), strict=True))
    replies = [Reply(name, 0, 10, model) for name, model in models.items()]
    made = CoalitionModels(replies, weights)
    for coalition in shapley.coalitions("abcd"):
        if coalition:
            members = sorted(coalition)
            total = sum(weights[name] for name in members)
            expected = weighted_sum([models[name] for name in members], [weights[name] / total for name in members])
            np.testing.assert_allclose(made.of(coalition).vector, expected.vector, rtol=1e-6, atol=1e-7)


def test_fedci_scores_each_coalition_once_at_each_site():
    """2^N - 1 coalitions, and one score of the received model; nothing is trained again."""
    members = fakes(np.eye(6).tolist())
    FakeFederation(FedCI(), members).run(1)
    assert [site.n_scored for site in members] == [2**6] * 6


def test_fedci_pays_the_site_that_helps():
    # Only the first site's update moves the score.
    members = [FakeSite("abc"[i], np.eye(3)[i], 10, lambda w: 0.5 + 0.1 * float(w.vector[0])) for i in range(3)]
    state = FakeFederation(FedCI(), members).run(3)
    assert state.shares["a"] > 0.99


def test_fedci_samples_above_its_limit():
    members = [
        FakeSite("abcdefghijkl"[i], np.eye(12)[i], 10, lambda w: 0.3 + 0.5 * float(w.vector[0])) for i in range(12)
    ]
    state = FakeFederation(FedCI(), members).run(1)
    assert max(state.shares, key=state.shares.get) == "a"
    assert members[0].n_scored < 2**12
