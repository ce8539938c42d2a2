"""Money: to the cent, within the bounds, and fair in the plain sense."""

from decimal import Decimal
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedce.base.errors import ConfigError, RunError
from fedce.present.pages.allocation import summary
from fedce.questions.allocation import allocate, bounded, check_measured, doubts_of, fraction, in_cents, money

RAW = st.lists(st.floats(0.0, 1.0), min_size=2, max_size=12).filter(lambda values: sum(values) > 1e-3)


def shares_of(values: list[float]) -> dict[str, float]:
    return {f"s{i:02d}": value / sum(values) for i, value in enumerate(values)}


@given(RAW, st.integers(1, 10**12))
def test_amounts_sum_to_the_budget_exactly(values: list[float], cents: int):
    total = Decimal(cents) / 100
    amounts = in_cents(shares_of(values), total)
    assert sum(amounts.values()) == total
    assert all(amount >= 0 for amount in amounts.values())


@given(RAW, st.floats(0, 0.08), st.floats(0.6, 1.0))
def test_floor_and_cap_hold_and_nothing_is_lost(values: list[float], floor: float, cap: float):
    result = bounded(shares_of(values), floor, cap)
    assert sum(result.values()) == pytest.approx(1)
    assert min(result.values()) >= floor - 1e-9
    assert max(result.values()) <= cap + 1e-9


@given(RAW, st.floats(0, 0.08), st.floats(0.6, 1.0))
def test_who_contributed_more_never_gets_less(values: list[float], floor: float, cap: float):
    shares = shares_of(values)
    result = bounded(shares, floor, cap)
    amounts = in_cents(result, Decimal(100_000))
    order = sorted(shares, key=lambda site: shares[site])
    for lower, higher in pairwise(order):
        assert result[lower] <= result[higher] + 1e-9
        assert amounts[lower] <= amounts[higher] + Decimal("0.01")


@given(RAW)
def test_without_bounds_shares_stay(values: list[float]):
    shares = shares_of(values)
    assert bounded(shares, 0.0, 1.0) == pytest.approx(shares)


RESULTS = {
    "contributions": {"a": 0.5, "b": 0.3, "c": 0.2},
    "train_images_used": {"a": 10, "b": 10, "c": 80},
    "intervals": {"low": {"a": 0.4, "b": 0.2, "c": 0.1}, "high": {"a": 0.6, "b": 0.4, "c": 0.3}},
    "worth": {
        "share": {"a": 0.1, "b": 0.2, "c": 0.7},
        "low": {"a": 0.0, "b": 0.1, "c": 0.5},
        "high": {"a": 0.25, "b": 0.5, "c": 0.75},
        "signal": 0.9,
    },
}


def test_rules_against_hand_worked_numbers():
    payouts = allocate(RESULTS, "1000")
    assert payouts["contribution"].amounts == {"a": 500, "b": 300, "c": 200}
    assert payouts["samples"].amounts == {"a": 100, "b": 100, "c": 800}
    assert payouts["equal"].amounts == {"a": Decimal("333.34"), "b": Decimal("333.33"), "c": Decimal("333.33")}
    assert payouts["worth"].amounts == {"a": 100, "b": 200, "c": 700}
    assert payouts["worth"].high == {"a": 250, "b": 500, "c": 750}
    assert payouts["mix"].amounts == {"a": Decimal("216.67"), "b": Decimal("266.67"), "c": Decimal("516.66")}
    assert payouts["contribution"].low == {"a": 400, "b": 200, "c": 100}
    assert payouts["equal"].low is None


def test_bounds_against_hand_worked_numbers():
    """A cap of 40 % frees 10 points, which b and c share 3 : 2."""
    capped = allocate(RESULTS, "1000", cap="40%")["contribution"]
    assert capped.amounts == {"a": 400, "b": 360, "c": 240}
    floored = allocate(RESULTS, "1000", floor="25%")["contribution"]
    assert floored.amounts == {"a": Decimal("468.75"), "b": Decimal("281.25"), "c": 250}


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("-5",), "--budget: expected an amount above 0"),
        (("1.005",), "--budget: expected an amount above 0 in whole cents"),
        (("lots",), "--budget: expected an amount"),
        (("NaN",), "--budget: expected an amount"),
        (("100", "40%"), "3 sites with at least 40% each would get more than the budget"),
        (("100", "0%", "30%"), "3 sites with at most 30% each would get less than the budget"),
        (("100", "two"), "--floor: expected a share"),
        (("100", "-1%"), "--floor: expected a share"),
    ],
)
def test_bad_input_is_one_line(arguments, line):
    with pytest.raises(ConfigError, match=line):
        allocate(RESULTS, *arguments)


def test_amounts_and_shares_are_read():
    assert money("100_000") == 100_000
    assert money("0.01") == Decimal("0.01")
    assert fraction("--cap", "2%") == fraction("--cap", "0.02")


def test_a_site_without_an_interval_has_an_amount_and_no_ends():
    results = {"contributions": {"a": 0.5, "b": 0.25, "c": 0.25}, "train_images_used": {"a": 1, "b": 1, "c": 1}}
    ends = {"low": {"a": 0.25, "b": None, "c": 0.125}, "high": {"a": 0.75, "b": None, "c": 0.25}}
    payouts = allocate({**results, "intervals": {**ends, "reasons": {"b": "b has 3 validation cases"}}}, "100")
    chosen = payouts["contribution"]
    assert (chosen.low["b"], chosen.high["b"], chosen.amounts["b"]) == (None, None, Decimal("25.00"))
    assert (chosen.low["a"], chosen.high["a"]) == (Decimal("25.00"), Decimal("75.00"))
    said = summary(payouts, "contribution")
    assert "The amount of a has the widest interval: 25.00 to 75.00." in said
    assert "Sites without an interval: b." in said


CERTAIN = {
    "contributions": {"a": 0.5, "b": 0.3, "c": 0.2},
    "intervals": {
        "low": {"a": 0.4, "b": 0.2, "c": 0.1},
        "high": {"a": 0.6, "b": 0.4, "c": 0.3},
        "indistinguishable": [["b", "c"]],
    },
    "initial_dice": {"a": 0.3, "b": 0.3},
    "validation_interval": {"a": [0.2, 0.6], "b": [0.31, 0.5], "c": [0.9, 0.95]},
}
NO_TWO = "no two sites can be told apart by the intervals of their contributions"
NOT_BETTER = "at no site is the final model's validation Dice above that of the initial model by more than its interval"


@pytest.mark.parametrize(
    ("change", "doubts"),
    [
        ({}, []),
        (
            {"intervals": None},
            ["the contributions have no intervals (too few rounds, or shares that are not means over"],
        ),
        ({"intervals": None, "no_intervals": "2 cases"}, ["the contributions have no intervals (2 cases)"]),
        ({"intervals": {**CERTAIN["intervals"], "indistinguishable": [["a", "b"], ["c", "b"], ["c", "a"]]}}, [NO_TWO]),
        # Only a and b could be told apart from c, which has no interval.
        (
            {
                "intervals": {
                    "low": {"a": 0.4, "b": 0.2, "c": None},
                    "high": {"a": 0.6, "b": 0.4, "c": None},
                    "indistinguishable": [["a", "b"]],
                }
            },
            [NO_TWO],
        ),
        ({"validation_interval": {"a": [0.2, 0.6], "b": [0.3, 0.5], "c": [0.9, 0.95]}}, [NOT_BETTER]),
        ({"validation_interval": {"a": None, "b": None, "c": None}}, [NOT_BETTER]),
        ({"initial_dice": {}}, [NOT_BETTER]),
    ],
)
def test_what_speaks_against_paying_by_contribution(change, doubts):
    results = {**CERTAIN, **change}
    found = doubts_of("contribution", results)
    assert len(found) == len(doubts)
    assert all(one.startswith(other) for one, other in zip(found, doubts, strict=True))
    for rule in ("samples", "equal"):
        assert doubts_of(rule, {**results, "intervals": None}) == []


def test_what_speaks_against_paying_by_worth():
    for rule in ("worth", "mix"):
        apart = {"signal": 0.5, "low": {"a": 0.0, "b": 0.5}, "high": {"a": 0.4, "b": 0.9}}
        assert doubts_of(rule, {**CERTAIN, "worth": apart}) == []
        alike = doubts_of(rule, {**CERTAIN, "worth": {**apart, "high": {"a": 0.6, "b": 0.9}}})
        assert [one.split(" by the")[0] for one in alike] == ["no two sites can be told apart"]
        noise = doubts_of(rule, {**CERTAIN, "worth": {"signal": 0.1}, "initial_dice": {}})
        assert [one.split(" in what")[0] for one in noise] == ["the sites differ by no more than noise", NOT_BETTER]


def test_a_run_without_worth_can_be_paid_by_the_other_rules():
    results = {**RESULTS, "worth": {"share": None, "reason": "3 sites take part"}}
    assert list(allocate(results, "10")) == ["contribution", "samples", "equal"]
    with pytest.raises(RunError, match=r"not measured \(3 sites take part\); choose --rule contribution"):
        check_measured("worth", results)


def test_a_site_without_an_interval_has_no_amounts_at_its_ends():
    ends = {"low": {"a": 0.4, "b": 0.2, "c": None}, "high": {"a": 0.6, "b": 0.4, "c": None}}
    payout = allocate({**RESULTS, "intervals": ends}, "1000")["contribution"]
    assert payout.low == {"a": Decimal("400.00"), "b": Decimal("200.00"), "c": None}
    assert payout.high["c"] is None


def test_where_nobody_took_part_samples_say_nothing():
    nobody = {**RESULTS, "train_images_used": {"a": 0, "b": 0, "c": 0}}
    assert set(allocate(nobody, "30")["samples"].amounts.values()) == {Decimal("10.00")}


@given(RAW, st.floats(0, 0.08), st.floats(0.4, 1.0), st.floats(0, 0.2))
def test_an_amount_lies_within_its_own_interval(values: list[float], floor: float, cap: float, width: float):
    """Also where floor or cap moves the other sites' shares."""
    if len(values) * cap < 1:
        return
    shares = shares_of(values)
    worth = {
        "share": shares,
        "low": {site: max(share - width, 0.0) for site, share in shares.items()},
        "high": {site: min(share + width, 1.0) for site, share in shares.items()},
    }
    results = {"contributions": shares, "intervals": None, "train_images_used": {}, "worth": worth}
    found = allocate({**results, "train_images_used": dict.fromkeys(shares, 1)}, "1000", str(floor), str(cap))
    for rule in ("worth", "mix"):
        paid = found[rule]
        assert paid.low is not None
        assert paid.high is not None
        assert all(paid.low[site] <= paid.amounts[site] <= paid.high[site] for site in shares)


def test_a_floor_does_not_move_an_amount_out_of_its_interval():
    worth = {
        "share": {"a": 0.7, "b": 0.2, "c": 0.1},
        "low": {"a": 0.65, "b": 0.15, "c": 0.05},
        "high": {"a": 0.75, "b": 0.25, "c": 0.15},
    }
    found = allocate({**RESULTS, "worth": {**worth, "signal": 1.0}}, "1000", "20%")["worth"]
    assert found.amounts["a"] == Decimal("600.00")
    # With 0.65, c gets its floor, and a and b share 0.8 as 0.65 to 0.2333; with 0.75, b gets its floor too.
    assert (found.low["a"], found.high["a"]) == (Decimal("588.68"), Decimal("600.00"))
    capped = allocate({**RESULTS, "worth": {**worth, "signal": 1.0}}, "1000", "0%", "40%")["worth"]
    assert capped.low["b"] <= capped.amounts["b"] <= capped.high["b"]
    assert capped.amounts["a"] == Decimal("400.00")
