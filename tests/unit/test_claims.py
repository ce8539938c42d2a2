"""How far a claimed error is believed: laws of the bound, and what silence and made-up replicates are worth."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedce.core.params import Params, leave_out, weighted_sum
from fedce.guard.claims import LEAST, MULTIPLE, Book, books_after, most_believed, squared_distances
from fedce.guard.evidence import Claim
from fedce.guard.signs import Signs
from fedce.guard.verdicts import Verdict, believed_errors
from support import layout

SITES = tuple("abcdef")
small = st.floats(0, 0.3)
numbers = st.floats(-3, 3)


@given(arrays(np.float64, (4, 7), elements=numbers), st.lists(st.floats(0.1, 1), min_size=4, max_size=4))
def test_distances_are_those_between_the_model_and_the_model_without_a_site(updates, raw):
    weights = np.array(raw) / sum(raw)
    models = [Params(layout(7), update.astype(np.float32)) for update in updates]
    mean = weighted_sum(models, weights)
    apart = [mean.vector - leave_out(mean, w, model).vector for w, model in zip(weights, models, strict=True)]
    found = squared_distances(updates @ updates.T, weights)
    assert found == pytest.approx([float(d @ d) for d in apart], rel=1e-3, abs=1e-4)


@given(st.lists(small, min_size=6, max_size=6), st.lists(st.floats(0.01, 5), min_size=6, max_size=6), small)
def test_a_bound_follows_from_the_others_claims_and_distances(excess, moved, lie):
    """The site's own claim, and one accomplice that claims anything, change nothing in its favour beyond the honest."""
    claims, far = dict(zip(SITES, excess, strict=True)), dict(zip(SITES, moved, strict=True))
    bound = most_believed({}, far, claims, {})["a"]
    assert most_believed({}, far, {**claims, "a": lie}, {})["a"] == bound
    lied = most_believed({}, far, {**claims, "b": 1.0}, {})["a"]
    highest = max(claims[site] / far[site] for site in SITES[2:])
    assert lied <= MULTIPLE * highest * far["a"] + LEAST + 1e-9


@given(st.lists(small, min_size=6, max_size=6), st.floats(0.1, 10))
def test_the_unit_of_distances_does_not_matter(excess, unit):
    claims, far = dict(zip(SITES, excess, strict=True)), dict.fromkeys(SITES, 1.0)
    scaled = {site: unit * distance for site, distance in far.items()}
    assert most_believed({}, scaled, claims, {}) == pytest.approx(most_believed({}, far, claims, {}))


def test_a_sum_over_rounds_can_not_be_overdrawn():
    """A liar that always claims all it may ends at the bound of the sums, not at that of each round again."""
    books, honest = {}, dict.fromkeys(SITES[1:], 0.02)
    far = dict.fromkeys(SITES, 1.0)
    for _ in range(20):
        bound = most_believed(books, far, {"a": 1.0, **honest}, {})
        books = books_after(books, far, {"a": bound["a"], **honest})
    assert books["a"].believed == pytest.approx(20 * (MULTIPLE * 0.02 + LEAST))
    assert books["a"].rounds == 20
    assert most_believed({"a": Book(20.0, 5.0, 20), **books}, far, {"a": 1.0, **honest}, {})["a"] <= MULTIPLE


def test_two_sites_are_believed_by_their_weights():
    assert most_believed({}, {}, {"a": 0.5, "b": 0.1}, {"a": 0.3, "b": 0.7}) == pytest.approx({"a": 0.4, "b": 0.8})


def test_silence_and_made_up_replicates_count_as_the_least_error_of_the_round():
    sign = Signs(length=1.0)
    honest = {"a": Verdict.of(0.2, sign), "b": Verdict.of(0.5, sign)}
    silent = Verdict.of(None, replace(sign, owes_error=True))
    unsupported = Verdict.of(0.9, replace(sign, owes_error=True))
    newcomer = Verdict.of(None, sign)
    found = believed_errors({**honest, "c": silent, "d": unsupported, "e": newcomer})
    assert found == {"a": 0.2, "b": 0.5, "c": 0.2, "d": 0.2, "e": None}


@given(arrays(np.float64, 12, elements=st.floats(0, 1)), st.integers(0, 100))
def test_resampled_cases_support_the_error_of_the_cases(errors, seed):
    fractions = np.random.default_rng(seed).multinomial(12, np.full(12, 1 / 12), size=20) / 12
    replicates = tuple((fractions @ errors).tolist())
    assert Claim(0.5, float(errors.mean()), replicates).is_supported
    assert not Claim(0.5, 1.1 + float(errors.mean()), replicates).is_supported
    assert not Claim(0.5, None, ()).is_supported
