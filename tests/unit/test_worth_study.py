"""The bench of worth: what is trained, and what is made of it."""

import numpy as np
import pytest

from fedce.base.config import load
from fedce.questions.jobs import Store
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


def test_nothing_is_trained_twice(context, monkeypatch):
    monkeypatch.setattr(worth, "DRAWN", FEDERATIONS)
    wanted = worth.trainings(context)
    # All sites, without each of six, FedCI, CGSV and the models of all coalitions.
    assert len({context.store.path(config) for config in wanted}) == 2 * 10
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
