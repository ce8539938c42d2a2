"""Among many sites, the guard compares wide sketches, and sorts once."""

from statistics import median_high

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedce.algorithms import FedCE
from fedce.core.messages import Reply
from fedce.core.params import WIDE, Params, folded, inner_products, sketch, wide_sketch
from fedce.guard import guarded
from fedce.guard.evidence import Known
from fedce.guard.guarded import Guarded, inner_products_of
from support import layout

N = 20_000
SITES = tuple("abcdefg")


def updates(round_no: int) -> dict[str, np.ndarray]:
    common = np.random.default_rng(0).normal(size=N)
    own = {site: np.random.default_rng(1 + i).normal(size=N) for i, site in enumerate(SITES)}
    noise = np.random.default_rng(100 + round_no)
    found = {site: common + way + 0.2 * noise.normal(size=N) for site, way in own.items()}
    return {site: (1e-2 * update).astype(np.float32) for site, update in found.items()}


def flags(n_rounds: int, change) -> dict[str, list[str]]:
    algorithm = Guarded(FedCE())
    state = algorithm.begin(SITES, Params(layout(N), np.zeros(N, np.float32)))
    for k in range(n_rounds):
        sent = change(updates(k))
        replies = [
            Reply(site, k, 10, Params(state.params.layout, state.params.vector + update), score=0.5)
            for site, update in sent.items()
        ]
        state = algorithm.round(state, lambda tasks, replies=replies: replies)
    return {
        site: [flag.kind for flag in its.signs.flags] for site, its in state.own.verdicts.items() if its.signs.flags
    }


@pytest.mark.parametrize("many", [3, 100])
def test_sketches_find_what_whole_updates_show(many, monkeypatch):
    monkeypatch.setattr(guarded, "MANY", many)
    assert flags(6, lambda sent: sent) == {}
    assert flags(6, lambda sent: {**sent, "b": -sent["b"]}) == {"b": ["adverse"]}
    assert flags(6, lambda sent: {**sent, "b": 0 * sent["b"]}) == {"b": ["zero"]}
    assert flags(4, lambda sent: {**sent, "b": sent["a"]}) == {"a": ["twin"], "b": ["twin"]}


def test_cosines_of_wide_sketches_are_near_those_of_the_updates():
    rows = list(updates(0).values())
    exact, found = inner_products(rows), inner_products_of([wide_sketch(row) for row in rows])
    lengths = np.sqrt(np.diag(exact))
    # Six standard deviations of a sketch of 4,096 numbers.
    assert np.abs(found - exact).max() < 6 * 2**0.5 / WIDE**0.5 * np.outer(lengths, lengths).max()


@given(st.integers(1, 3 * WIDE), st.integers(0, 99))
def test_a_short_sketch_is_a_wide_one_folded_and_an_origin_is_taken_away(length, seed):
    a, b = np.random.default_rng(seed).normal(size=(2, length)).astype(np.float32)
    np.testing.assert_allclose(folded(wide_sketch(a)), sketch(a))
    np.testing.assert_allclose(wide_sketch(a, b), wide_sketch(a - b), rtol=1e-5, atol=1e-5)


values = st.dictionaries(st.sampled_from("abcdefgh"), st.none() | st.floats(-1, 1), min_size=1)


@given(values, st.sampled_from("abcdefghi"))
def test_the_known_numbers_of_the_others(by_site, site):
    expected = sorted(value for other, value in by_site.items() if other != site and value is not None)
    found = Known.of(by_site).without(site)
    assert list(found) == expected
    if expected:
        assert median_high(found) == median_high(expected)
