"""Packed models: what comes out is what went in, to the last bit, and no packet can do more than be refused."""

import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedce.core.packing import CHUNK, HALVES, PacketError, packed, rounded, unpacked
from fedce.core.params import Params
from support import layout

N, N_BUFFERS = 6, 2
LAYOUT = layout(N, N_BUFFERS, 1)
any_bits = arrays(np.uint32, LAYOUT.size, elements=st.integers(0, 2**32 - 1))
finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
weights = st.floats(-(2.0**40), 2.0**40, width=32) | finite | st.sampled_from([0.0, -0.0])


def model(values) -> Params:
    return Params(LAYOUT, np.array(values, np.float32))


models = st.lists(weights, min_size=LAYOUT.size, max_size=LAYOUT.size).map(model)


def bits(params: Params) -> bytes:
    return params.vector.tobytes()


@given(any_bits, st.none() | any_bits, st.booleans())
def test_a_packet_holds_the_model_to_the_last_bit(vector, start, halves):
    """Whatever the numbers are: not finite, negative zeros, and far from the base."""
    sent = Params(LAYOUT, vector.view(np.float32))
    base = None if start is None else Params(LAYOUT, start.view(np.float32))
    assert bits(unpacked(packed(sent, base, halves=halves), LAYOUT, base)) == bits(sent)


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, 2 * CHUNK + 3])
def test_models_of_every_length_are_packed(size):
    rng = np.random.default_rng(size)
    form = layout(size, 3)
    base = Params(form, rng.normal(size=size + 3).astype(np.float32))
    sent, _ = rounded(base, Params(form, base.vector + rng.normal(0, 0.01, size + 3).astype(np.float32)), None)
    for halves in (False, True):
        assert bits(unpacked(packed(sent, base, halves=halves), form, base)) == bits(sent)


@given(models, models, st.none() | st.lists(st.floats(-1, 1, width=32), min_size=N, max_size=N))
def test_a_rounded_update_travels_as_16_bit_numbers(start, trained, rest):
    """Always: if base and model did not tell the numbers, the packet would silently be twice as long."""
    sent, _ = rounded(start, trained, None if rest is None else np.array(rest, np.float32))
    packet = packed(sent, start, halves=True)
    assert packet[0] == HALVES
    assert bits(unpacked(packet, LAYOUT, start)) == bits(sent)
    assert sent.vector[N:].tobytes() == trained.vector[N:].tobytes(), "statistics and counters are not rounded"


@given(models, st.lists(st.lists(st.floats(-0.125, 0.125, width=32), min_size=N, max_size=N), min_size=1, max_size=8))
def test_nothing_is_lost_by_rounding_over_the_rounds(start, updates):
    """What was sent so far and the rest are together what was trained so far."""
    start = model(np.clip(start.vector, -100, 100))
    now, rest, total = start, None, np.zeros(N)
    for update in updates:
        trained = model(np.concatenate([now.trainable + np.float32(update), now.vector[N:]]))
        total += trained.trainable.astype(np.float64) - now.trainable
        now, rest = rounded(now, trained, rest)
    sent = now.trainable.astype(np.float64) - start.trainable
    assert rest is not None
    assert np.abs(sent + rest - total).max() <= 1e-9 + 1e-6 * np.abs(rest).max() * len(updates)
    assert np.abs(rest).max() <= 0.25 * 2**-11 + 100 * 2**-23, (
        "at most half a step of 16-bit numbers, and of the weight"
    )


@given(models)
def test_a_model_that_did_not_move_stays_and_costs_nothing(start):
    sent, rest = rounded(start, start, None)
    assert np.array_equal(sent.vector, start.vector)
    assert rest is not None
    assert not rest.any()


def test_an_update_beyond_16_bits_comes_in_parts():
    start, far = model([0] * LAYOUT.size), model([100_000] * LAYOUT.size)
    first, rest = rounded(start, far, None)
    assert first.vector[0] == 65504
    assert rest[0] == 100_000 - 65504
    second, rest = rounded(first, first, rest)
    assert abs(second.vector[0] - 100_000) <= 16
    assert rest[0] == 100_000 - second.vector[0]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_model_that_is_not_finite_is_left_to_the_border(bad):
    kept = np.ones(N, np.float32)
    start, broken = model([0] * LAYOUT.size), model([bad] * LAYOUT.size)
    sent, rest = rounded(start, broken, kept)
    assert sent is broken
    assert rest is kept
    assert bits(unpacked(packed(sent, start, halves=True), LAYOUT, start)) == bits(broken)


@settings(deadline=None)
@given(st.binary(max_size=60), models, st.booleans())
def test_any_bytes_are_read_or_refused(content, base, with_base):
    for packet in (content, bytes([len(content) % 2]) + zlib.compress(content)):
        try:
            came = unpacked(np.frombuffer(packet, np.uint8), LAYOUT, base if with_base else None)
        except PacketError as error:
            assert "\n" not in str(error)  # noqa: PT017 (an error is one of two good ends)
        else:
            assert came.vector.shape == (LAYOUT.size,)


@pytest.mark.parametrize("kind", [0, 1])
def test_a_bomb_is_not_unpacked(kind):
    bomb = np.frombuffer(bytes([kind]) + zlib.compress(bytes(10**8), 9), np.uint8)
    peak = _peak(lambda: unpacked(bomb, LAYOUT, model([0] * LAYOUT.size)))
    assert peak < 10**6


def _peak(work) -> int:
    import tracemalloc

    tracemalloc.start()
    try:
        with pytest.raises(PacketError, match="expected"):
            work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_cut_packet_and_one_with_more_behind_it_are_refused():
    packet = packed(model(range(LAYOUT.size)))
    for broken in (packet[:-1], packet[:0], np.append(packet, np.uint8(0)), packet[:1]):
        with pytest.raises(PacketError):
            unpacked(broken, LAYOUT)
    with pytest.raises(PacketError, match="begins with"):
        unpacked(np.append(np.uint8(7), packet[1:]), LAYOUT)
