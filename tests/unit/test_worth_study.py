"""The bench of worth: what is trained, and what is made of it."""

import dataclasses
from itertools import permutations

import numpy as np
import pytest

from fedce.base.config import load
from fedce.questions.jobs import Store
from fedce.questions.value import value
from fedce.studies import worth
from fedce.studies.base import Context
from fedce.studies.estimates import FEDCE, estimates_of
from fedce.studies.federations import Federation

SMALL = {"rounds": 4, "model.channels": (4, 8), "data.scale": "tiny", "data.size": 32, "train.lr": 0.01}
FEDERATIONS = (
    Federation("fundus6, site norm", "fundus6", "site", data={"scale": "tiny", "size": 32}),
    Federation("fundus6, instance norm", "fundus6", "instance", data={"scale": "tiny", "size": 32}),
)


@pytest.fixture(scope="module")
def context(tmp_path_factory) -> Context:
    return Context(load(None, SMALL), [0], Store(tmp_path_factory.mktemp("store")))


@pytest.fixture
def outcome(context, monkeypatch):
    monkeypatch.setattr(worth, "DRAWN", FEDERATIONS)
    context.store.run(worth.trainings(context))
    return worth.evaluate(context)


def test_one_federation_of_each_side_gives_a_page(context, outcome):
    tables = {table.name: table for table in outcome.tables}
    assert set(tables) == {"summary", "whole", "others", "truth"}
    rows = {row[0]: row for row in tables["summary"].rows}
    assert len(rows) >= 12
    assert {
        "worth.all",
        "worth.share",
        "images",
        "fedci",
        "cgsv",
        "reconstruction",
        "Banzhaf",
        "residual volume",
        *FEDCE,
    } <= set(rows)
    assert [row[:2] for row in tables["whole"].rows] == [[FEDERATIONS[0].name, "no"], [FEDERATIONS[1].name, "yes"]]
    assert "On the 1 reported federations" in outcome.findings[0]


def test_with_several_seeds_exact_shapley_values_stand_beside(tmp_path, monkeypatch):
    data = {"scale": "tiny", "size": 32, "sites": ("site1", "site2", "site3", "site4")}
    four = Federation("fundus6, instance norm", "fundus6", "instance", data=data)
    context = Context(load(None, {**SMALL, "rounds": 3}), [0, 1], Store(tmp_path))
    monkeypatch.setattr(worth, "DRAWN", (four,))
    context.store.run(worth.trainings(context))
    table = next(table for table in worth.evaluate(context).tables if table.name == "shapley")
    found = {estimate: pearson for _, estimate, pearson in table.rows}
    assert {"leave-one-out", "fedce", "images", "worth.all"} <= set(found)
    # By hand, from the utilities of all sixteen coalitions.
    short = worth._short(context, four)
    utilities = value(short, "shapley", context.store).utilities
    names = data["sites"]
    drops = [utilities["+".join(names)] - utilities["+".join(n for n in names if n != site)] for site in names]
    exact = []
    for site in names:
        gains = []
        for order in permutations(names):
            before = sorted(order[: order.index(site)])
            gains.append(utilities["+".join(sorted([*before, site]))] - utilities["+".join(before)])
        exact.append(np.mean(gains))
    assert found["leave-one-out"] == pytest.approx(np.corrcoef(drops, exact)[0, 1])


def test_ceilings_follow_from_the_seeds_of_each_truth():
    whole = {0: np.array([0.1, 0.2, 0.6]), 1: np.array([0.1, 0.3, 0.5])}
    others = {0: np.array([0.3, 0.1, 0.2]), 1: np.array([0.3, 0.1, 0.2])}
    estimates = {
        "worth.all": [np.array([0.5, 0.3, 0.2])],
        "worth.share": [np.array([0.5, 0.2, 0.3])],
        "fedce": [np.array([0.1, 0.3, 0.6])],
        "images": [np.array([0.3, 0.3, 0.4])],
    }
    found = worth.Found(FEDERATIONS[1], whole, others, estimates, [True, False], [0.8])
    r = np.corrcoef(whole[0], whole[1])[0, 1]
    assert found.ceiling("whole") == pytest.approx(np.sqrt(2 * r / (1 + r)))
    assert found.ceiling("others") == pytest.approx(1)
    said = worth._findings([found])
    assert said[1].startswith("worth.all is more than 0.1 behind")
    assert "worth.share agrees with what the other sites lose by 0.98 (Pearson, mean, 0.98 of the ceiling)" in said[2]
    assert "hold the truth in 50 %" in said[3]


def test_a_truth_of_one_seed_has_no_ceiling():
    found = worth.Found(FEDERATIONS[1], {0: np.arange(3.0)}, {0: np.arange(3.0)}, {}, [], [])
    assert found.ceiling("whole") is None
    assert not worth._is_behind(found, "worth.all", "whole")


def test_nothing_is_trained_twice(context, monkeypatch):
    monkeypatch.setattr(worth, "DRAWN", FEDERATIONS)
    wanted = worth.trainings(context)
    # All sites, without each of six, FedCI, CGSV and the models of all coalitions.
    assert len({context.store.path(config) for config in wanted}) == 2 * 10
    seeds = worth.trainings(dataclasses.replace(context, seeds=[0, 1]))
    assert sum(config.algorithm.name == "fedci" for config in seeds) == 2
    context.store.run(wanted)
    assert context.store.missing(wanted) == []


def test_the_rule_that_ran_is_replayed_to_the_bit(context, outcome, monkeypatch):
    monkeypatch.setattr(worth, "DRAWN", FEDERATIONS)
    whole = worth._seeded(worth._whole(context, FEDERATIONS[0]), 0)
    result, rounds = context.result(whole), context.rounds(whole)
    found = estimates_of(result, rounds)
    assert found["fedce"].tolist() == list(result.contributions.values())
    assert found["worth.all"].tolist() == list(result.values["worth"]["all"].values())
    for shares in found.values():
        assert shares.sum() == pytest.approx(1)
        assert np.all(shares >= 0)
