"""The theory study's measurements against cases in which the answer is known."""

import numpy as np
import pytest
from scipy.stats import wasserstein_distance

from fedce.base.config import parse
from fedce.data import load_sites
from fedce.engines.local import LocalEngine
from fedce.federation.plan import Participants, resolve
from fedce.present.terminal import columns_that_fit
from fedce.studies import Table
from fedce.studies.theory import Measures, SiteMeasures, largest_change, measure_round, moved_by_leaving, stability_of
from support import write_site

POINTS = {"a": 0.0, "b": 0.1, "c": 0.7, "d": 1.0}
ON_A_LINE = {(i, j): abs(x - y) for i, x in POINTS.items() for j, y in POINTS.items() if i != j}


@pytest.mark.parametrize("left", POINTS)
def test_what_leaving_moves_is_the_wasserstein_distance(left):
    rest = [x for site, x in POINTS.items() if site != left]
    expected = wasserstein_distance(list(POINTS.values()), rest)
    assert moved_by_leaving(left, list(POINTS), ON_A_LINE) == pytest.approx(expected)


def test_stability_is_the_steepest_exchange():
    """Without b, a has 0.6; without a, b has 0.4: exchanging them over a distance of 0.1 changes the share by 0.2."""
    shares = {"a": {"b": 0.4, "c": 0.6}, "b": {"a": 0.6, "c": 0.4}, "c": {"a": 0.5, "b": 0.5}}
    distances = {pair: d for pair, d in ON_A_LINE.items() if "d" not in pair}
    assert stability_of(shares, distances) == pytest.approx(0.2 / 0.1)


def test_the_largest_change_is_after_renormalising():
    shares = {"": {"a": 0.5, "b": 0.3, "c": 0.2}, "a": {"b": 0.5, "c": 0.5}}
    assert largest_change(shares, "a") == pytest.approx(0.1)


def test_the_theorem_by_hand():
    """eta 0.5, kappa 4, beta 2, delta 3: A = 0.5 * 2 * 3 * 4 * 3 = 36."""
    site = SiteMeasures(weight=1.0, rho=1.0, steps=4, beta=2.0, delta=3.0, rate=0.5)
    assert site.a(0.5) == 36
    measures = Measures(round_no=0, sites={"a": site}, smoothness=4.0, gradient=2.0, moved=1.0, change=-1.0)
    assert measures.step == 2.0
    # 0.5 / 4 * (2 * 0.5 * 4 + 0.5 * 36) - 0.5 = 2.25, times 2 squared.
    assert measures.promised == pytest.approx(9.0)
    assert measures.rho_limit("a") == pytest.approx(4 * 6 / (36 - 8))


def test_with_full_gradient_steps_the_rate_is_the_learning_rate(tmp_path):
    """SGD on whole sites is what the theorem is about, so the measured step length must be the configured one."""
    for site in ("east", "north"):
        write_site(tmp_path / "data", site, n=8)
    config = resolve(
        parse(
            {
                "data": {"source": str(tmp_path / "data")},
                "model": {"channels": [4, 8]},
                "train": {"optimizer": "sgd", "momentum": 0.0, "lr": 0.01, "batch_size": 64, "epochs": 3},
            }
        )
    )
    participants = Participants(config, load_sites(config.data))
    with LocalEngine(participants, tmp_path / "memories", workers=1) as engine:
        measures = measure_round(participants, participants.initial_state(), engine)
    for site in measures.sites.values():
        assert site.steps == 3
        assert site.rate == pytest.approx(0.01, rel=1e-3)
        assert site.beta > 0
    assert sum(site.weight for site in measures.sites.values()) == pytest.approx(1)
    # Two sites that step alike by a small rate: d is the mean gradient of some three steps, and the loss follows it.
    slope = -measures.moved * measures.gradient
    assert measures.change == pytest.approx(slope, rel=0.3)
    # In one step delta is the square of the site's gradient over the common one's, so near 1 for sites alike.
    assert all(0.3 < site.delta < 3 * 2 for site in measures.sites.values())


def test_a_wide_table_goes_on_below_itself():
    table = Table("wide", "", ["site", *("n" * 10 for _ in range(6))], [["site1", *["1.0"] * 6]])
    pieces = columns_that_fit(table, 40)
    assert pieces == [[0, 1, 2], [0, 3, 4], [0, 5, 6]]
    assert columns_that_fit(table, 200) == [list(range(7))]
    assert np.concatenate([piece[1:] for piece in columns_that_fit(table, 1)]).tolist() == [1, 2, 3, 4, 5, 6]
