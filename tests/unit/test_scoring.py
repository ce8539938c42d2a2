"""How a score is made of counted pixels, by hand-worked cases and against plain arithmetic."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedce.core.scoring import MIN_CASES, Counts, Grouping, dice, dice_interval
from fedce.data.splits import spread_out


def test_a_volume_is_scored_whole():
    """Three slices: a miss and a false alarm on empty or small slices weigh by their pixels, not by their number."""
    counts = Counts(np.array([[40], [0], [0]]), np.array([[100], [5], [0]]))
    grouping = Grouping.of([0, 0, 0], ["P0"] * 3)
    assert grouping.dice(counts).tolist() == [[pytest.approx(80 / 105)]]


def test_a_case_is_the_mean_of_its_images_and_a_site_of_its_cases():
    counts = Counts(np.array([[5], [0], [3]]), np.array([[10], [4], [6]]))  # Dice 1, 0 and 1.
    by_case = Grouping.of([0, 1, 2], ["P0", "P0", "P1"]).dice(counts)
    assert by_case.tolist() == [[0.5], [1.0]]
    assert by_case.mean() == 0.75


def test_a_case_of_two_volumes_is_their_mean():
    counts = Counts(np.array([[1], [1], [0], [0]]), np.array([[4], [0], [3], [1]]))
    by_case = Grouping.of([0, 0, 1, 1], ["P0"] * 4).dice(counts)
    assert by_case.tolist() == [[0.5]]  # 4 / 4 and 0 / 4.


def test_an_empty_volume_scores_one_or_nothing():  # D15
    grouping = Grouping.of([0, 0, 1, 1], ["P0", "P0", "P1", "P1"])
    counts = Counts(np.zeros((4, 1), np.int64), np.array([[0], [0], [0], [7]]))
    assert grouping.dice(counts).tolist() == [[1.0], [0.0]]


def test_classes_are_scored_apart():
    counts = Counts(np.array([[2, 0]]), np.array([[4, 0]]))
    assert Grouping.of([3], ["P0"]).dice(counts).tolist() == [[1.0, 1.0]]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=30))
def test_images_of_their_own_are_scored_one_by_one(pairs: list[tuple[int, int]]):
    overlap = np.array([[a] for a, _ in pairs])
    total = np.array([[2 * a + b] for a, b in pairs])
    names = [str(i) for i in range(len(pairs))]
    found = Grouping.of(range(len(pairs)), names).dice(Counts(overlap, total))
    np.testing.assert_array_equal(found, dice(overlap, total))
    assert ((found >= 0) & (found <= 1)).all()


def test_an_interval_needs_five_cases():
    assert dice_interval(np.linspace(0.5, 0.9, MIN_CASES - 1), 0) is None
    low, high = dice_interval(np.linspace(0.5, 0.9, MIN_CASES), 0)
    assert 0.5 <= low < 0.7 < high <= 0.9


@settings(deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.3, 0.9, 0.9 + 1e-16, 1.0]), min_size=MIN_CASES, max_size=12))
def test_an_interval_is_within_the_cases_and_warns_of_nothing(scores: list[float]):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        low, high = dice_interval(np.array(scores), 7)
    assert min(scores) <= low <= high <= max(scores)
    assert (low, high) == dice_interval(np.array(scores), 7)


def test_more_cases_give_a_narrower_interval():
    def width(n: int) -> float:
        low, high = dice_interval(np.tile([0.4, 0.6, 0.7, 0.8, 0.9], n), 0)
        return high - low

    assert width(1) > width(4) > width(16)


def test_intervals_hold_the_mean_of_all_cases_about_as_often_as_they_say():
    """Skewed scores, as Dice is: 20 cases drawn from a Beta distribution with mean 0.8."""
    rng = np.random.default_rng(0)
    held = 0
    for i in range(200):
        low, high = dice_interval(rng.beta(8, 2, 20), i)
        held += low <= 0.8 <= high
    assert 0.88 <= held / 200 <= 0.99


@pytest.mark.parametrize(("n", "part", "expected"), [(10, 0.1, [5]), (10, 0.0, []), (4, 1.0, [0, 1, 2, 3])])
def test_a_part_of_the_rows_is_spread_over_them(n: int, part: float, expected: list[int]):
    assert spread_out(np.arange(n), part).tolist() == expected


def test_a_part_of_no_rows_is_none():
    assert spread_out(np.array([], np.int64), 0.5).tolist() == []
