"""Numbers printed in the paper that follow from its own tables."""

import pytest
from scipy import stats

from fedce.studies.paper import DICE, FAIRNESS
from fedce.valuation.agreement import agreement
from fedce.valuation.fairness import fairness

# Table 1: the printed average and standard deviation of the clients' Dice, which the studies show.
PRINTED = {
    "fundus6": {
        "standalone": (86.51, 3.95),
        "fedavg": (78.27, 18.66),
        "qfedavg": (80.85, 17.80),
        "cffl": (79.81, 19.02),
        "fedci": (80.17, 19.24),
        "cgsv": (77.96, 21.80),
        "fedce": (83.08, 12.70),
        "fedce-sum": (82.92, 14.03),
    },
    "prostate6": {
        "standalone": (87.79, 2.26),
        "fedavg": (87.82, 2.90),
        "qfedavg": (87.99, 2.52),
        "cffl": (87.50, 3.20),
        "fedci": (87.82, 2.68),
        "cgsv": (87.67, 2.91),
        "fedce": (88.31, 2.22),
        "fedce-sum": (88.22, 2.43),
    },
}
ROWS = [
    pytest.param(DICE[task][method], *printed, id=f"{task} {method}")
    for task, table in PRINTED.items()
    for method, printed in table.items()
]


@pytest.mark.parametrize(("dice", "average", "deviation"), ROWS)
def test_table_1_is_the_mean_and_the_sample_standard_deviation(dice, average, deviation):
    measured = fairness(dice)
    # The table was made from unrounded scores, so its last digit may differ by one.
    assert measured.mean == pytest.approx(average, abs=0.011)
    assert measured.std == pytest.approx(deviation, abs=0.011)


def shares(counts):
    return [count / sum(counts) for count in counts]


def test_table_3_fedavg_on_fundus():
    samples, leave_one_out = shares([50, 98, 47, 230, 80, 400]), [0.15, 0.095, 0.12, 0.15, 0.44, 0.055]
    measured = agreement(samples, leave_one_out)
    assert 100 * measured.pearson == pytest.approx(-39.76, abs=0.3)
    assert measured.euclid == pytest.approx(0.546, abs=0.001)
    assert measured.pearson_p == pytest.approx(0.44, abs=0.01)


def test_table_3_fedavg_on_prostate():
    samples = shares([381, 238, 278, 242, 389, 814])
    leave_one_out = [0.2013, 0.0219, 0.0174, 0.0209, 0.6847, 0.0468]
    measured = agreement(samples, leave_one_out)
    assert 100 * measured.pearson == pytest.approx(3.01, abs=0.3)
    assert measured.euclid == pytest.approx(0.620, abs=0.002)
    assert measured.cosine == pytest.approx(0.516, abs=0.001)
    assert measured.pearson_p == pytest.approx(0.95, abs=0.01)


def test_the_appendix_sample_shares():
    percent = [round(100 * share, 2) for share in shares([50, 98, 47, 230, 80, 400])]
    assert percent == [5.52, 10.83, 5.19, 25.41, 8.84, 44.20]


@pytest.mark.parametrize(("task", "method"), [(task, method) for task in FAIRNESS for method in FAIRNESS[task]])
def test_table_2_has_the_p_of_its_correlation_over_six_clients(task: str, method: str):
    """Student's t with four degrees of freedom; CFFL's on the fundus task is printed ten times too large."""
    percent, printed, _ = FAIRNESS[task][method]
    r = percent / 100
    p = 2 * stats.t.sf(r * (4 / (1 - r * r)) ** 0.5, df=4)
    if (task, method) == ("fundus6", "cffl"):
        printed /= 10
    assert p == pytest.approx(printed, rel=0.05)
