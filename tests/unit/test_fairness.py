"""Fairness by hand."""

import pytest

from fedce.base.errors import FedceError
from fedce.valuation.fairness import against_standalone, fairness, gini, is_constant, jain, pearson

# The paper's Table 1, fundus.
STANDALONE = dict(zip("123456", [86.69, 85.51, 86.21, 89.91, 79.77, 90.98], strict=True))
FEDAVG = dict(zip("123456", [81.34, 85.21, 83.28, 88.16, 40.81, 90.79], strict=True))
FEDCE = dict(zip("123456", [86.73, 87.45, 87.51, 89.26, 57.30, 90.25], strict=True))


def test_indices_at_their_extremes():
    assert jain([0.7, 0.7, 0.7]) == pytest.approx(1)
    assert jain([0.9, 0.0, 0.0]) == pytest.approx(1 / 3)
    assert gini([0.7, 0.7, 0.7]) == 0
    assert gini([0.9, 0.0, 0.0]) == pytest.approx(2 / 3)
    assert jain([0.0, 0.0]) == 1
    assert gini([0.0, 0.0]) == 0


def test_one_site_is_served_evenly():
    alone = fairness([0.8])
    assert (alone.mean, alone.std, alone.worst, alone.best, alone.jain, alone.gini) == (0.8, 0, 0.8, 0.8, 1, 0)


def test_gains_by_hand():
    found = against_standalone({"a": 0.9, "b": 0.7, "c": 0.5}, {"a": 0.8, "b": 0.7, "c": 0.7})
    assert found.gain_by_site == pytest.approx({"a": 0.1, "b": 0.0, "c": -0.2})
    assert found.mean_gain == pytest.approx(-0.1 / 3)
    assert found.euclid == pytest.approx(0.05**0.5)
    assert found.n_sites_worse == 1
    # Deviations 0.2, 0, -0.2 and 1/15, -1/30, -1/30: 0.02 / sqrt(0.08 * 1/150).
    assert found.pearson == pytest.approx(0.02 / (0.08 / 150) ** 0.5)


def test_sites_are_matched_by_name():
    alone = {"a": 0.5, "b": 0.6, "c": 0.9}
    assert against_standalone({"c": 0.9, "a": 0.5, "b": 0.6}, alone).euclid == 0


def test_the_unit_is_that_of_the_scores():
    found = against_standalone({"a": 90.0, "b": 70.0}, {"a": 80.0, "b": 70.0})
    assert (found.euclid, found.mean_gain) == (10, 5)


def test_fedce_costs_the_rare_fundus_client_less_than_fedavg():
    fedavg, fedce = against_standalone(FEDAVG, STANDALONE), against_standalone(FEDCE, STANDALONE)
    assert fedavg.gain_by_site["5"] == pytest.approx(-38.96)
    assert fedce.gain_by_site["5"] == pytest.approx(-22.47)
    assert (fedavg.n_sites_worse, fedce.n_sites_worse) == (6, 3)
    assert fedce.euclid < fedavg.euclid


@pytest.mark.parametrize("dice", [{"a": 0.8}, {"a": 0.8, "b": 0.8}, {"a": 0.1 + 0.2, "b": 0.3}])
def test_no_correlation_where_there_is_nothing_to_correlate(dice):
    found = against_standalone(dice, {site: 0.6 + i for i, site in enumerate(dice)})
    assert (found.pearson, found.pearson_p) == (None, None)


def test_pearson_of_a_line():
    assert pearson([1, 2, 3], [3, 5, 7]) == pytest.approx((1, 0), abs=1e-7)
    assert pearson([1, 2, 3], [2, 2, 2]) is None


def test_what_differs_by_rounding_only_is_constant():
    assert is_constant([0.1 + 0.2, 0.3])
    assert is_constant([0, 0])
    assert not is_constant([0.3, 0.3 + 1e-9])


def test_both_runs_must_have_the_same_sites():
    with pytest.raises(FedceError, match="only one of the two runs has b, c"):
        against_standalone({"a": 0.8, "b": 0.7}, {"a": 0.8, "c": 0.7})
    with pytest.raises(FedceError, match="no site"):
        against_standalone({}, {})
    with pytest.raises(FedceError, match="not a finite number"):
        against_standalone({"a": float("nan")}, {"a": 0.5})
