"""Laws of FedCE that hold for any updates, errors and options."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedce.algorithms import FedAvg, FedCEAtSites, Uniform, guarded, make
from fedce.algorithms.fedce import gamma_cos, rho_of
from fedce.core.params import gram
from fedce.guard import Guarded
from support import FakeFederation, FakeSite, params

OPTIONS = st.fixed_dictionaries(
    {
        "estimate": st.sampled_from(["server", "site"]),
        "preset": st.sampled_from(["paper", "nvflare"]),
        "start": st.sampled_from(["uniform", "samples"]),
        "max_share": st.sampled_from([0.4, 0.8, 1.0]),
    }
)
PLAIN = st.builds(make, st.sampled_from(["fedce", "fedce-sum", "fedce-cos", "fedce-err"]), OPTIONS)
EITHER = st.builds(guarded, PLAIN, st.sampled_from(["standard", "off"]))
VALUES = st.floats(-10, 10, width=32).map(lambda x: 0.0 if abs(x) < 1e-3 else x)
UPDATES = st.integers(2, 6).flatmap(lambda n: hnp.arrays(np.float32, (n, 4), elements=VALUES))
SCORES = st.lists(st.floats(0, 1), min_size=6, max_size=6)
COUNTS = st.lists(st.integers(1, 500), min_size=6, max_size=6)


def federation(algorithm, updates, scores, counts, names="abcdef"):
    sites = [FakeSite(names[i], update, counts[i], lambda w, s=scores[i]: s) for i, update in enumerate(updates)]
    return FakeFederation(algorithm, sites)


@given(EITHER, UPDATES, SCORES, COUNTS)
def test_rho_lies_on_the_simplex_and_under_its_cap(algorithm, updates, scores, counts):
    runner = federation(algorithm, updates, scores, counts)
    for _ in range(4):
        state = runner.run(1)
        for weights in (state.rho, state.shares):
            assert sum(weights.values()) == pytest.approx(1)
            assert min(weights.values()) >= 0
        n_used = sum(weight > 0 for weight in state.rho.values()) if isinstance(algorithm, Guarded) else len(updates)
        max_share = getattr(algorithm, "inner", algorithm).max_share
        assert max(state.rho.values()) <= max(max_share, 1 / n_used) + 1e-9


@given(EITHER, UPDATES, SCORES, COUNTS, st.randoms(use_true_random=False))
def test_names_and_the_order_of_replies_do_not_matter(algorithm, updates, scores, counts, random):
    names = list("abcdef")
    plain = federation(algorithm, updates, scores, counts).run(3)
    random.shuffle(names)
    renamed = federation(algorithm, updates, scores, counts, names).run(3)
    expected = {names[i]: plain.shares["abcdef"[i]] for i in range(len(updates))}
    assert dict(renamed.shares) == pytest.approx(expected, abs=1e-6)


@given(UPDATES, st.floats(0.01, 100), st.integers(0, 5))
def test_cos_ignores_the_length_of_an_update(updates, factor, which):
    assume((np.abs(updates).max(axis=1) > 0).all())
    i, c = which % len(updates), np.full(len(updates), 1 / len(updates))
    zero = params([0.0] * 4)
    longer = updates.copy()
    longer[i] *= np.float32(factor)
    before, after = (gamma_cos(gram([params(u) for u in us], zero), c)[i] for us in (updates, longer))
    assert after == pytest.approx(before, abs=1e-5)


@given(UPDATES)
def test_cos_ignores_a_sign_flip_of_all_updates(updates):
    c = np.full(len(updates), 1 / len(updates))
    zero = params([0.0] * 4)
    plain, flipped = (gram([params(u) for u in us], zero) for us in (updates, -updates))
    assert gamma_cos(flipped, c) == gamma_cos(plain, c)


@given(EITHER, UPDATES, SCORES)
def test_identical_sites_get_identical_shares(algorithm, updates, scores):
    twins = np.concatenate([updates[:1], updates[:5]])
    state = federation(algorithm, twins, [scores[0], *scores[:5]], [10] * 6).run(3)
    assert state.shares["a"] == pytest.approx(state.shares["b"], abs=1e-6)


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=8), st.floats(0.01, 1))
def test_capping_keeps_the_order(credits, max_share):
    names = [str(i) for i in range(len(credits))]
    rho = rho_of(dict(zip(names, credits, strict=True)), max_share)
    assert sum(rho.values()) == pytest.approx(1)
    by_credit = sorted(names, key=lambda name: credits[int(name)])
    assert all(rho[a] <= rho[b] + 1e-12 for a, b in itertools.pairwise(by_credit))


@given(UPDATES, COUNTS)
def test_with_weights_fixed_to_sample_shares_fedce_is_fedavg(updates, counts):
    fixed = FedCEAtSites(start="samples", max_share=1.0)
    runner = federation(fixed, updates, [0.5] * 6, counts)
    average = federation(FedAvg(), updates, [0.5] * 6, counts)
    np.testing.assert_array_equal(runner.run(1).params.vector, average.run(1).params.vector)
    assert dict(runner.state.rho) == pytest.approx(dict(average.state.rho))


@given(UPDATES, COUNTS)
def test_uniform_is_fedavg_with_equal_counts(updates, counts):
    uniform = federation(Uniform(), updates, [0.5] * 6, counts).run(2)
    average = federation(FedAvg(), updates, [0.5] * 6, [7] * 6).run(2)
    np.testing.assert_array_equal(uniform.params.vector, average.params.vector)


@given(UPDATES, SCORES, st.data())
def test_absence_never_breaks_the_simplex(updates, scores, data):
    algorithm = data.draw(EITHER)
    runner = federation(algorithm, updates, scores, [10] * 6)
    names = list(runner.sites)
    for _ in range(5):
        runner.absent = set(data.draw(st.lists(st.sampled_from(names), max_size=len(names) - 1, unique=True)))
        state = runner.run(1)
        assert state.rho.keys() == set(names) - runner.absent
        for weights in (state.rho, state.shares):
            assert sum(weights.values()) == pytest.approx(1)
