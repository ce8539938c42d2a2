"""Free riders: the score that stands out for them, and alarms."""

import json

import numpy as np
import pytest

from fedce.federation.loop import similarity_to_global
from fedce.guard.alarms import alarms, history, score
from fedce.guard.sign import ZERO_UPDATE
from fedce.record.entries import Round
from fedce.record.folder import RunFolder
from support import as_recorded


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


def scores(rounds, last_scores):
    return history(as_recorded(rounds), last_scores, "default")


def test_a_round_is_scored_with_the_next_rounds_validation_and_averaged():
    rounds = [entry(0, a=(0.1, 0.5, 0.0)), entry(1, a=(0.3, 0.9, 0.5))]
    found = scores(rounds, {"a": 0.7})
    first, second = 1.0 * (0.5 - 0.3), 0.5 * (0.9 - 0.7)
    assert found["a"] == pytest.approx([first, (first + second) / 2])


def test_to_the_letter_the_similarity_is_that_with_the_common_update():
    """cos(delta_i, w_next - w), where the default takes the others' update; earlier ledgers have that one alone."""
    told = {"n_train": 1, "weight": 1.0, "share": 1.0, "score": 0.1, "loss": None, "err_replicates": [], "flags": []}
    told |= {"seconds": 0.0, "score_local": 0.5, "similarity": 0.25}
    line = {"kind": "round", "time": 0.0, "round": 0, "seconds": 0.0, "mean_score": 0.1, "rejected": {}, "notes": []}
    before, now = (Round.of({**line, "sites": {"a": told | more}}) for more in ({}, {"similarity_global": 0.75}))
    assert history([before], {"a": 0.3}, "literal")["a"] == pytest.approx([0.25 * 0.2])
    assert history([now], {"a": 0.3}, "literal")["a"] == pytest.approx([0.75 * 0.2])
    assert history([now], {"a": 0.3}, "default")["a"] == pytest.approx([0.75 * 0.2])


def test_similarity_with_the_common_update_by_hand():
    updates = {"a": np.array([1.0, 0.0]), "b": np.array([1.0, 1.0]), "still": np.zeros(2)}
    before, after = np.array([5.0, 5.0]), np.array([5.0, 7.0])
    found = similarity_to_global(updates, after, before)
    assert found == {"a": 0.0, "b": pytest.approx(2**-0.5), "still": None}
    assert similarity_to_global(updates, before, before) == dict.fromkeys(updates)


def test_rounds_without_the_site_have_no_score():
    rounds = [entry(0, a=(0.1, 0.5, 0.0)), entry(1), entry(2, a=(0.3, 0.5, 0.0))]
    assert scores(rounds, {"a": 0.3})["a"] == [None, None, pytest.approx(0.2)]


def facts(sketch=(1.0, 0.0), replicates=(0.3, 0.4), similarity=0.5, flags=()):
    return {"sketch": list(sketch), "err_replicates": list(replicates), "similarity": similarity, "flags": list(flags)}


def ledger(*rounds, start=None):
    """Rounds of one site; the global model moves by one step along the first axis in each."""
    return [
        {"round": k, "sketch": start[k] if start else [float(k), 0.0], "sites": {"x": found}}
        for k, found in enumerate(rounds)
    ]


def kinds(rounds):
    return {alarm.kind: alarm.round_no for alarm in alarms(as_recorded(rounds), 10_000)}


def turning(n, **changes):
    """Honest updates: each points elsewhere."""
    return [facts((np.cos(0.3 * k), np.sin(0.3 * k)), **changes) for k in range(n)]


def test_an_honest_site_raises_no_alarm():
    assert kinds(ledger(*turning(20))) == {}


def test_each_alarm_comes_in_the_round_that_proves_it():
    assert kinds(ledger(*turning(5, replicates=(0.3, 0.3, 0.3)))) == {"repeat": 2}
    assert kinds(ledger(*turning(5, replicates=(1.0, 1.0)))) == {}
    assert kinds(ledger(*turning(3), *turning(1, flags=[ZERO_UPDATE]))) == {"zero": 3, "replay": 3}
    assert kinds(ledger(*turning(4), facts((np.cos(0.3), np.sin(0.3))))) == {"replay": 4}
    assert kinds(ledger(*turning(3), facts((-1.0, 0.0)))) == {"echo": 3}
    # At right angles to the others, and to its own of the round before.
    angles = [facts((np.cos(k * 1.6), np.sin(k * 1.6)), similarity=0.001) for k in range(6)]
    assert kinds(ledger(facts((-1.0, 1.0)), *angles)) == {"noise": 4}


def test_going_on_in_ones_own_direction_is_no_noise():
    assert kinds(ledger(*turning(9, similarity=0.001))) == {}


def test_undefined_similarity_is_no_right_angle():
    assert kinds(ledger(*turning(9, similarity=None))) == {}


@pytest.mark.parametrize("algorithm", ["krum", "standalone"])
def test_the_detector_is_quiet_on_honest_sites_of_any_method(tmp_path, fedce, algorithm):
    settings = ("--algorithm", algorithm, "--set", "freerider.detect=true")
    run = fedce("run", "--scale", "tiny", "--rounds", 6, "--out", tmp_path / "run", *settings, "--json")
    assert run.exit_code == 0, run.output
    assert not any(facts["alarms"] for facts in json.loads(run.stdout)["freerider"].values())


@pytest.mark.parametrize("kind", ["repeat", "zero", "noise", "replay", "echo"])
def test_a_planted_free_rider_is_found_and_nobody_else(tmp_path, fedce, kind):  # D13
    plant = f"freerider.plant={{site6='{kind}'}}"
    settings = ("--set", "freerider.detect=true", "--set", plant)
    run = fedce("run", "--scale", "tiny", "--rounds", 12, "--out", tmp_path / "run", *settings, "--json")
    assert run.exit_code == 0, run.output
    found = {
        site: {alarm["kind"] for alarm in facts["alarms"]}
        for site, facts in json.loads(run.stdout)["freerider"].items()
    }
    assert kind in found.pop("site6")
    assert not any(found.values())


def test_the_repeated_image_has_the_highest_score(tmp_path, fedce):  # D13
    settings = ("--set", "freerider.detect=true", "--set", "freerider.plant={site6='repeat'}")
    run = fedce("run", "--scale", "tiny", "--rounds", 25, "--out", tmp_path / "run", *settings, "--json")
    scores = {site: facts["scores"][-1] for site, facts in json.loads(run.stdout)["freerider"].items()}
    assert max(scores, key=scores.get) == "site6"


def test_to_the_letter_the_ledger_has_the_cosine_with_what_the_round_made(tmp_path, fedce):
    settings = ("--set", "freerider.detect=true", "--set", "freerider.score=literal", "--set", "guard=off")
    run = fedce("run", "--scale", "tiny", "--rounds", 2, "--out", tmp_path / "run", *settings, "--json")
    found = json.loads(run.stdout)
    first, second = RunFolder(tmp_path / "run").rounds()
    gaps = {site: second.sites[site].score - facts.score_local for site, facts in first.sites.items()}
    for site, facts in first.sites.items():
        # A site's own update is part of the common one, and of the others' it is not.
        assert facts.similarity_global > facts.similarity
        assert found["freerider"][site]["scores"][0] == pytest.approx(-facts.similarity_global * gaps[site])
