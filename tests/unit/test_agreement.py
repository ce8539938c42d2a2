"""Agreement of estimates with the truth, and of orders with each other."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from fedce.base.errors import ConfigError, FedceError
from fedce.questions.value import Truth
from fedce.studies import contribution
from fedce.valuation import shapley
from fedce.valuation.agreement import agreement, bootstrap_agreement, rank_stability, reliability

SAMPLES = [0.0552, 0.1083, 0.0519, 0.2541, 0.0884, 0.4420]
LEAVE_ONE_OUT = [0.15, 0.095, 0.12, 0.15, 0.44, 0.055]


def rng(seed=0):
    return np.random.default_rng(seed)


def test_perfect_agreement():
    found = agreement([0.2, 0.3, 0.5], [0.2, 0.3, 0.5])
    assert (found.pearson, found.spearman, found.euclid, found.cosine) == pytest.approx((1, 1, 0, 1))


def test_spearman_sees_the_order_only():
    found = agreement([0.1, 0.2, 0.7], [0.30, 0.33, 0.37])
    assert found.spearman == pytest.approx(1)
    assert found.pearson < 1


@pytest.mark.parametrize("equal", [[0.25] * 4, [0.1 + 0.2, 0.3, 0.3, 0.3]])
def test_no_correlation_with_equal_shares(equal):
    # Uniform weights: an estimate that says nothing neither agrees nor disagrees.
    for found in (agreement(equal, [0.1, 0.2, 0.3, 0.4]), agreement([0.1, 0.2, 0.3, 0.4], equal)):
        assert (found.pearson, found.pearson_p, found.spearman) == (None, None, None)
        assert found.euclid > 0
        assert found.cosine == pytest.approx(0.9129, abs=1e-4)


def test_no_cosine_with_nothing():
    assert agreement([0.0, 0.0], [0.5, 0.5]).cosine is None


def test_bad_input():
    with pytest.raises(FedceError, match="one share per site"):
        agreement([0.5, 0.5], [0.2, 0.3, 0.5])
    with pytest.raises(FedceError, match="at least two sites"):
        agreement([1.0], [1.0])
    with pytest.raises(FedceError, match="finite"):
        agreement([0.5, float("nan")], [0.5, 0.5])
    with pytest.raises(FedceError, match="several seeds"):
        agreement([[0.5, 0.5]], [[0.4, 0.6]])
    with pytest.raises(ConfigError, match="level"):
        bootstrap_agreement(SAMPLES, LEAVE_ONE_OUT, rng(), level=95)
    with pytest.raises(ConfigError, match="n_draws"):
        bootstrap_agreement(SAMPLES, LEAVE_ONE_OUT, rng(), n_draws=0)


def test_the_interval_of_six_sites_is_wide():
    # Table 3's FedAvg on fundus, Pearson -0.40: six sites can't even tell its sign.
    found = bootstrap_agreement(SAMPLES, LEAVE_ONE_OUT, rng())
    assert found.pearson.low < -0.9
    assert found.pearson.high > 0
    point = agreement(SAMPLES, LEAVE_ONE_OUT)
    for metric in ("pearson", "spearman", "euclid", "cosine"):
        interval = getattr(found, metric)
        assert interval.low < getattr(point, metric) < interval.high


def test_perfect_agreement_is_perfect_in_every_draw():
    found = bootstrap_agreement(LEAVE_ONE_OUT, LEAVE_ONE_OUT, rng())
    for interval in (found.pearson, found.spearman, found.cosine):
        assert (interval.low, interval.high) == pytest.approx((1, 1))
    assert (found.euclid.low, found.euclid.high) == (0, 0)


def test_draws_without_a_correlation_are_dropped_and_counted():
    # Three sites: 3 of 27 draws hold one site only.
    found = bootstrap_agreement([0.2, 0.3, 0.5], [0.1, 0.4, 0.5], rng(), n_draws=9000)
    assert found.pearson.n_dropped == found.spearman.n_dropped == pytest.approx(1000, abs=100)
    assert found.euclid.n_dropped == found.cosine.n_dropped == 0
    assert found.n_draws == 9000


def test_no_interval_where_no_draw_has_a_correlation():
    found = bootstrap_agreement([0.25] * 4, [0.1, 0.2, 0.3, 0.4], rng())
    assert found.pearson is None
    assert found.spearman is None
    assert found.cosine is not None


def test_more_sites_give_a_narrower_interval():
    truth = rng(1).normal(size=200)
    estimate = truth + rng(2).normal(size=200)
    few, many = (bootstrap_agreement(estimate[:n], truth[:n], rng()).pearson for n in (20, 200))
    assert many.high - many.low < 0.5 * (few.high - few.low)
    # Of 200 sites the bootstrap must come near Fisher's interval.
    fisher = stats.pearsonr(estimate, truth).confidence_interval()
    assert (many.low, many.high) == pytest.approx((fisher.low, fisher.high), abs=0.03)


def test_seeds_are_drawn_too():
    noise = rng(1).normal(scale=0.1, size=(3, 6))
    shared = bootstrap_agreement([LEAVE_ONE_OUT] * 3, LEAVE_ONE_OUT, rng())
    noisy = bootstrap_agreement(LEAVE_ONE_OUT + noise, LEAVE_ONE_OUT, rng())
    assert (shared.pearson.low, shared.pearson.high) == pytest.approx((1, 1))
    assert noisy.pearson.low < 0.95


def test_estimate_and_truth_are_drawn_with_the_same_seeds():
    noisy = LEAVE_ONE_OUT + rng(1).normal(scale=0.1, size=(3, 6))
    found = bootstrap_agreement(noisy, noisy, rng())
    assert (found.euclid.low, found.euclid.high) == (0, 0)


def test_bootstrap_is_reproducible():
    assert bootstrap_agreement(SAMPLES, LEAVE_ONE_OUT, rng(3)) == bootstrap_agreement(SAMPLES, LEAVE_ONE_OUT, rng(3))


def test_rows_in_the_same_order_are_stable_from_the_start():
    found = rank_stability([[0.1, 0.3, 0.6], [0.2, 0.3, 0.5], [0.0, 0.4, 0.6]])
    assert found.mean_tau == pytest.approx(1)
    assert found.tau_with_last == pytest.approx((1, 1, 1))
    assert found.settled_from == 0


def test_rank_stability_by_hand():
    # The first row reverses the last, the second has one of three pairs reversed.
    found = rank_stability([[0.5, 0.3, 0.2], [0.3, 0.2, 0.5], [0.2, 0.3, 0.5], [0.1, 0.4, 0.5]])
    assert found.tau_with_last == pytest.approx((-1, 1 / 3, 1, 1))
    assert found.mean_tau == pytest.approx((-1 / 3 - 1 - 1 + 1 / 3 + 1 / 3 + 1) / 6)
    assert found.settled_from == 2


def test_an_order_that_comes_back_was_not_settled():
    assert rank_stability([[0.4, 0.6], [0.6, 0.4], [0.4, 0.6]]).settled_from == 2


def test_an_order_that_changes_at_the_end_settles_there():
    assert rank_stability([[0.4, 0.6], [0.4, 0.6], [0.6, 0.4]]).settled_from == 2


def test_tau_equals_scipys_with_and_without_ties():
    rows = rng(0).integers(0, 4, size=(8, 6)).astype(float)
    found = rank_stability(rows)
    expected = [stats.kendalltau(row, rows[-1]).statistic for row in rows]
    assert found.tau_with_last == pytest.approx(expected)
    pairs = [stats.kendalltau(rows[i], rows[j]).statistic for i in range(8) for j in range(i)]
    assert found.mean_tau == pytest.approx(np.mean(pairs))


def test_equal_shares_have_no_order():
    found = rank_stability([[0.5, 0.5], [0.4, 0.6], [0.4, 0.6]])
    assert found.tau_with_last == (None, pytest.approx(1), pytest.approx(1))
    assert found.mean_tau == pytest.approx(1)
    assert found.settled_from == 1


def test_one_row_has_nobody_to_agree_with():
    found = rank_stability([[0.4, 0.6]])
    assert (found.mean_tau, found.settled_from) == (None, 0)


def test_shares_without_an_order_to_judge():
    with pytest.raises(FedceError, match="at least two sites"):
        rank_stability([0.4, 0.6])
    with pytest.raises(FedceError, match="finite"):
        rank_stability([[0.4, float("nan")]])


def test_reliability_of_a_truth_against_hand_worked_numbers():
    """Rows [1,2,3] and [1,3,2] correlate by 1/2; the mean of two has 2/3, and its root is the ceiling."""
    found = reliability([[1, 2, 3], [1, 3, 2]])
    assert found is not None
    assert found.between_seeds == pytest.approx(0.5)
    assert found.ceiling == pytest.approx((2 / 3) ** 0.5)
    opposite = reliability([[1, 2], [2, 1]])
    assert opposite is not None
    assert opposite.ceiling == 0
    assert reliability([[1, 2, 3]]) is None
    assert reliability([[1, 1], [1, 2]]) is None


def test_the_ceiling_is_what_a_perfect_estimate_reaches():
    rng = np.random.default_rng(0)
    correlations, ceilings = [], []
    for _ in range(300):
        truth = rng.normal(size=40)
        measured = truth + rng.normal(size=(3, 40))
        correlations.append(np.corrcoef(truth, measured.mean(axis=0))[0, 1])
        found = reliability(measured)
        assert found is not None
        ceilings.append(found.ceiling)
    assert np.mean(correlations) == pytest.approx(np.mean(ceilings), abs=0.01)


DROPS = {  # Leave-one-out of fundus6 by three seeds, in points of Dice (docs/results/fundus6.md).
    0: {"site1": -1.93, "site2": -1.38, "site3": 0.93, "site4": -4.83, "site5": 3.04, "site6": 2.08},
    1: {"site1": 0.57, "site2": 0.57, "site3": 1.25, "site4": 2.62, "site5": 5.17, "site6": 1.82},
    2: {"site1": -1.42, "site2": 1.26, "site3": 1.31, "site4": -2.23, "site5": 4.75, "site6": 2.13},
}


def test_the_study_draws_the_seeds_of_the_truth_too():
    """FedCI on fundus6: with the truth as if it were certain, the interval began at 0.55."""
    names = tuple(DROPS[0])
    fedci = dict(zip(names, (0.028, 0.015, 0.182, 0.014, 0.641, 0.120), strict=True))
    run = SimpleNamespace(contributions=fedci)
    context = SimpleNamespace(
        names=names, seeds=(0, 1, 2), training=lambda name, seed: None, result=lambda training: run
    )
    mean = {site: float(np.mean([drops[site] for drops in DROPS.values()])) for site in names}
    truth = Truth("loo", "fedce", mean, DROPS, shapley.shares(mean).by_player, None)
    low, high = contribution._interval(context, "fedci", truth).split(" to ")
    assert -5 <= int(low) <= 5
    assert int(high) == 100
    alone = bootstrap_agreement([list(fedci.values())] * 3, list(truth.shares.values()), rng()).pearson
    assert alone.low > 0.5
