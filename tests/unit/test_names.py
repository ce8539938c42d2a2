"""One hospital under two names that are never there together."""

import numpy as np
import pytest

from fedce.core.params import SKETCH
from fedce.guard.evidence import TWINS_FROM, sketches_with
from fedce.guard.names import CONTINUES, FEWEST_SEEN, MOST_APART, Attendance, continued_by
from fedce.guard.signs import Signs, alias_of
from fedce.record.flags import flag_of

BESIDE = ("a", "b", "c", "d")
N_ROUNDS = 24


def attendance(there, hospital_of, n_rounds=N_ROUNDS, seed=0):
    """Each hospital has a direction that turns slowly; `there` says whether x and y answer in a round."""
    rng = np.random.default_rng(seed)
    own = {hospital: rng.normal(size=SKETCH) for hospital in (*BESIDE, "one", "other")}
    found, kept = Attendance({}, {}), {}
    for k in range(n_rounds):
        own = {hospital: 0.99 * way + 0.14 * rng.normal(size=SKETCH) for hospital, way in own.items()}
        sites = [*BESIDE, *(name for name in ("x", "y") if there(name, k))]
        updates = {site: own[hospital_of.get(site, site)] + 0.1 * rng.normal(size=SKETCH) for site in sites}
        kept = sketches_with(kept, updates, np.zeros(SKETCH))
        found = found.with_round(k, kept, sites)
    return found


def in_turn(name, k):
    return (k % 2 == 0) == (name == "x")


def one_after_the_other(name, k):
    return (k < N_ROUNDS // 2) == (name == "x")


def together_once(name, k):
    return in_turn(name, k) or k == N_ROUNDS - 1


@pytest.mark.parametrize("there", [in_turn, one_after_the_other])
def test_one_hospital_under_two_names_is_found_though_never_seen_together(there):
    found = attendance(there, {"x": "one", "y": "one"})
    assert continued_by(found.seen["y"]) == ["x"]
    assert alias_of("x") in Signs(length=1.0, continues=found.seen["y"]).flags
    assert Signs(length=1.0, continues=found.seen["y"]).trust == 1.0


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("there", [in_turn, one_after_the_other])
def test_two_hospitals_that_take_turns_are_two(there, seed):
    found = attendance(there, {"x": "one", "y": "other"}, seed=seed)
    assert not any(continued_by(its) for its in found.seen.values())


def test_names_that_were_there_together_are_not_compared():
    assert attendance(together_once, {"x": "one", "y": "one"}).seen == {}


def test_in_the_first_rounds_all_may_be_alike():
    assert attendance(in_turn, {"x": "one", "y": "one"}, n_rounds=TWINS_FROM).seen == {}


def test_a_name_that_left_long_ago_is_not_compared():
    found = attendance(lambda name, k: k < 9 if name == "x" else k >= 9 + MOST_APART + 1, {"x": "one", "y": "one"})
    assert found.seen == {}


@pytest.mark.parametrize(
    ("n", "mean", "is_one"),
    [(FEWEST_SEEN, CONTINUES, True), (FEWEST_SEEN - 1, 1.0, False), (FEWEST_SEEN, CONTINUES - 0.01, False)],
)
def test_a_few_comparisons_or_a_low_mean_say_nothing(n, mean, is_one):
    assert continued_by({"x": (n, mean)}) == (["x"] if is_one else [])


def test_the_flag_is_read_back_from_its_words():
    assert flag_of(alias_of("north").text) == alias_of("north")
