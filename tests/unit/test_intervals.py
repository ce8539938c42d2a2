"""Intervals of shares, from rounds and cases that are made up so that the truth is known."""

import numpy as np
import pytest

from fedce.base.errors import ConfigError, FedceError
from fedce.valuation.intervals import intervals, sentences


def rng(seed=0):
    return np.random.default_rng(seed)


def named(credit):
    """Credits as shares of sites a, b, c..."""
    return dict(zip("abcdefgh", (credit / credit.sum()).tolist(), strict=False))


def replay_of(credits):
    """Shares are the mean credits of the rounds, rounds x sites; the cases are as measured."""
    return lambda rounds, replicate: named(credits[rounds].mean(axis=0))


def noisy_rounds(means, scale, n_rounds, seed=0, autocorrelation=0.0):
    """AR(1) noise about the mean credits, from its stationary distribution on."""
    noise = rng(seed).normal(size=(n_rounds, len(means)))
    for k in range(1, n_rounds):
        noise[k] = autocorrelation * noise[k - 1] + np.sqrt(1 - autocorrelation**2) * noise[k]
    return np.array(means) + scale * noise


def widths(found):
    return {site: found.high[site] - found.low[site] for site in found.sites}


def test_equal_rounds_leave_no_doubt():
    found = intervals(12, 0, replay_of(np.tile([1.0, 2.0, 5.0], (12, 1))), rng())
    assert found.low == found.high == {"a": 0.125, "b": 0.25, "c": 0.625}
    assert found.indistinguishable == ()
    assert found.draws.shape == (1000, 3)


def test_noisier_rounds_give_wider_intervals():
    calm, wild = (intervals(30, 0, replay_of(noisy_rounds([1, 2, 3], s, 30)), rng()) for s in (0.1, 0.3))
    assert all(widths(wild)[site] > 2 * widths(calm)[site] for site in "abc")


def test_more_rounds_give_narrower_intervals():
    few, many = (intervals(n, 0, replay_of(noisy_rounds([1, 2, 3], 0.3, n)), rng()) for n in (20, 200))
    assert all(widths(many)[site] < 0.5 * widths(few)[site] for site in "abc")


def test_autocorrelated_rounds_tell_less():
    free, tied = (intervals(100, 0, replay_of(noisy_rounds([1, 2], 0.3, 100, 1, r)), rng()) for r in (0.0, 0.8))
    assert widths(tied)["a"] > 1.5 * widths(free)["a"]


def coverage(n_rounds, autocorrelation, n_runs=150, **options):
    """How often the 95 % interval of a site's share holds its true share."""
    truth = named(np.array([1.0, 2.0, 3.0]))
    held = []
    for seed in range(n_runs):
        credits = noisy_rounds([1.0, 2.0, 3.0], 0.3, n_rounds, seed, autocorrelation)
        found = intervals(n_rounds, 0, replay_of(credits), rng(seed), n_draws=200, **options)
        held += [found.low[site] <= truth[site] <= found.high[site] for site in "abc"]
    return np.mean(held)


@pytest.mark.parametrize(("n_rounds", "autocorrelation"), [(20, 0.0), (50, 0.0), (50, 0.5), (100, 0.5)])
def test_the_interval_holds_the_truth_about_as_often_as_it_says(n_rounds, autocorrelation):
    # 150 runs of three dependent sites: the standard error of the coverage itself is about 0.015.
    assert coverage(n_rounds, autocorrelation) == pytest.approx(0.95, abs=0.045)


def test_without_blocks_autocorrelation_makes_it_overconfident():
    assert coverage(50, 0.5, block=1) < 0.85


def test_cases_count_as_well_as_rounds():
    # Equal rounds, but 40 replicates of the cases that move share from a to b.
    moved = np.linspace(0, 0.1, 40)
    replicates = []

    def replay(rounds, replicate):
        replicates.append(replicate)
        return {"a": 0.5 - moved[replicate], "b": 0.5 + moved[replicate]}

    found = intervals(10, 40, replay, rng())
    assert set(replicates) == set(range(40))
    assert (found.low["b"], found.high["b"]) == pytest.approx((0.5025, 0.5975), abs=0.005)


def test_one_round_can_still_be_judged_by_its_cases():
    scores = rng(0).normal(0.5, 0.1, size=(50, 2))
    found = intervals(1, 50, lambda rounds, replicate: named(scores[replicate]), rng())
    assert widths(found)["a"] > 0.1
    assert found.n_rounds_per_draw == 1


def test_no_replicates_means_the_cases_as_measured():
    asked = set()
    intervals(5, 0, lambda rounds, replicate: asked.add(replicate) or {"a": 1.0}, rng(), n_draws=20)
    assert asked == {None}


def rounds_seen(n_rounds, **options):
    seen = []
    found = intervals(n_rounds, 0, lambda rounds, _: seen.append(list(rounds)) or {"a": 1.0}, rng(), **options)
    return found, seen


def test_rounds_are_drawn_in_blocks_of_neighbours():
    found, seen = rounds_seen(100)
    assert found.block == 10
    for rounds in seen:
        assert len(rounds) == found.n_rounds_per_draw
        steps = (np.diff(rounds) % 100 == 1).reshape(-1)
        assert all(steps[i] for i in range(len(steps)) if (i + 1) % 10)


def test_every_round_is_drawn_equally_often():
    found, seen = rounds_seen(9, block=3, n_draws=9000)
    counts = np.bincount(np.concatenate(seen), minlength=9)
    assert counts / counts.sum() == pytest.approx(np.full(9, 1 / 9), abs=0.01)
    assert found.block == 3


@pytest.mark.parametrize("n_rounds", [1, 2, 3, 5, 8])
def test_few_rounds_still_make_a_draw(n_rounds):
    found, seen = rounds_seen(n_rounds, n_draws=50)
    assert found.block >= 1
    assert all(rounds and set(rounds) <= set(range(n_rounds)) for rounds in seen)


def test_draws_come_from_the_generator():
    replay = replay_of(noisy_rounds([1, 2], 0.3, 20))
    same, again, other = (intervals(20, 0, replay, rng(seed)).draws for seed in (1, 1, 2))
    np.testing.assert_array_equal(same, again)
    assert (same != other).any()


def test_a_lower_level_is_narrower():
    replay = replay_of(noisy_rounds([1, 2], 0.3, 50))
    assert widths(intervals(50, 0, replay, rng(), level=0.5))["a"] < widths(intervals(50, 0, replay, rng()))["a"]


def test_twins_are_not_told_apart_and_others_are():
    # a and b earn the same on average, c earns twice as much.
    found = intervals(60, 0, replay_of(noisy_rounds([1.0, 1.0, 2.0], 0.3, 60)), rng())
    assert found.indistinguishable == (("a", "b"),)


def test_exact_twins_are_not_told_apart_although_neither_is_ever_ahead():
    credits = noisy_rounds([1.0, 2.0], 0.1, 30)
    found = intervals(30, 0, replay_of(credits[:, [0, 0, 1]]), rng())
    assert found.indistinguishable == (("a", "b"),)
    assert found.ahead("a", "b") == 0.5
    assert sentences(found, {"a": 0.25, "b": 0.25, "c": 0.5}) == [
        "a and b can't be told apart: their shares are the same in every draw."
    ]


def test_noisy_twins_are_rarely_told_apart_by_chance():
    # The order of two equal sites is settled at the 95 % level in about 5 % of runs.
    n_apart = 0
    for seed in range(200):
        credits = noisy_rounds([1.0, 1.0], 0.3, 50, seed)
        n_apart += not intervals(50, 0, replay_of(credits), rng(seed), n_draws=200).indistinguishable
    assert n_apart / 200 == pytest.approx(0.05, abs=0.045)


def made(*columns, level=0.95):
    """Intervals of sites with these draws."""
    draws = np.array(columns, float).T
    replayed = iter(draws)
    return intervals(
        1,
        0,
        lambda rounds, _: dict(zip("abcdefgh", next(replayed), strict=False)),
        rng(),
        n_draws=len(draws),
        level=level,
    )


def test_a_pair_that_sometimes_changes_order():
    found = made([0.4] * 100, [0.6] * 31 + [0.3] * 69)
    assert found.ahead("a", "b") == pytest.approx(0.69)
    assert sentences(found, {"a": 0.55, "b": 0.45}) == [
        "a and b can't be told apart: their order changes in 31 % of the draws."
    ]


def test_a_pair_on_the_edge_is_told_apart():
    # 2 of 100 draws the other way: below 2.5 %. Three: above.
    assert made([0.4] * 100, [0.6] * 2 + [0.3] * 98).indistinguishable == ()
    assert made([0.4] * 100, [0.6] * 3 + [0.3] * 97).indistinguishable == (("a", "b"),)


def test_when_all_can_be_told_apart_one_sentence_says_so():
    found = made([0.5] * 100, [0.3] * 100, [0.4] + [0.2] * 99)
    assert sentences(found, {"a": 0.5, "b": 0.3, "c": 0.2}) == [
        "All 3 sites can be told apart: no two of them change order in more than 1 % of the draws."
    ]


def test_one_site_needs_no_sentence():
    assert sentences(made([1.0] * 10), {"a": 1.0}) == []


def test_three_that_are_all_alike_make_one_sentence():
    draws = rng(0).normal(1, 0.1, size=(3, 500))
    found = made(*draws, np.full(500, 5.0))
    (said,) = sentences(found, {"a": 0.12, "b": 0.13, "c": 0.12, "d": 0.63})
    assert said.startswith("a, b and c can't be told apart: any two of them change order in at least ")


def test_a_chain_is_not_called_a_group():
    # a is like b and b is like c, but a and c differ.
    noise = rng(0).normal(0, 0.1, size=(3, 1000))
    found = made(*(noise + np.array([[1.0], [1.2], [1.4]])))
    assert found.indistinguishable == (("a", "b"), ("b", "c"))
    said = sentences(found, {"a": 0.28, "b": 0.33, "c": 0.39})
    assert sorted(sentence.split(" can't")[0] for sentence in said) == ["a and b", "b and c"]


def test_many_pairs_are_summed_up():
    # A chain of eight: each is like its neighbours only.
    noise = rng(0).normal(0, 0.1, size=(8, 1000))
    found = made(*(noise + 0.2 * np.arange(8)[:, None]))
    said = sentences(found, dict(zip("abcdefgh", 0.02 * np.arange(1, 9), strict=True)))
    n_pairs = len(found.indistinguishable)
    assert n_pairs == 7
    assert len(said) == 5
    assert said[-1] == "3 more pairs can't be told apart either: 7 of 28 pairs in all."


def test_a_wavering_site_between_firm_ones_is_named_with_each_that_it_may_pass():
    # b is anywhere; a, c and d are firm. Sorted by share, b's pairs with c and d are no neighbours' matter alone.
    found = made(np.full(400, 4.0), rng(0).uniform(0, 5, 400), np.full(400, 2.0), np.full(400, 1.0))
    said = sentences(found, {"a": 0.4, "b": 0.25, "c": 0.2, "d": 0.1})
    assert sorted(sentence.split(" can't")[0] for sentence in said) == ["a and b", "b and c", "b and d"]


def test_bad_input():
    def fine(rounds, replicate):
        return {"a": 1.0}

    with pytest.raises(FedceError, match="at least one round"):
        intervals(0, 0, fine, rng())
    with pytest.raises(ConfigError, match="block must be between 1 and the number of rounds, 5"):
        intervals(5, 0, fine, rng(), block=6)
    with pytest.raises(ConfigError, match="level"):
        intervals(5, 0, fine, rng(), level=95)
    with pytest.raises(ConfigError, match="n_draws"):
        intervals(5, 0, fine, rng(), n_draws=0)
    with pytest.raises(ConfigError, match="n_replicates"):
        intervals(5, -1, fine, rng())
    with pytest.raises(FedceError, match="finite share"):
        intervals(5, 0, lambda rounds, replicate: {"a": float("nan")}, rng())
    with pytest.raises(FedceError, match="no share is given for"):
        sentences(intervals(5, 0, fine, rng()), {})


def test_a_replay_must_name_the_same_sites_every_time():
    answers = iter([{"a": 0.5, "b": 0.5}, {"a": 1.0}])
    with pytest.raises(FedceError, match=r"same sites every time; \['b'\] came and went"):
        intervals(5, 0, lambda rounds, replicate: next(answers), rng())


def test_among_many_sites_pairs_are_counted_and_not_named():
    sites = [f"site{i}" for i in range(40)]
    rng = np.random.default_rng(0)
    draws = rng.normal(0, 1e-4, (50, 40)) + np.repeat([0.01, 0.04], 20)

    def replay(chosen, replicate):
        return dict(zip(sites, draws[list(chosen)].mean(axis=0), strict=True))

    found = intervals(50, 0, replay, rng)
    assert len(found.indistinguishable) <= 2 * 190  # None across the two kinds.
    (sentence,) = sentences(found, replay(range(50), None))
    assert sentence.startswith(f"Of 780 pairs of sites {len(found.indistinguishable)} can't be told apart")
