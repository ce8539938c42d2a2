"""Cooperative games over named players: what each player adds to what all reach together.

A utility is asked for coalitions, and nothing else is known about it: it may retrain a model, rebuild one from recorded
updates, or look a number up. Every function here asks for a coalition at most once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import comb, isfinite

import numpy as np
from numpy.typing import NDArray

from fedce.base.errors import ConfigError, FedceError

Utility = Callable[[frozenset[str]], float]

MAX_EXACT_PLAYERS = 20
# A standard error from fewer sweeps is itself mostly chance.
MIN_SWEEPS = 5


def exact(utility: Utility, players: Sequence[str]) -> dict[str, float]:
    """The Shapley value from all 2^N coalitions, each asked once and in the order of `coalitions`."""
    n = len(players)
    # A player meets a coalition of size s in s! (n-1-s)! of the n! orders of arrival.
    return _semivalue(utility, players, [1 / (n * comb(n - 1, s)) for s in range(n)])


def banzhaf(utility: Utility, players: Sequence[str]) -> dict[str, float]:
    """The Banzhaf value: what a player adds to a coalition of the others, the mean over all 2^(N-1) of them.

    >>> banzhaf({frozenset(): 0.0, frozenset("a"): 1.0, frozenset("b"): 0.0, frozenset("ab"): 3.0}.__getitem__, "ab")
    {'a': 2.0, 'b': 1.0}
    """
    n = len(players)
    return _semivalue(utility, players, [1 / 2 ** (n - 1)] * n)


def _semivalue(utility: Utility, players: Sequence[str], weight_by_size: Sequence[float]) -> dict[str, float]:
    """What each player adds to every coalition of the others, weighted by the coalition's size."""
    asked, n = coalitions(players), len(players)
    u = np.empty(len(asked))
    for mask, coalition in zip(_gray_codes(n), asked, strict=True):
        u[mask] = _finite(utility(coalition), coalition)
    weight, masks = np.array(weight_by_size), np.arange(2**n)
    phi = {}
    for i, player in enumerate(players):
        without = masks[(masks >> i) & 1 == 0]
        phi[player] = float(weight[np.bitwise_count(without)] @ (u[without | (1 << i)] - u[without]))
    return phi


def coalitions(players: Sequence[str]) -> list[frozenset[str]]:
    """All 2^N coalitions, the empty one first; neighbours differ by one player (Gray code), so sums can be updated."""
    _check_players(players)
    if len(players) > MAX_EXACT_PLAYERS:
        raise ConfigError(
            f"{len(players)} players have 2^{len(players)} coalitions; "
            f"up to {MAX_EXACT_PLAYERS} can be listed, sample permutations instead"
        )
    return [
        frozenset(player for i, player in enumerate(players) if mask >> i & 1) for mask in _gray_codes(len(players))
    ]


def leave_one_out(utility: Utility, players: Sequence[str]) -> dict[str, float]:
    """How much is lost without each player: U(all) - U(all but i); N + 1 questions."""
    _check_players(players)
    everyone = frozenset(players)
    u_all = _finite(utility(everyone), everyone)
    return {player: u_all - _finite(utility(everyone - {player}), everyone - {player}) for player in players}


@dataclass(frozen=True)
class Sampled:
    """An estimate of the Shapley value."""

    values: dict[str, float]
    standard_errors: dict[str, float]
    """Errors of sampling alone, without what truncation leaves out; zero if there is only one sweep."""
    n_evaluations: int
    n_permutations: int
    converged: bool
    """False if `max_permutations` ended the sampling; always False with `convergence` 0, which uses all of them."""


def sampled(
    utility: Utility,
    players: Sequence[str],
    rng: np.random.Generator,
    *,
    tolerance: float = 0.001,
    max_permutations: int = 2000,
    convergence: float = 0.05,
) -> Sampled:
    """GTG-Shapley (Liu et al. 2022): guided, truncated permutation sampling; for more players than `exact` can handle.

    `tolerance`, in the unit of the utility, truncates: a game whose whole gain is within it is worth 0 to every player,
    and once a prefix is that close to U(all), the players after it add nothing. 0 truncates nothing.
    `convergence` stops when no standard error exceeds this fraction of the mean absolute value; 0 never stops early.
    The paper stops when the running mean moves little instead, which any running mean does in time, right or wrong.
    """
    _check_players(players)
    _check_sampling(len(players), tolerance, max_permutations, convergence)
    value = _Remembered(utility)
    u_none, u_all = value(frozenset()), value(frozenset(players))
    if tolerance > 0 and abs(u_all - u_none) <= tolerance:
        nothing = dict.fromkeys(players, 0.0)
        return Sampled(nothing, nothing, value.n_evaluations, n_permutations=0, converged=True)

    sweeps: list[NDArray[np.float64]] = []
    converged = False
    while not converged and (len(sweeps) + 1) * len(players) <= max_permutations:
        sweeps.append(_sweep(value, players, rng, tolerance))
        converged = len(sweeps) >= MIN_SWEEPS and _settled(sweeps, convergence)
    return Sampled(
        values=dict(zip(players, np.mean(sweeps, axis=0).tolist(), strict=True)),
        standard_errors=dict(zip(players, _standard_errors(sweeps).tolist(), strict=True)),
        n_evaluations=value.n_evaluations,
        n_permutations=len(sweeps) * len(players),
        converged=converged,
    )


def _sweep(
    value: "_Remembered", players: Sequence[str], rng: np.random.Generator, tolerance: float
) -> NDArray[np.float64]:
    """The mean gains over one permutation per player, in which this player comes first (the guidance).

    First places are where gains are largest and differ most; dealing them out evenly is a stratified sample, so the
    mean over whole sweeps stays unbiased.
    """
    n = len(players)
    u_all = value(frozenset(players))
    gains = np.zeros(n)
    for first in range(n):
        others = rng.permutation(np.delete(np.arange(n), first))
        prefix: frozenset[str] = frozenset()
        u_prefix = value(prefix)
        for i in (first, *others.tolist()):
            if tolerance > 0 and abs(u_all - u_prefix) <= tolerance:
                break
            prefix |= {players[i]}
            u_with_i = value(prefix)
            gains[i] += u_with_i - u_prefix
            u_prefix = u_with_i
    return gains / n


def _standard_errors(sweeps: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Sweeps are independent of each other, so their spread shows how far the mean may be off."""
    if len(sweeps) < 2:
        return np.zeros_like(sweeps[0])
    return np.asarray(np.std(sweeps, axis=0, ddof=1) / np.sqrt(len(sweeps)), np.float64)


def _settled(sweeps: Sequence[NDArray[np.float64]], convergence: float) -> bool:
    scale = float(np.abs(np.mean(sweeps, axis=0)).mean())
    return convergence > 0 and float(_standard_errors(sweeps).max()) <= convergence * scale


@dataclass(frozen=True)
class Shares:
    """Values as parts of a whole: non-negative, with sum 1."""

    by_player: dict[str, float]
    clipped: tuple[str, ...]
    """Players whose value was negative and counts as 0."""
    degenerate: bool
    """No value was positive, so all shares are equal."""


def shares(values: Mapping[str, float]) -> Shares:
    """Negative values become 0, then all are divided by their sum."""
    _check_players(list(values))
    if bad := [player for player, value in values.items() if not isfinite(value)]:
        raise FedceError(f"the value of {bad[0]!r} is {values[bad[0]]}; shares need finite values")
    clipped = tuple(player for player, value in values.items() if value < 0)
    positive = {player: max(value, 0.0) for player, value in values.items()}
    total = sum(positive.values())
    if total == 0:
        return Shares(dict.fromkeys(values, 1 / len(values)), clipped, degenerate=True)
    return Shares({player: value / total for player, value in positive.items()}, clipped, degenerate=False)


class _Remembered:
    """A utility that is asked for each coalition once, and counts the questions."""

    def __init__(self, utility: Utility) -> None:
        self._utility = utility
        self._known: dict[frozenset[str], float] = {}

    def __call__(self, coalition: frozenset[str]) -> float:
        if coalition not in self._known:
            self._known[coalition] = _finite(self._utility(coalition), coalition)
        return self._known[coalition]

    @property
    def n_evaluations(self) -> int:
        return len(self._known)


def _gray_codes(n: int) -> list[int]:
    return [k ^ (k >> 1) for k in range(2**n)]


def _finite(value: float, coalition: frozenset[str]) -> float:
    if not isfinite(value):
        raise FedceError(f"the utility of {{{', '.join(sorted(coalition))}}} is {value}; it must be finite")
    return value


def _check_players(players: Sequence[str]) -> None:
    if not players:
        raise FedceError("a game needs at least one player")
    if len(set(players)) < len(players):
        twice = next(player for player in players if list(players).count(player) > 1)
        raise FedceError(f"player {twice!r} is named twice")


def _check_sampling(n_players: int, tolerance: float, max_permutations: int, convergence: float) -> None:
    if not tolerance >= 0:
        raise ConfigError(f"tolerance must be 0 or more (got {tolerance})")
    if not convergence >= 0:
        raise ConfigError(f"convergence must be 0 or more (got {convergence})")
    if max_permutations < n_players:
        raise ConfigError(
            f"max_permutations must be at least {n_players}, "
            f"so that each player comes first once (got {max_permutations})"
        )
