"""Numbers printed in the paper that follow from its own tables."""

import pytest

from fedce.fairness import fairness
from fedce.valuation.agreement import agreement

# Table 1: Dice of clients 1 to 6, then the printed average and standard deviation.
FUNDUS = {
    "Standalone": ([86.69, 85.51, 86.21, 89.91, 79.77, 90.98], 86.51, 3.95),
    "FedAvg": ([81.34, 85.21, 83.28, 88.16, 40.81, 90.79], 78.27, 18.66),
    "q-FedAvg": ([86.24, 86.97, 87.37, 89.13, 44.68, 90.72], 80.85, 17.80),
    "CFFL": ([85.72, 86.29, 86.96, 88.62, 41.12, 90.16], 79.81, 19.02),
    "FedCI": ([87.02, 86.93, 87.35, 88.53, 40.99, 90.22], 80.17, 19.24),
    "CGSV": ([83.46, 85.57, 85.47, 88.48, 33.79, 91.01], 77.96, 21.80),
    "FedCE (Multi.)": ([86.73, 87.45, 87.51, 89.26, 57.30, 90.25], 83.08, 12.70),
    "FedCE (Sum.)": ([87.22, 87.36, 87.93, 89.66, 54.42, 90.92], 82.92, 14.03),
}
PROSTATE = {
    "Standalone": ([91.23, 84.59, 87.57, 87.37, 86.70, 89.25], 87.79, 2.26),
    "FedAvg": ([91.10, 84.59, 89.02, 89.09, 83.87, 89.27], 87.82, 2.90),
    "q-FedAvg": ([90.94, 85.60, 89.28, 89.18, 84.27, 88.67], 87.99, 2.52),
    "CFFL": ([91.01, 85.49, 89.24, 88.98, 82.11, 88.17], 87.50, 3.20),
    "FedCI": ([91.21, 85.40, 89.49, 88.37, 83.96, 88.49], 87.82, 2.68),
    "CGSV": ([91.15, 84.90, 89.27, 88.09, 83.47, 89.16], 87.67, 2.91),
    "FedCE (Multi.)": ([91.43, 85.79, 89.21, 89.13, 85.68, 88.62], 88.31, 2.22),
    "FedCE (Sum.)": ([91.18, 85.54, 89.59, 89.22, 84.99, 88.79], 88.22, 2.43),
}
ROWS = [
    pytest.param(*row, id=f"{task} {method}")
    for task, table in (("fundus", FUNDUS), ("prostate", PROSTATE))
    for method, row in table.items()
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
