"""Intervals of a run's contributions, replayed from its ledger."""

from pathlib import Path

import numpy as np
import pytest

from fedce import load_sites, run
from fedce.algorithms import AFL, FedAvg, FedCE, FedCEAtSites, FedCERunningMeans, Standalone, Uniform
from fedce.algorithms.fedce import BothTerms
from fedce.core.credit import Credit
from fedce.valuation.uncertainty import (
    MIN_ROUNDS,
    MOST_POINTS,
    _replay_credit,
    contribution_intervals,
    intervals_over_rounds,
)
from support import as_recorded

SITES = ("a", "b", "c")


def ledger(n_rounds, noise=0.0, err=(0.2, 0.3, 0.5), seed=0):
    """Rounds whose errors scatter about given ones; what FedCE makes of them is worked out by FedCE itself."""
    rng = np.random.default_rng(seed)
    rounds = []
    for k in range(n_rounds):
        errors = np.clip(np.array(err) + noise * rng.normal(size=3), 0.01, 0.99)
        sites = {
            site: {
                "n_train": 10,
                "cos": 0.5,
                "err": float(errors[i]) if k else None,
                "err_replicates": [float(errors[i])] * 4 if k else [],
                "weight": 1 / 3,
            }
            for i, site in enumerate(SITES)
        }
        rounds.append({"round": k, "sites": sites})
    return rounds


def shares_of(algorithm, rounds):
    return _replay_credit(algorithm, as_recorded(rounds), SITES, 0)(range(len(rounds)), None)


def uncertainty(algorithm, rounds, shares=None, n_cases=None):
    return contribution_intervals(
        algorithm, as_recorded(rounds), shares_of(algorithm, rounds) if shares is None else shares, 0, n_cases or {}
    )


def intervals_of(algorithm, rounds, shares=None):
    return uncertainty(algorithm, rounds, shares).intervals


@pytest.mark.parametrize("algorithm", [FedCE(), FedCE(combine="sum"), FedCERunningMeans()])
def test_a_replay_of_all_rounds_gives_the_shares(algorithm):
    rounds = ledger(30, noise=0.05)
    credit = Credit()
    for entry in rounds:
        terms = {site: BothTerms(10, facts["cos"], facts["err"]) for site, facts in entry["sites"].items()}
        credit = algorithm.earn(credit, terms)
    expected = algorithm.weigh(credit, dict.fromkeys(SITES))
    assert shares_of(algorithm, rounds) == pytest.approx(expected)


def test_noisier_rounds_give_wider_intervals():
    def width(noise):
        found = intervals_of(FedCE(), ledger(60, noise))
        return sum(found.high[site] - found.low[site] for site in SITES)

    assert width(0.0) < width(0.02) < width(0.1)


def test_replicates_of_the_cases_widen_the_intervals():
    plain, resampled = ledger(40), ledger(40)
    for entry in resampled[1:]:
        for site in SITES:
            entry["sites"][site]["err_replicates"] = [entry["sites"][site]["err"] + d for d in (-0.1, 0.0, 0.0, 0.1)]
    narrow, wide = (intervals_of(FedCE(), rounds) for rounds in (plain, resampled))
    assert wide.high["c"] - wide.low["c"] > narrow.high["c"] - narrow.low["c"]


def test_the_interval_holds_the_share():
    rounds = ledger(50, noise=0.05)
    found = intervals_of(FedCE(), rounds)
    for site, share in shares_of(FedCE(), rounds).items():
        assert found.low[site] <= share <= found.high[site]


def test_fixed_weights_have_no_width():
    found = intervals_of(FedAvg(), ledger(20), dict.fromkeys(SITES, 1 / 3))
    assert found.low == pytest.approx(found.high)


def test_too_few_rounds_or_no_exchange_have_none():
    equal = dict.fromkeys(SITES, 1 / 3)
    assert intervals_of(FedCE(), ledger(MIN_ROUNDS - 1), equal) is None
    assert intervals_of(Standalone(), ledger(50), equal) is None
    assert intervals_of(Uniform(), ledger(MIN_ROUNDS), equal) is not None


def test_shares_that_are_no_mean_over_rounds_have_none():
    """A reputation, for example: the last word counts more than the first."""
    assert intervals_of(AFL(), ledger(30), {"a": 0.8, "b": 0.1, "c": 0.1}) is None


def test_a_site_that_was_never_measured_has_none():
    rounds = ledger(20)
    for entry in rounds:
        for facts in entry["sites"].values():
            facts |= {"n_train": 10, "cos": None, "err": None, "err_replicates": []}
    assert intervals_of(FedCEAtSites(), rounds, {}) is None


def test_an_absent_site_keeps_an_interval():
    rounds = ledger(40, noise=0.05)
    for entry in rounds[5:]:
        del entry["sites"]["c"]
    found = intervals_of(FedCE(), rounds)
    assert set(found.low) == set(SITES)


def with_shares(rounds):
    """As the ledger has them: those who replied, by all rounds up to there."""
    for n, entry in enumerate(rounds, 1):
        shares = shares_of(FedCE(), rounds[:n])
        for site, facts in entry["sites"].items():
            facts["share"] = shares[site]
    return rounds


def test_intervals_over_rounds_are_those_of_the_rounds_so_far():
    rounds = with_shares(ledger(50, noise=0.05))
    found = intervals_over_rounds(FedCE(), as_recorded(rounds), 0, {})
    assert min(found) == MIN_ROUNDS - 1
    assert max(found) == 49
    assert len(found) == MOST_POINTS
    for round_no, at in found.items():
        alone = intervals_of(FedCE(), rounds[: round_no + 1])
        assert (at.low, at.high) == (alone.low, alone.high)
    first, last = found[MIN_ROUNDS - 1], found[49]
    assert last.high["c"] - last.low["c"] < first.high["c"] - first.low["c"]


def test_intervals_over_rounds_pass_over_rounds_in_which_somebody_is_absent():
    rounds = with_shares(ledger(30, noise=0.05))
    for entry in rounds[10:25]:
        del entry["sites"]["b"]
    assert not set(intervals_over_rounds(FedCE(), as_recorded(with_shares(rounds)), 0, {})) & set(range(10, 25))


def test_too_few_rounds_have_no_intervals_over_rounds():
    assert intervals_over_rounds(FedCE(), as_recorded(with_shares(ledger(MIN_ROUNDS - 1))), 0, {}) == {}
    assert len(intervals_over_rounds(FedCE(), as_recorded(with_shares(ledger(MIN_ROUNDS))), 0, {})) == 1


def test_sites_that_are_drawn_seldom_keep_their_share_in_every_draw_of_rounds():
    """Whom the guard knows by the whole run is no newcomer where few of its rounds are drawn."""
    rng = np.random.default_rng(0)
    names = [f"s{i:02d}" for i in range(20)]
    rounds = [
        {
            "round": n,
            "sites": {
                site: {
                    "n_train": 10,
                    "cos": 0.5 + 0.01 * rng.random(),
                    "err": 0.3,
                    "err_replicates": [0.3],
                    "trust": 1.0,
                    "most": None,
                }
                for site in names[5 * (n % 4) : 5 * (n % 4) + 5]
            },
        }
        for n in range(16)
    ]
    algorithm, credit = FedCE(), Credit()
    for entry in rounds:
        credit = algorithm.earn(credit, algorithm.read(entry["sites"]))
    found = intervals_of(algorithm, rounds, algorithm.shares(credit))
    assert all(0.045 < found.low[site] < found.high[site] < 0.055 for site in names)


def test_a_cheat_takes_nobodys_interval_away(tmp_path: Path):
    """What noise earned before it was known for it is lost, and a replay knows that."""
    settings = {"freerider": {"plant": {"site3": "noise"}}, "model": {"channels": [4, 8]}}
    result = run(load_sites("fundus6", scale="tiny"), out=tmp_path / "run", rounds=12, settings=settings)
    assert result.contributions["site3"] == 0
    low, high = (result.values["intervals"][side] for side in ("low", "high"))
    known = {site: share for site, share in result.contributions.items() if low[site] is not None}
    assert set(known) == {"site4", "site6"}, "the others have fewer than five validation cases"
    assert all(low[site] <= share <= high[site] for site, share in known.items())


def few_cases(rounds, *sites):
    """As those sites' answers are where they have too few cases to resample."""
    for entry in rounds:
        for site in sites:
            entry["sites"][site]["err_replicates"] = []
    return rounds


def test_a_site_with_few_cases_has_a_reason_in_place_of_an_interval():
    rounds = few_cases(ledger(40, noise=0.05), "b")
    found = uncertainty(FedCE(), rounds, n_cases={"a": 9, "b": 3, "c": 5})
    assert found.intervals.sites == ("a", "c")
    assert found.reasons == {"b": "b has 3 validation cases; an interval needs at least 5"}
    said = found.recorded(shares_of(FedCE(), rounds))
    assert said["no_intervals"] is None
    assert (said["intervals"]["low"]["b"], said["intervals"]["high"]["b"]) == (None, None)
    assert all(said["intervals"]["low"][site] < said["intervals"]["high"][site] for site in "ac")
    assert said["intervals"]["sentences"][-1] == (
        "b has no interval and can't be told apart from any other site; "
        "the other intervals take its errors as measured."
    )
    assert not any("3 sites" in sentence for sentence in said["intervals"]["sentences"])


def test_the_errors_of_a_site_without_an_interval_are_taken_as_measured():
    """What such a site sends in place of resampled errors can't widen the others' intervals."""
    quiet, loud = few_cases(ledger(40), "b"), ledger(40)
    for entry in loud[1:]:
        entry["sites"]["b"]["err_replicates"] = [0.01, 0.99, 0.01, 0.99]
    one, other = (uncertainty(FedCE(), rounds, n_cases={"b": 4}).intervals for rounds in (quiet, loud))
    assert (one.low, one.high) == (other.low, other.high)


def test_a_site_that_sends_no_resampled_errors_has_a_reason_too():
    found = uncertainty(FedCE(), few_cases(ledger(40, noise=0.05), "b"), n_cases={"b": 50})
    assert found.reasons == {"b": "b sent no errors on resampled validation cases"}


def test_novelty_alone_needs_no_cases():
    found = uncertainty(FedCE(combine="cos"), few_cases(ledger(40), *SITES), n_cases=dict.fromkeys(SITES, 1))
    assert set(found.intervals.low) == set(SITES)


@pytest.mark.parametrize(
    ("algorithm", "rounds", "n_cases", "why"),
    [
        (FedCE(), ledger(4), {}, "4 rounds were measured; intervals need at least 10"),
        (Standalone(), ledger(50), {}, "every site trained alone, so there are no shares to be sure of"),
        (AFL(), ledger(30), {}, "the shares of this method are no mean over rounds that can be drawn anew"),
        (
            FedCE(),
            few_cases(ledger(30), *SITES),
            dict.fromkeys(SITES, 1),
            "no site has errors resampled from at least 5 validation cases",
        ),
    ],
)
def test_where_no_site_has_an_interval_the_reason_is_told(algorithm, rounds, n_cases, why):
    said = uncertainty(algorithm, rounds, {"a": 0.8, "b": 0.1, "c": 0.1}, n_cases).recorded({})
    assert said == {"intervals": None, "no_intervals": why}
