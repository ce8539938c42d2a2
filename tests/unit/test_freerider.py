"""Free riders: what impostors send, and the score that finds them."""

import json

import numpy as np
import pytest

from fedce.data import load_sites
from fedce.freerider import FACTOR, Impostor, flagged_from, history, score, with_one_image
from support import FakeSite, params


def test_the_score_by_hand():  # D13
    # Its update points 0.75 away from the others', and its own model errs by 0.2 less than the next common one.
    assert score(0.25, 0.5, 0.3, "default") == pytest.approx(0.75 * 0.2)
    assert score(0.25, 0.3, 0.5, "default") == 0.0
    assert score(0.25, 0.5, 0.3, "literal") == pytest.approx(0.25 * 0.2)
    assert score(0.25, 0.3, 0.5, "literal") == pytest.approx(0.25 * -0.2)


def entry(round_no, **sites):
    return {
        "round": round_no,
        "sites": {
            site: dict(zip(("score", "score_local", "similarity"), facts, strict=True)) for site, facts in sites.items()
        },
    }


def test_a_round_is_scored_with_the_next_rounds_validation_and_averaged():
    rounds = [entry(0, a=(0.1, 0.5, 0.0)), entry(1, a=(0.3, 0.9, 0.5))]
    found = history(rounds, {"a": 0.7}, "default")
    first, second = 1.0 * (0.5 - 0.3), 0.5 * (0.9 - 0.7)
    assert found["a"] == pytest.approx([first, (first + second) / 2])


def test_rounds_without_the_site_have_no_score():
    rounds = [entry(0, a=(0.1, 0.5, 0.0)), entry(1), entry(2, a=(0.3, 0.5, 0.0))]
    assert history(rounds, {"a": 0.3}, "default")["a"] == [None, None, pytest.approx(0.2)]


def test_a_site_is_flagged_from_where_it_stands_out_to_the_end():
    high, low = 10 * FACTOR * 0.01, 0.01
    scores = {"a": [high, low, high, high], "b": [low] * 4, "c": [low] * 4}
    assert flagged_from(scores) == {"a": 2}
    assert flagged_from({site: values[:2] for site, values in scores.items()}) == {}
    assert flagged_from({}) == {}


def train(kind, rounds=3):
    site = Impostor(FakeSite("x", [0.5, -0.5]), kind)
    moments, sent = {}, []
    for round_no in range(rounds):
        trained = site.train(params([float(round_no), 0.0]), round_no, moments)
        moments = trained.moments
        sent.append(trained.params.vector - [round_no, 0])
    return sent


def test_what_impostors_send():
    assert all((update == 0).all() for update in train("zero"))
    np.testing.assert_allclose(train("replay"), [[0.5, -0.5]] * 3)
    np.testing.assert_allclose(train("echo"), [[0, 0], [-1, 0], [-1, 0]])
    noise = train("noise")
    assert 0 < np.abs(noise).max() < 0.01
    assert not np.allclose(noise[0], noise[1])


def test_one_image_repeated():
    data = load_sites("fundus6", scale="tiny")[5]
    cheat = with_one_image(data)
    assert len(set(cheat.split.train)) == len(set(cheat.split.validation)) == 1
    assert len(cheat.split.train) == len(data.split.train)
    assert cheat.split.test is data.split.test


def test_a_planted_free_rider_is_scored_in_a_run(tmp_path, fedce):
    out = tmp_path / "run"
    plant = "freerider.plant={site6='repeat'}"
    run = fedce(
        *(
            "run",
            "--scale",
            "tiny",
            "--rounds",
            25,
            "--out",
            out,
            "--set",
            "freerider.detect=true",
            "--set",
            plant,
            "--json",
        )
    )
    assert run.exit_code == 0, run.output
    scores = {site: facts["scores"][-1] for site, facts in json.loads(run.stdout)["freerider"].items()}
    assert max(scores, key=scores.get) == "site6"
