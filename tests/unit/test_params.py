"""Arithmetic on models, against plain numpy in float64."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedce.core.params import BLOCK, SKETCH, Params, cosine, from_named, gram, leave_out, sketch, to_named, weighted_sum
from support import layout, params

finite = st.floats(-100, 100, width=32)
models = st.integers(2, 5).flatmap(
    lambda n: st.integers(1, 9).flatmap(lambda d: hnp.arrays(np.float32, (n, d), elements=finite))
)


def test_weighted_sum_averages_floats_and_takes_the_largest_counter():
    a, b = params([1, 2, 10, 3], 1, 1), params([3, 6, 30, 7], 1, 1)
    assert weighted_sum([a, b], [0.25, 0.75]).vector.tolist() == [2.5, 5.0, 25.0, 7.0]


def test_blocks_cover_vectors_longer_than_a_block():
    size = 2 * BLOCK + 17
    rng = np.random.default_rng(0)
    parts = [Params(layout(size), rng.normal(size=size).astype(np.float32)) for _ in range(3)]
    origin = parts[0]
    updates = np.stack([part.vector for part in parts]).astype(np.float64) - origin.vector
    np.testing.assert_allclose(gram(parts, origin), updates @ updates.T, rtol=1e-12)
    expected = (updates + origin.vector).T @ [0.2, 0.3, 0.5]
    np.testing.assert_allclose(weighted_sum(parts, [0.2, 0.3, 0.5]).vector, expected, rtol=1e-6)


@given(models, st.data())
def test_leaving_a_site_out_gives_the_mean_of_the_others(vectors, data):
    n = len(vectors)
    raw = np.array(data.draw(st.lists(st.floats(0.1, 1), min_size=n, max_size=n)))
    weights = raw / raw.sum()
    parts = [Params(layout(vectors.shape[1]), vector) for vector in vectors]
    mean = weighted_sum(parts, weights)
    others = weighted_sum(parts[1:], weights[1:] / weights[1:].sum())
    scale = np.abs(vectors).max() + 1
    np.testing.assert_allclose(leave_out(mean, weights[0], parts[0]).vector, others.vector, atol=2e-6 * scale)


def test_leave_out_keeps_counters():
    mean, part = params([1, 4], n_counters=1), params([1, 9], n_counters=1)
    assert leave_out(mean, 0.5, part).vector.tolist() == [1.0, 4.0]


def test_gram_ignores_buffers_and_counters():
    origin, part = params([0, 0, 0], 1, 1), params([3, 100, 7], 1, 1)
    assert gram([part], origin).tolist() == [[9.0]]


def test_cosine_of_a_zero_vector_is_not_a_number_but_none():
    assert cosine(np.zeros(3, np.float32), np.ones(3, np.float32)) is None
    assert cosine(np.array([1, 0], np.float32), np.array([1, 1], np.float32)) == pytest.approx(2**-0.5)


def test_names_round_trip_and_counters_are_whole_numbers():
    original = params([1.5, 2.5, 3.0], 1, 1)
    named = to_named(original)
    assert named["counter"].dtype == np.int64
    np.testing.assert_array_equal(from_named(original.layout, named).vector, original.vector)
    del named["buffer"]
    with pytest.raises(ValueError, match="expected 'buffer'"):
        from_named(original.layout, named)


def test_a_vector_of_another_length_or_type_is_refused():
    with pytest.raises(ValueError, match="length 2"):
        Params(layout(2), np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="float64"):
        Params(layout(2), np.zeros(2))


GRAM_SCRIPT = """
import numpy as np
from fedce.core.params import Entry, Layout, Params, gram, weighted_sum
rng = np.random.default_rng(0)
layout = Layout((Entry("w", (300_001,), "trainable"),))
parts = [Params(layout, rng.normal(size=300_001).astype(np.float32)) for _ in range(12)]
import hashlib
print(hashlib.sha256(gram(parts, parts[0]).tobytes() + weighted_sum(parts, [1 / 12] * 12).vector.tobytes()).hexdigest())
"""


def test_sums_do_not_depend_on_the_number_of_threads():
    digests = {
        subprocess.run(
            [sys.executable, "-c", GRAM_SCRIPT],
            env={**os.environ, "OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for threads in ("1", "2", "4")
    }
    assert len(digests) == 1


@pytest.mark.parametrize("length", [1, 63, 64, 65, 1000, 64 * 4096 + 7])
def test_a_sketch_is_every_entry_with_a_sign_in_one_of_its_numbers(length):
    vector = np.random.default_rng(length).normal(size=length).astype(np.float32)
    signs = np.random.default_rng(0).choice(np.array([-1, 1], np.int8), -(-length // SKETCH) * SKETCH)
    expected = np.zeros(SKETCH)
    for i, value in enumerate(vector):
        expected[i % SKETCH] += value * signs[i]
    np.testing.assert_allclose(sketch(vector), expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


def test_sketches_keep_angles():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 50_000)).astype(np.float32)
    x, y, z = (np.array(sketch(v)) for v in (a, b, a + 0.1 * b))
    assert abs(x @ y) / np.linalg.norm(x) / np.linalg.norm(y) < 0.4
    assert x @ z / np.linalg.norm(x) / np.linalg.norm(z) > 0.97
    np.testing.assert_allclose(z, x + 0.1 * y, rtol=1e-3, atol=1e-3)
