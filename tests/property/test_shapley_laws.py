"""The axioms of the Shapley value, and its definition, for any game."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedce.valuation.shapley import banzhaf, coalitions, exact, leave_one_out, sampled, shares

WORTH = st.floats(-10, 10).map(lambda x: round(x, 3))
NAMES = ["amber", "birch", "cedar", "dahlia", "elm"]


@st.composite
def games(draw, n=None):
    """(players, worth of each coalition)."""
    players = NAMES[: draw(st.integers(1, 5)) if n is None else n]
    return players, {coalition: draw(WORTH) for coalition in coalitions(players)}


def by_definition(worth, players):
    """The mean gain over all orders of arrival."""
    orders = list(permutations(players))
    gains = dict.fromkeys(players, 0.0)
    for order in orders:
        for i, player in enumerate(order):
            gains[player] += worth[frozenset(order[: i + 1])] - worth[frozenset(order[:i])]
    return {player: gain / len(orders) for player, gain in gains.items()}


def close(values):
    return pytest.approx(values, abs=1e-9)


@given(games())
def test_the_mean_gain_over_all_orders_of_arrival(game):
    players, worth = game
    assert exact(worth.__getitem__, players) == close(by_definition(worth, players))


@given(games())
def test_banzhaf_is_the_mean_gain_over_all_coalitions_of_the_others(game):
    players, worth = game
    expected = {
        player: np.mean([worth[c | {player}] - worth[c] for c in coalitions(players) if player not in c])
        for player in players
    }
    assert banzhaf(worth.__getitem__, players) == close(expected)


@given(games())
def test_efficiency(game):
    players, worth = game
    gain = worth[frozenset(players)] - worth[frozenset()]
    assert sum(exact(worth.__getitem__, players).values()) == close(gain)


@given(games(n=4))
def test_symmetry(game):
    players, worth = game
    first, second = players[:2]
    swap = {first: second, second: first}

    def blind(coalition):
        """The same game, but unable to tell the two apart."""
        return worth[coalition] + worth[frozenset(swap.get(player, player) for player in coalition)]

    phi = exact(blind, players)
    assert phi[first] == close(phi[second])


@given(games(n=4))
def test_null_player(game):
    players, worth = game
    phi = exact(lambda coalition: worth[coalition - {"elm"}], [*players, "elm"])
    assert phi["elm"] == 0
    assert {player: phi[player] for player in players} == close(exact(worth.__getitem__, players))
    assert leave_one_out(lambda coalition: worth[coalition - {"elm"}], [*players, "elm"])["elm"] == 0


@given(games(n=4), games(n=4), st.floats(-3, 3))
def test_additivity(one, other, factor):
    players, worth = one
    together = exact(lambda coalition: worth[coalition] + factor * other[1][coalition], players)
    a, b = exact(worth.__getitem__, players), exact(other[1].__getitem__, players)
    assert together == close({player: a[player] + factor * b[player] for player in players})


@given(games(), st.randoms(use_true_random=False))
def test_the_order_of_the_players_does_not_matter(game, random):
    players, worth = game
    shuffled = random.sample(players, len(players))
    assert exact(worth.__getitem__, shuffled) == close(exact(worth.__getitem__, players))


@given(games(), st.integers(0, 2**32 - 1))
def test_every_sweep_of_untruncated_sampling_is_efficient(game, seed):
    players, worth = game
    found = sampled(
        worth.__getitem__, players, np.random.default_rng(seed), tolerance=0, convergence=0, max_permutations=20
    )
    assert sum(found.values.values()) == close(worth[frozenset(players)] - worth[frozenset()])
    assert found.n_permutations % len(players) == 0
    assert found.n_evaluations <= 2 ** len(players)


@settings(deadline=None)
@given(games(), st.integers(0, 2**32 - 1))
def test_untruncated_sampling_approaches_the_exact_value(game, seed):
    players, worth = game
    found = sampled(
        worth.__getitem__, players, np.random.default_rng(seed), tolerance=0, convergence=0, max_permutations=600
    )
    # Six standard errors, because Hypothesis looks for the worst of many samples.
    for player, truth in exact(worth.__getitem__, players).items():
        assert abs(found.values[player] - truth) <= 6 * found.standard_errors[player] + 1e-9


@given(st.dictionaries(st.sampled_from(NAMES), WORTH, min_size=1))
def test_shares_lie_on_the_simplex_and_keep_the_order(values):
    found = shares(values)
    assert sum(found.by_player.values()) == close(1)
    assert min(found.by_player.values()) >= 0
    if not found.degenerate:
        by_value = sorted(values, key=values.__getitem__)
        ordered = [found.by_player[player] for player in by_value]
        assert ordered == sorted(ordered)
