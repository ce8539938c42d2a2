"""Shapley values of games whose solution is known."""

from itertools import pairwise

import numpy as np
import pytest

from fedce.base.errors import ConfigError, FedceError
from fedce.valuation.shapley import coalitions, exact, leave_one_out, sampled, shares


def voting(quota, **votes):
    return lambda coalition: float(sum(votes[voter] for voter in coalition) >= quota)


def glove(coalition):
    """One owner of a left glove, two of right ones; only a pair is worth something."""
    return float("left" in coalition and len(coalition) > 1)


def airport(costs):
    """A runway costs what its largest aircraft needs."""
    return lambda coalition: float(max((costs[player] for player in coalition), default=0.0))


def additive(worths):
    return lambda coalition: float(sum(worths[player] for player in sorted(coalition)))


class Counted:
    def __init__(self, utility):
        self.utility, self.asked = utility, []

    def __call__(self, coalition):
        self.asked.append(coalition)
        return self.utility(coalition)


def test_the_glove_game():
    assert exact(glove, ["left", "right1", "right2"]) == pytest.approx(
        {"left": 2 / 3, "right1": 1 / 6, "right2": 1 / 6}
    )


@pytest.mark.parametrize(
    ("quota", "votes", "power"),
    [
        (51, {"a": 49, "b": 48, "c": 3}, [1 / 3, 1 / 3, 1 / 3]),  # Three votes weigh as much as 49.
        (4, {"a": 3, "b": 2, "c": 1}, [2 / 3, 1 / 6, 1 / 6]),
        (51, {"a": 50, "b": 49, "c": 1}, [2 / 3, 1 / 6, 1 / 6]),
        (3, {"a": 2, "b": 1, "c": 1, "d": 1}, [1 / 2, 1 / 6, 1 / 6, 1 / 6]),
    ],
)
def test_voting_power(quota, votes, power):
    assert list(exact(voting(quota, **votes), list(votes)).values()) == pytest.approx(power)


def test_the_security_council():
    # Shapley and Shubik: five permanent members with a veto have 98.1 % of the power, the ten others 0.19 % each.
    votes = {f"permanent{i}": 7 for i in range(5)} | {f"elected{i}": 1 for i in range(10)}
    power = exact(voting(39, **votes), list(votes))
    assert power["permanent0"] == pytest.approx(421 / 2145)
    assert power["elected0"] == pytest.approx(4 / 2145)


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_the_airport_game(n):
    # Littlechild and Owen: each piece of runway is shared by those who need it.
    costs = {f"plane{i}": i for i in range(1, n + 1)}
    expected = {f"plane{i}": sum(1 / (n - j + 1) for j in range(1, i + 1)) for i in range(1, n + 1)}
    assert exact(airport(costs), list(costs)) == pytest.approx(expected)


def test_an_additive_game_pays_everybody_their_own():
    worths = {"a": 3.0, "b": -1.0, "c": 0.0}
    assert exact(additive(worths), list(worths)) == pytest.approx(worths, abs=1e-12)
    assert leave_one_out(additive(worths), list(worths)) == pytest.approx(worths)


@pytest.mark.parametrize("needed", [{"a"}, {"a", "c"}, {"a", "b", "c", "d"}])
def test_a_unanimity_game_is_shared_by_those_whom_it_needs(needed):
    players = ["a", "b", "c", "d"]
    phi = exact(lambda coalition: float(needed <= coalition), players)
    assert phi == pytest.approx({player: (player in needed) / len(needed) for player in players})


def test_leave_one_out_sees_no_worth_in_what_two_can_replace():
    # Why it is no substitute for Shapley: each right glove alone could go.
    assert leave_one_out(glove, ["left", "right1", "right2"]) == {"left": 1.0, "right1": 0.0, "right2": 0.0}


def test_each_coalition_is_listed_once_next_to_one_that_differs_by_one_player():
    listed = coalitions(["a", "b", "c", "d"])
    assert listed[0] == frozenset()
    assert len(listed) == len(set(listed)) == 16
    assert all(len(left ^ right) == 1 for left, right in pairwise(listed))


def test_exact_asks_for_each_coalition_once_in_the_listed_order():
    utility = Counted(glove)
    exact(utility, ["left", "right1", "right2"])
    assert utility.asked == coalitions(["left", "right1", "right2"])


def test_leave_one_out_asks_n_plus_one_times():
    utility = Counted(glove)
    leave_one_out(utility, ["left", "right1", "right2"])
    assert len(utility.asked) == len(set(utility.asked)) == 4


def test_too_many_players_for_all_coalitions():
    with pytest.raises(ConfigError, match=r"21 players have 2\^21 coalitions"):
        exact(len, [f"p{i}" for i in range(21)])


@pytest.mark.parametrize("value", [exact, leave_one_out, lambda u, p: sampled(u, p, np.random.default_rng(0))])
def test_bad_games(value):
    with pytest.raises(FedceError, match="at least one player"):
        value(len, [])
    with pytest.raises(FedceError, match="'a' is named twice"):
        value(len, ["a", "b", "a"])
    with pytest.raises(FedceError, match=r"utility of \{a, b\} is nan"):
        value(lambda coalition: float("nan") if len(coalition) == 2 else 1.0, ["a", "b"])


def everything(utility, players, seed=0, **options):
    """Sampling without truncation or early stop."""
    return sampled(utility, players, np.random.default_rng(seed), **({"tolerance": 0, "convergence": 0} | options))


@pytest.mark.parametrize(
    ("utility", "players"),
    [
        (glove, ["left", "right1", "right2"]),
        (voting(51, a=30, b=25, c=20, d=15, e=10), list("abcde")),
        (airport({p: i + 1 for i, p in enumerate("abcdef")}), list("abcdef")),
    ],
)
def test_sampling_approaches_the_exact_value(utility, players):
    found = everything(utility, players, max_permutations=6000)
    truth = exact(utility, players)
    assert found.values == pytest.approx(truth, abs=0.02 * utility(frozenset(players)))
    # Four standard errors: a player strays further in 1 of 16,000 samples.
    assert all(abs(found.values[p] - truth[p]) <= 4 * found.standard_errors[p] + 1e-12 for p in players)
    assert found.n_permutations == 6000
    assert not found.converged


def test_standard_errors_say_how_far_sampling_strays():
    utility, players = airport({p: i + 1 for i, p in enumerate("abcdef")}), list("abcdef")
    runs = [everything(utility, players, seed, max_permutations=60) for seed in range(200)]
    spread = np.std([run.values["f"] for run in runs])
    assert np.mean([run.standard_errors["f"] for run in runs]) == pytest.approx(spread, rel=0.2)


def test_sampling_is_unbiased_although_it_is_guided():
    players = ["left", "right1", "right2"]
    runs = [everything(glove, players, seed, max_permutations=3).values["left"] for seed in range(2000)]
    assert np.mean(runs) == pytest.approx(2 / 3, abs=0.01)


def test_guidance_puts_everybody_first_once_in_a_sweep():
    utility = Counted(additive(dict.fromkeys("abcdef", 1.0)))
    everything(utility, list("abcdef"), max_permutations=6)
    assert {coalition for coalition in utility.asked if len(coalition) == 1} == {frozenset(p) for p in "abcdef"}


def test_sampling_asks_for_each_coalition_once_and_counts():
    utility = Counted(airport({p: i for i, p in enumerate("abcd")}))
    found = everything(utility, list("abcd"), max_permutations=400)
    assert found.n_evaluations == len(utility.asked) == len(set(utility.asked)) == 16


def test_the_same_generator_gives_the_same_sample():
    game = voting(51, a=30, b=25, c=20, d=15, e=10)
    assert everything(game, list("abcde"), 7) == everything(game, list("abcde"), 7)
    assert everything(game, list("abcde"), 7, max_permutations=50) != everything(
        game, list("abcde"), 8, max_permutations=50
    )


def test_a_game_with_nothing_to_gain_is_not_sampled():
    utility = Counted(additive({"a": 0.004, "b": -0.003, "c": 0.0}))
    found = sampled(utility, ["a", "b", "c"], np.random.default_rng(0), tolerance=0.0011)
    assert found.values == {"a": 0, "b": 0, "c": 0}
    assert (found.n_permutations, found.n_evaluations) == (0, 2)


def test_a_prefix_that_is_as_good_as_all_ends_its_permutation():
    # Whoever comes first brings all there is: only the empty, the full and the single coalitions are looked at.
    utility = Counted(lambda coalition: float(bool(coalition)))
    found = sampled(utility, list("abcdefghij"), np.random.default_rng(0), tolerance=0.01)
    assert found.values == pytest.approx(dict.fromkeys("abcdefghij", 0.1))
    assert max(len(coalition) for coalition in utility.asked if len(coalition) < 10) == 1
    assert found.n_evaluations == 12


def test_truncation_never_loses_more_than_its_tolerance():
    costs = {p: 1 - 0.5**i for i, p in enumerate("abcdefgh", 1)}
    found = sampled(airport(costs), list(costs), np.random.default_rng(0), tolerance=0.05)
    assert sum(found.values.values()) == pytest.approx(max(costs.values()), abs=0.05)


def test_zero_tolerance_looks_beyond_a_prefix_that_happens_to_equal_all():
    # Worth 1 with anybody, but 0 with a and b alone: stopping at the first 1 would miss it.
    def game(coalition):
        return float(bool(coalition) and coalition != {"a", "b"})

    assert everything(game, list("abc")).values == pytest.approx(exact(game, list("abc")), abs=0.05)


def test_sampling_stops_once_the_errors_are_small():
    game, players = airport({p: i + 1 for i, p in enumerate("abcdef")}), list("abcdef")
    coarse = sampled(game, players, np.random.default_rng(0), convergence=0.2, tolerance=0)
    fine = sampled(game, players, np.random.default_rng(0), convergence=0.05, tolerance=0)
    assert coarse.converged
    assert fine.converged
    assert coarse.n_permutations < fine.n_permutations < 2000
    assert max(fine.standard_errors.values()) <= 0.05 * np.mean(list(fine.values.values()))


def test_sampling_options_are_checked():
    rng = np.random.default_rng(0)
    with pytest.raises(ConfigError, match="tolerance"):
        sampled(len, ["a"], rng, tolerance=-1)
    with pytest.raises(ConfigError, match="convergence"):
        sampled(len, ["a"], rng, convergence=float("nan"))
    with pytest.raises(ConfigError, match="max_permutations must be at least 2"):
        sampled(len, ["a", "b"], rng, max_permutations=1)


def test_shares_clip_what_is_negative_and_say_so():
    found = shares({"a": 3.0, "b": -1.0, "c": 1.0})
    assert found.by_player == {"a": 0.75, "b": 0.0, "c": 0.25}
    assert found.clipped == ("b",)
    assert not found.degenerate


@pytest.mark.parametrize("values", [{"a": 0.0, "b": 0.0}, {"a": -2.0, "b": 0.0}])
def test_where_nobody_helped_all_share_alike(values):
    found = shares(values)
    assert found.by_player == {"a": 0.5, "b": 0.5}
    assert found.degenerate
    assert found.clipped == tuple(player for player in values if values[player] < 0)


def test_shares_of_what_is_no_number():
    with pytest.raises(FedceError, match="'b' is inf"):
        shares({"a": 1.0, "b": float("inf")})
