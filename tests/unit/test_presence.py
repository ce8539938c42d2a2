"""Presence: who takes part in some of the rounds is shown and paid for these; weights do not change."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedce.core.presence import paid, presence_of
from fedce.present.columns import presence_lines

SITES = ("a", "b", "c")
shares = st.lists(st.floats(0.01, 1), min_size=3, max_size=3).map(
    lambda raw: {s: x / sum(raw) for s, x in zip(SITES, raw, strict=True)}
)


@dataclass
class Done:
    sites: dict
    asked: list = field(default_factory=lambda: list(SITES))


def rounds(*there):
    return [Done(dict.fromkeys(one)) for one in there]


def test_every_round_of_the_run_counts_also_before_a_site_joined():
    found = presence_of(rounds("ab", "ab", "abc", "ac"), SITES, drawn=False)
    assert found == {"a": 1.0, "b": 0.75, "c": 0.5}


def test_where_rounds_draw_their_sites_a_site_answers_for_its_draws():
    done = [Done({"a": 0}, ["a", "b"]), Done({"a": 0, "c": 0}, ["a", "c"])]
    assert presence_of(done, SITES, drawn=True) == {"a": 1.0, "b": 0.0, "c": 1.0}


@given(shares)
def test_who_is_always_there_is_paid_to_the_last_bit_as_before(found):
    assert paid(found, dict.fromkeys(SITES, 1.0)) == found


@given(shares, st.floats(0, 1))
def test_less_presence_is_never_more_pay(found, part):
    after = paid(found, {"a": part, "b": 1.0, "c": 1.0})
    assert sum(after.values()) == pytest.approx(1)
    assert after["a"] <= found["a"] + 1e-9
    assert after["b"] / after["c"] == pytest.approx(found["b"] / found["c"])


@given(shares)
def test_two_names_in_turn_are_paid_as_one(found):
    """One hospital with two names, each in half of the rounds and each with the credit of a whole site."""
    twice = {**{s: x for s, x in found.items() if s != "a"}, "a1": found["a"], "a2": found["a"]}
    after = paid(twice, {"a1": 0.5, "a2": 0.5, "b": 1.0, "c": 1.0})
    assert after["a1"] + after["a2"] == pytest.approx(found["a"])


def test_readers_are_told():
    assert presence_lines({}) == []
    assert presence_lines({"presence": {"a": 1.0}}) == []
    (said,) = presence_lines({"presence": {"a": 0.15, "b": 1.0}})
    assert "a in 15 %" in said
    assert "b in" not in said
