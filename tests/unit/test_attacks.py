"""Sites that cheat: what each kind sends and says."""

import json
from dataclasses import replace

import numpy as np
import pytest
from benchmarks import unusual

from fedce.base.code import code_in
from fedce.base.config import parse
from fedce.base.errors import ConfigError
from fedce.core.messages import Reply, Task
from fedce.data import load_sites
from fedce.engines.starting import execute
from fedce.federation.plan import Participants, resolve
from fedce.record.folder import RunFolder
from fedce.record.verify import verify
from fedce.site.attacks import ATTACKS, TUNABLE, attack_of, hospital, is_there, said
from fedce.site.doctored import with_inverted_labels, with_one_image
from fedce.site.forged import LATE, NOISE
from fedce.site.impostor import Attack, Impostor
from support import FakeSite, params, write_site

START = params([1.0, 1.0])


def sent(kind: str, sign: int = 1, round_no: int = 0) -> np.ndarray:
    impostor = Impostor(FakeSite("x", [0.5, -0.25]), attack_of(kind), "x", sign)
    return impostor.train(START, round_no, {}).params.vector - START.vector


def sent_over(kind, rounds=3):
    site = Impostor(FakeSite("x", [0.5, -0.5]), attack_of(kind))
    moments, sent = {}, []
    for round_no in range(rounds):
        trained = site.train(params([float(round_no), 0.0]), round_no, moments)
        moments = trained.moments
        sent.append(trained.params.vector - [round_no, 0])
    return sent


def test_what_impostors_send():
    assert all((update == 0).all() for update in sent_over("zero"))
    np.testing.assert_allclose(sent_over("replay"), [[0.5, -0.5]] * 3)
    np.testing.assert_allclose(sent_over("echo"), [[0, 0], [-1, 0], [-1, 0]])
    noise = sent_over("noise")
    assert 0 < np.abs(noise).max() < 0.01
    assert not np.allclose(noise[0], noise[1])


def test_turned_and_scaled_updates():
    np.testing.assert_allclose(sent("flip"), [-0.5, 0.25])
    np.testing.assert_allclose(sent("scale"), [5.0, -2.5])
    np.testing.assert_allclose(sent("scale=3"), [1.5, -0.75])
    for kind in ("inflate", "pretend", "copy", "sybil", "labels"):
        np.testing.assert_allclose(sent(kind), [0.5, -0.25])


def test_colluders_cancel_each_other():
    one, other = sent("collude", 1, round_no=3), sent("collude", -1, round_no=3)
    assert np.abs(one).max() < 10 * NOISE
    np.testing.assert_allclose(one, -other, atol=1e-7)
    assert not np.allclose(one, sent("collude", 1, round_no=4))


def test_who_rides_on_the_common_step_sends_it_again():
    """The common model moves by (1, 0) in each round."""
    first, *later = sent_over("coattail=2")
    assert np.abs(first).max() < 0.01
    for update in later:
        assert np.linalg.norm(update - [2.0, 0.0]) == pytest.approx(0.1, rel=1e-4)
    assert not np.allclose(later[0], later[1])


def test_a_made_up_direction_is_held():
    one, other = sent("invent", round_no=1), sent("invent", round_no=2)
    assert one @ other / np.linalg.norm(one) / np.linalg.norm(other) > 0.9
    assert not np.allclose(one, other)


REPLY = Reply("x", 2, 10, score=0.8, error_without=0.3, error_replicates=(0.2, 0.4), score_local=0.9, scores=(0.6, 0.7))


def test_what_liars_say():
    claimed = said(REPLY, "inflate")
    assert claimed.error_without == 1.0
    assert len(set(claimed.error_replicates)) == 2
    assert (claimed.score, claimed.scores) == (0.8, (0.6, 0.7))
    assert said(REPLY, "collude").scores == (0.0, 0.0)
    half = said(REPLY, "pretend")
    assert (half.score, half.score_local, half.error_without) == pytest.approx((0.4, 0.45, 0.65))
    assert half.error_replicates == pytest.approx((0.6, 0.7))
    for kind in (None, "flip", "sybil"):
        assert said(REPLY, kind) == REPLY
    first = replace(REPLY, error_without=None, error_replicates=())
    for kind in ("inflate", "overstate", "vary"):
        assert said(first, kind) == first
    more = said(REPLY, "overstate")
    assert (more.error_without, *more.error_replicates) == pytest.approx((0.5, 0.4, 0.6))
    assert said(REPLY, "silent") == first
    assert said(REPLY, "boast").n_train == 160
    varied = said(REPLY, "vary")
    assert varied.error_without == 0.3
    assert np.mean(varied.error_replicates) == pytest.approx(0.3)


def test_what_liars_vote():
    """Sent are the model without c, the common model, the decoy, and those without b and a."""
    ballot, order = replace(REPLY, scores=(0.9, 0.6, 0.7, 0.58, 0.5)), [3, 0, 4, 2, 1]
    slander = said(ballot, "slander", "abc", order, {"b": "slander"})
    assert slander.scores == pytest.approx((0.8, 0.6, 0.8, 0.58, 0.8))
    praise = said(ballot, "praise", "abc", order, {"b": "praise", "c": "praise"})
    assert praise.scores == pytest.approx((0.4, 0.6, 0.7, 0.4, 0.5))
    assert said(ballot, "slander") == ballot
    assert said(ballot, "slander", "ab", [3, 0, 2, 1], {"b": "slander"}) == ballot


def test_who_stays_away():
    def there(kind, n_rounds=6):
        plant = {"b": kind, "d": kind}
        return [[is_there(Task(site, k, START), n_rounds, plant) for k in range(n_rounds)] for site in "abd"]

    always = [True] * 6
    assert there("leave") == [always, [True] * 3 + [False] * 3, [True] * 3 + [False] * 3]
    assert there("turns") == [always, [True, False] * 3, [False, True] * 3]
    assert there("halves") == [always, [True] * 3 + [False] * 3, [False] * 3 + [True] * 3]
    assert there("flip") == [always] * 3
    assert is_there(Task("b", 5, START, action="evaluate"), 6, {"b": "leave"})


@pytest.mark.parametrize(
    ("rho", "share", "comes"), [(None, None, True), (0.3, 0.3, True), (0.3, 0.2, False), (0.0, 0.2, True)]
)
def test_a_site_stays_away_for_a_round_when_its_share_fell(rho, share, comes):
    task = Task("b", 3, START, rho=rho, shares={} if share is None else {"b": share})
    assert is_there(task, 6, {"b": "sulk"}) is comes


def test_directions_that_are_added_to_honest_updates():
    one, other = sent("mirror", 1), sent("mirror", -1)
    np.testing.assert_allclose((one + other) / 2, [0.5, -0.25], atol=1e-6)
    assert np.linalg.norm(one - [0.5, -0.25]) == pytest.approx(np.linalg.norm([0.5, -0.25]), rel=1e-5)
    np.testing.assert_allclose(sent("rotate"), [0.5, -0.25], atol=1e-6)
    assert abs(sent("rotate", round_no=20) @ [0.5, -0.25]) < 0.3
    np.testing.assert_allclose(sent("late", round_no=LATE), [1.5, -0.75])
    np.testing.assert_allclose(sent("late"), [0.5, -0.25])
    np.testing.assert_allclose(sent("tiny"), [0.005, -0.0025], atol=1e-6)


def test_who_takes_part_now_and_then_is_paid_for_that(tmp_path):
    tree = {"rounds": 4, "data": {"scale": "tiny"}, "model": {"channels": [4, 8]}}
    plant = {"site2": "turns", "site4": "turns"}
    run = execute(parse({**tree, "freerider": {"plant": plant}}), tmp_path / "run", report=False)
    assert run.values["presence"] == {site: 0.5 if site in plant else 1.0 for site in run.values["presence"]}
    assert verify(RunFolder(run.folder)).problems == ()


def test_inverted_labels_leave_the_test_split():
    data = load_sites("fundus6", scale="tiny")[0]
    inverted = with_inverted_labels(data)
    split = data.split
    for kind in ("dilate", "invert"):
        changed = attack_of(kind).data(data)
        np.testing.assert_array_equal(changed.masks[split.test], data.masks[split.test])
        np.testing.assert_array_equal(changed.images[split.test], data.images[split.test])
        rows = split.train
        assert (changed.masks[rows] >= data.masks[rows]).all()
        assert (changed.masks[rows].sum() > data.masks[rows].sum()) == (kind == "dilate")
        assert (changed.images[rows] != data.images[rows]).any() == (kind == "invert")
    np.testing.assert_array_equal(inverted.masks[split.test], data.masks[split.test])
    for rows in (split.train, split.validation):
        np.testing.assert_array_equal(inverted.masks[rows], 1 - data.masks[rows])


@pytest.fixture(scope="module")
def replies():
    """One round of two members with the images of one, by kind."""
    found = {}
    for kind in ("copy", "sybil"):
        plant = {"site2": kind, "site4": kind}
        config = resolve(parse({"rounds": 1, "data": {"scale": "tiny"}, "freerider": {"plant": plant}}))
        participants = Participants(config, load_sites(config.data))
        model = participants.initial_state().params
        found[kind] = {
            site: participants.perform(Task(site, 0, model), None)[0] for site in ("site1", "site2", "site4")
        }
    return found


def test_copies_send_the_same_and_sybils_nearly_so(replies):
    copies, sybils = replies["copy"], replies["sybil"]
    assert {site: reply.site for site, reply in copies.items()} == {site: site for site in copies}
    assert copies["site2"].params.digest == copies["site4"].params.digest
    assert sybils["site2"].params.digest == copies["site2"].params.digest
    assert sybils["site2"].params.digest != sybils["site4"].params.digest
    assert sybils["site2"].n_train == sybils["site4"].n_train
    assert copies["site1"].params.digest == sybils["site1"].params.digest


def test_an_audit_proves_a_consistent_lie(tmp_path, fedce):
    out = tmp_path / "run"
    lie = ("--set", "freerider.plant={site2='pretend'}", "--set", "freerider.detect=true")
    run = fedce("run", "--data", "prostate6", "--scale", "tiny", "--rounds", 8, "--out", out, *lie)
    assert run.exit_code == 0, run.output
    caught = fedce("ledger", "audit", out, "--site", "site2", "--data", "prostate6", "--json")
    assert caught.exit_code == 1
    problem = json.loads(caught.stdout)["problems"][0]
    assert problem.startswith("Dice on its validation cases: site2 said 0.")
    honest = fedce("ledger", "audit", out, "--site", "site1", "--data", "prostate6")
    assert honest.exit_code == 0, honest.output
    assert "what site1 said is sound" in honest.output
    unknown = fedce("ledger", "audit", out, "--site", "site9", "--data", "prostate6")
    assert unknown.exit_code == 2
    assert "no site is called 'site9'" in unknown.output


def test_an_audit_wants_the_images_that_took_part(tmp_path, fedce):
    for site in ("east", "north"):
        write_site(tmp_path / "data", site, n=8)
    out = tmp_path / "run"
    small = ("--set", "model.channels=[4,8]", "--rounds", 2)
    assert fedce("run", "--data", tmp_path / "data", "--out", out, *small).exit_code == 0
    audit = ("ledger", "audit", out, "--site", "east", "--data", tmp_path / "data" / "east")
    assert fedce(*audit).exit_code == 0
    picture = tmp_path / "data" / "east" / "images" / "0.png"
    picture.write_bytes((tmp_path / "data" / "north" / "images" / "0.png").read_bytes())
    changed = fedce(*audit)
    assert changed.exit_code == 1
    assert "are not those that east took part with" in changed.output


def test_a_twin_without_the_others_images_says_so():
    sites = load_sites("fundus6", scale="tiny")
    only = [data for data in sites if data.name == "site4"]
    with pytest.raises(ConfigError, match="needs the images of site2; it is for the local engine"):
        hospital(only, "site4", None, ("disc",), 0, {"site2": "sybil", "site4": "sybil"})


def test_one_image_repeated():
    data = load_sites("fundus6", scale="tiny")[5]
    cheat = with_one_image(data)
    first = data.split.train[0]
    assert (cheat.images[cheat.split.train] == data.images[first]).all()
    assert (cheat.masks[cheat.split.validation] == data.masks[first]).all()
    assert cheat.n_cases_by_part == data.n_cases_by_part, "every copy passes for a case"
    assert (cheat.images[cheat.split.test] == data.images[data.split.test]).all()


def test_one_volume_repeated():
    """With volumes the free rider repeats all slices of one volume, and is counted like any other site."""
    data = load_sites("volume6", scale="tiny", sites=["site1", "site4"])[1]
    cheat = with_one_image(data)
    one = data.stacks(data.split.train)[0].of(data.images)
    stacks = cheat.stacks(cheat.split.train)
    assert len(stacks) == data.n_by_part["train"]
    assert all((stack.of(cheat.images) == one).all() for stack in stacks)
    assert (cheat.n_by_part, cheat.n_cases_by_part) == (data.n_by_part, data.n_cases_by_part)
    assert (cheat.images[cheat.split.test] == data.images[data.split.test]).all()


def test_an_attack_of_ones_own_is_somebodys_own_code(monkeypatch):
    monkeypatch.setattr("fedce.base.registry.load_object", lambda path, key: Attack("does nothing"))
    assert attack_of("mine:LAZY").words == "does nothing"
    config = parse({"freerider": {"plant": {"site2": "mine:LAZY"}}})
    assert code_in(config) == {"freerider.plant.site2": "mine:LAZY"}
    monkeypatch.setattr("fedce.base.registry.load_object", lambda path, key: print)
    with pytest.raises(ConfigError, match="to be of class Attack, got"):
        attack_of("builtins:print")
    with pytest.raises(ConfigError, match="unknown attack 'sibyl', did you mean 'sybil'"):
        attack_of("sibyl")


def test_a_strength_may_be_stated():
    reply = Reply("x", 1, 10, score=0.8, error_without=0.3, error_replicates=(0.2, 0.4))
    assert said(reply, "overstate=0.05").error_without == pytest.approx(0.35)
    assert said(reply, "tiny=0.5").error_without == pytest.approx(0.5)
    assert said(reply, "pretend=0.9").score == pytest.approx(0.72)
    assert said(reply, "boast=2").n_train == 20
    alike = replace(reply, error_replicates=(0.3,) * 20)
    assert np.std(said(alike, "vary=0.001").error_replicates) < 0.01 < np.std(said(alike, "vary=0.1").error_replicates)
    task = Task("x", 4, START)
    assert is_there(task, 20, {"x": "leave=5"})
    assert not is_there(task, 20, {"x": "leave=4"})
    ballot = replace(reply, scores=(0.5, 0.4, 0.4), error_without=None)
    lies = {kind: said(ballot, kind, "yx", (0, 1, 2), {"x": kind}).scores for kind in ("slander=0.1", "praise=0.1")}
    assert lies == {"slander=0.1": pytest.approx((0.5, 0.6, 0.4)), "praise=0.1": pytest.approx((0.5, 0.4, 0.4))}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("scale=3", 3.0), ("late=2", 2.0), ("tiny=0.1", 0.1), ("boast=4", 4.0)],
)
def test_a_longer_update_is_as_long_as_was_stated(kind, expected):
    np.testing.assert_allclose(sent(kind, round_no=LATE), expected * np.array([0.5, -0.25]), rtol=1e-5)


def test_a_made_up_direction_is_as_long_as_was_stated():
    honest = np.array([0.5, -0.25])
    for kind in ("drift", "mirror"):
        extra = [np.linalg.norm(sent(f"{kind}={times}") - honest) for times in (0.5, 2)]
        np.testing.assert_allclose(extra, np.linalg.norm(honest) * np.array([0.5, 2]), rtol=1e-5)
    np.testing.assert_allclose(sent("rotate=0.5", round_no=0), honest, rtol=1e-6)
    away = [abs(float(sent(f"rotate={turn}", round_no=2) @ honest)) for turn in (0.01, 0.25)]
    assert away[0] > away[1]


def planted(**plant):
    """Sites of a tiny federation, some of which cheat."""
    model = {"channels": [4, 8]}
    config = parse({"rounds": 1, "data": {"scale": "tiny"}, "model": model, "freerider": {"plant": plant}})
    return Participants(resolve(config), load_sites(config.data))


def test_accomplices_may_cheat_with_other_strengths():
    pair = planted(site1="mirror=1", site2="mirror=0.5", site3="drift=1")
    assert [pair.hospital(site).sign for site in ("site1", "site2", "site3")] == [1, -1, 1]
    both = planted(site1="drift=1", site2="drift=0.5")
    assert [both.hospital(site).sign for site in ("site1", "site2")] == [1, 1]
    reply = Reply("a", 1, 10, score=0.8, scores=(0.5, 0.4, 0.4, 0.4))
    lies = said(reply, "praise=0.1", "bcd", (0, 1, 2, 3), {"a": "praise=0.1", "c": "praise=0.2"}).scores
    assert lies == pytest.approx((0.5, 0.4, 0.4, 0.4))
    assert said(reply, "praise=0.3", "bcd", (0, 1, 2, 3), {"a": "praise=0.3", "c": "praise=0.2"}).scores[2] < 0.3


@pytest.mark.parametrize("kind", TUNABLE)
def test_every_strength_that_is_searched_is_an_attack(kind):
    one = TUNABLE[kind]
    assert 2 <= len(set(one.strengths)) <= 8
    assert len({attack_of(f"{kind}={strength:g}").words for strength in one.strengths}) == len(one.strengths)
    assert ATTACKS[kind].words == one.made(one.chosen).words


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("zero=1", "attack 'zero' takes no strength; those that do: scale"),
        ("overstat=1", "did you mean 'overstate'"),
        ("overstate=much", "expected a strength from 0 on, as in overstate=0.2; got 'overstate=much'"),
        ("overstate=-1", "from 0 on"),
        ("overstate=nan", "from 0 on"),
        ("pretend=2", "expected a strength from 0 to 1, as in pretend=0.5"),
        ("leave=2.5", "expected a whole number from 1 on, as in leave=3"),
        ("boast=0", "expected a strength from 1 on"),
    ],
)
def test_a_strength_that_cant_be(kind, problem):
    with pytest.raises(ConfigError, match=problem):
        attack_of(kind)


@pytest.mark.parametrize("name", unusual.UNUSUAL.values())
def test_honest_sites_that_are_unusual_can_be_planted(name):
    kind = f"benchmarks.unusual:{name}"
    there = [is_there(Task("x", round_no, START), 12, {"x": kind}) for round_no in range(12)]
    away = {"JOINS_LATE": range(5), "RETURNS": unusual.GAP}.get(name, ())
    assert [round_no for round_no, is_here in enumerate(there) if not is_here] == list(away)
    sites = load_sites("fundus6", scale="tiny")
    attack = attack_of(kind)
    if attack.data is not None:
        data, honest = attack.data(sites[1]), sites[1]
        assert len(data.images) == len(data.masks) == len(data.files)
        is_same = np.array_equal(data.masks, honest.masks) and np.array_equal(data.split.train, honest.split.train)
        assert not is_same, "something about it is unusual"
    elif attack.sends is not None:
        honest = planted().hospital("site2")
        for n, is_same in ((0, True), (unusual.SWITCH, False)):
            odd, usual = (
                site.train(honest.learner.initial, n, {}).params for site in (Impostor(honest, attack), honest)
            )
            assert np.array_equal(odd.vector, usual.vector) is is_same
