"""A sentence about an order is written only where the difference exceeds its uncertainty."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedce.algorithms.titles import title_of
from fedce.base.tables import AlgorithmConfig
from fedce.questions.compare import Row
from fedce.studies import ablation, fairness, performance
from fedce.valuation import standing as module
from fedce.valuation.standing import NO_DIFFERENCE, exceeds, said, standing

VALUES = st.lists(st.floats(0, 1), min_size=3, max_size=3)


def test_ten_points_of_deviation_show_no_lead_of_three_tenths():
    """59.2 +- 10.5 against 58.9 +- 9.9: "serves its worst site best" was said of such a difference."""
    found = standing({"fedce": [49.0, 58.0, 70.6], "cgsv": [68.7, 49.4, 58.6]})
    assert found == module.Standing("fedce", ("cgsv",))
    sentence = said(found, "highest Dice at its worst site", lambda name: "59.2 %")
    assert sentence.startswith(f"Highest Dice at its worst site: {NO_DIFFERENCE} between fedce (59.2 %) and cgsv")


def test_a_lead_that_all_seeds_show_is_said():
    found = standing({"a": [0.80, 0.90, 0.85], "b": [0.70, 0.81, 0.74], "c": [0.60, 0.69, 0.66]})
    assert found.is_shown
    assert said(found, "highest average", lambda name: "85.0 %", str.upper) == "A has the highest average (85.0 %)."


@pytest.mark.parametrize("values", [{"a": [0.9], "b": [0.1]}, {"a": [0.5, 0.5, 0.5], "b": [0.5, 0.5, 0.5]}])
def test_one_seed_and_a_tie_show_nothing(values):
    assert not standing(values).is_shown


def test_among_many_the_first_needs_a_clearer_lead():
    """The more methods are tried, the more often one is first by luck."""
    few = {"a": [0.80, 0.84, 0.82], "b": [0.70, 0.76, 0.75]}
    assert standing(few).is_shown
    many = few | {f"other{i}": [0.1, 0.11, 0.12] for i in range(20)}
    assert standing(many).level_with == ("b",)


def test_equal_methods_are_rarely_called_different():
    rng = np.random.default_rng(0)
    trials = [standing({str(i): rng.normal(size=3) for i in range(8)}).is_shown for _ in range(1000)]
    assert np.mean(trials) < 0.05


@given(VALUES, VALUES)
def test_nobody_exceeds_and_is_exceeded(a, b):
    assert not (exceeds(a, b) and exceeds(b, a))
    assert not exceeds(a, a)
    assert exceeds(a, b) == exceeds([-x for x in a], [-x for x in b], sign=-1.0)


def row(name: str, *dice_by_seed: tuple[float, float]) -> Row:
    sites = {f"site{i}": [dice[i] for dice in dice_by_seed] for i in range(2)}
    means = {site: float(np.mean(values)) for site, values in sites.items()}
    blank = dict.fromkeys(Row.__dataclass_fields__)
    spread = float(np.std(list(means.values()), ddof=1))
    known = {"dice": means, "dice_by_seed": sites, "mean": float(np.mean(list(means.values()))), "gain": means}
    return Row(**{**blank, **known, "algorithm": name, "std_over_sites": spread, "worst": min(means.values())})


def title_by_name(name: str) -> str:
    return title_of(AlgorithmConfig(name=name))


def test_who_stays_below_training_alone_is_said_as_far_as_it_is_shown():
    alone = row("standalone", (0.80, 0.82), (0.82, 0.82), (0.81, 0.83))
    means = {"fedavg": [0.5, 0.52, 0.51], "fedce": [0.95, 0.94, 0.96], "uniform": [0.7, 0.95, 0.8]}
    said = performance._against(alone, means, title_by_name)
    assert "below it: FedAvg; above it: FedCE (Multi.); the others: no difference that these runs can show" in said


def test_sites_that_lose_are_those_that_lose_with_every_seed():
    alone = row("standalone", (0.80, 0.82), (0.82, 0.82), (0.81, 0.83))
    method = row("fedavg", (0.50, 0.80), (0.51, 0.84), (0.50, 0.83))
    assert fairness._who_loses(method, alone) == ["site0"]
    assert any("FedAvg: site0" in sentence for sentence in fairness._findings([method], alone, False, title_by_name))


def test_the_combination_of_both_terms_is_not_praised_for_luck():
    means = {"fedce-cos": [0.7, 0.8], "fedce-err": [0.75, 0.72], "fedce": [0.76, 0.81], "fedce-sum": [0.7, 0.7]}
    assert NO_DIFFERENCE in ablation._together(means, means)
