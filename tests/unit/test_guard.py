"""The guard: each sign by hand, honest sites however rare, and every attack on a federation of vectors."""

from dataclasses import replace

import numpy as np
import pytest

from fedce.algorithms import FedCE
from fedce.algorithms.base import State, Terms
from fedce.algorithms.guard import KEPT, Claim, Signs, believed_novelty, judged, look, sketches_with, suspects_after
from fedce.messages import Reply
from fedce.params import Params, gram, sketch
from support import layout

N = 4000
SITES = ("a", "b", "c", "d", "e", "f")
RARE = "e"


class Vectors:
    """Sites whose updates are sums of a common direction, one of their own that turns slowly, and a little noise.

    The rare site has little in common with the others, and its error falls late.
    """

    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)
        self.rng = rng
        self.common = rng.normal(size=N)
        self.own = {site: rng.normal(size=N) for site in SITES}
        self.images = dict(zip(SITES, (10, 20, 40, 10, 15, 80), strict=True))

    def update(self, site, k):
        part = 0.25 if site == RARE else 0.8
        self.own[site] = 0.97 * self.own[site] + 0.24 * self.rng.normal(size=N)
        fading = part * 0.96**k
        vector = fading * self.common + (1 - part) * self.own[site] + 0.1 * self.rng.normal(size=N)
        return (vector / np.linalg.norm(vector) * np.sqrt(self.images[site])).astype(np.float32)

    def error(self, site, k):
        floor = 0.5 if site == RARE else 0.15 + 0.01 * SITES.index(site)
        return floor + (0.95 - floor) * 0.9**k


def run(attack=None, attackers=("b",), n_rounds=30, algorithm=None, seed=0, absent=()):
    """Final state; `attack(kind of thing)` changes what the attackers send."""
    algorithm = algorithm or FedCE()
    world = Vectors(seed)
    start = np.zeros(N, np.float32)
    state = State(sites=tuple(site for site in SITES if site not in absent), params=Params(layout(N), start))
    before = {}
    for k in range(n_rounds):
        replies = []
        sent = {}
        for site in SITES:
            update, error = world.update(site, k), world.error(site, k)
            score = 1 - error + 0.01
            if site in attackers and attack:
                update, error, score = attack(site, k, update, error, score, sent, before)
            update = sent[site] = np.asarray(update, np.float32)
            if site in absent:
                continue
            replicates = tuple(np.clip(error + 0.01 * np.arange(4), 0, 1).tolist())
            model = Params(state.params.layout, state.params.vector + update)
            replies.append(
                Reply(
                    site,
                    k,
                    world.images[site],
                    model,
                    score=score,
                    error_without=error if k else None,
                    error_replicates=replicates if k else (),
                )
            )
        before = {**before, k: state.params.vector.copy()}
        state = algorithm.round(state, lambda tasks, replies=replies: replies)
    return state


def zero(site, k, update, error, score, sent, before):
    return 0 * update, error, score


def noise(site, k, update, error, score, sent, before):
    rng = np.random.default_rng([k, ord(site)])
    return rng.normal(size=N) * np.linalg.norm(update) / np.sqrt(N), error, score


def flip(site, k, update, error, score, sent, before):
    return -update, error, score


def flip_late(site, k, update, error, score, sent, before):
    return (-update if k >= 10 else update), error, score


def replay(site, k, update, error, score, sent, before):
    return before.setdefault(site, update), error, score


def echo(site, k, update, error, score, sent, before):
    back = before[k - 2] - before[k - 1] if k > 1 else update
    return back, error, score


def inflate(site, k, update, error, score, sent, before):
    return update, 1.0, score


def collude(site, k, update, error, score, sent, before):
    rng = np.random.default_rng(k)
    vector = rng.normal(size=N)
    return (vector if site == "b" else -vector) * 5 / np.sqrt(N), 1.0, score


def weakly_flip(site, k, update, error, score, sent, before):
    """Turned, and so noisy that no cosine is far from nothing."""
    rng = np.random.default_rng([k // 40, ord(site)])
    length = np.linalg.norm(update)
    return -update + 3 * length / np.sqrt(N) * rng.normal(size=N), error, score


def hold(site, k, update, error, score, sent, before):
    """One random direction, with a little noise."""
    held, wobble = np.random.default_rng(ord(site)), np.random.default_rng([k, ord(site)])
    length = np.linalg.norm(update) / np.sqrt(N)
    return length * (held.normal(size=N) + 0.1 * wobble.normal(size=N)), error, score


ATTACKS = [
    *((attack, ("b",)) for attack in (zero, noise, flip, weakly_flip, hold, replay, echo, inflate)),
    *((attack, ("b", "d")) for attack in (zero, noise, flip, weakly_flip, replay, echo, inflate, collude)),
]


@pytest.mark.parametrize(("attack", "attackers"), ATTACKS)
def test_no_attack_pays_and_the_rare_site_loses_nothing(attack, attackers):
    honest, attacked = run(), run(attack, attackers)
    gained = sum(attacked.shares[site] for site in attackers) / sum(honest.shares[site] for site in attackers)
    assert gained <= 1.1
    assert attacked.shares[RARE] >= 0.9 * honest.shares[RARE]


@pytest.mark.parametrize(
    ("attack", "attackers"), [(noise, ("b",)), (flip, ("b",)), (inflate, ("b",)), (collude, ("b", "d"))]
)
def test_without_the_guard_they_do(attack, attackers):
    plain = FedCE(guard="off")
    honest, attacked = run(algorithm=plain), run(attack, attackers, algorithm=plain)
    gained = sum(attacked.shares[site] for site in attackers) / sum(honest.shares[site] for site in attackers)
    assert gained > 1.1


def test_twins_are_paid_once():
    def twin(site, k, update, error, score, sent, before):
        rng = np.random.default_rng([k, 1])
        return (
            (sent["b"] + 0.2 * np.linalg.norm(sent["b"]) / np.sqrt(N) * rng.normal(size=N)).astype(np.float32),
            error,
            score,
        )

    alone, together = run(absent=("d",)), run(twin, ("d",))
    assert together.shares["b"] + together.shares["d"] <= 1.1 * alone.shares["b"]
    assert together.terms["b"].trust == pytest.approx(0.5, abs=0.05)
    without = run(twin, ("d",), algorithm=FedCE(guard="off"))
    assert (
        without.shares["b"] + without.shares["d"] > 1.1 * run(absent=("d",), algorithm=FedCE(guard="off")).shares["b"]
    )


def test_turning_against_the_others_late_is_seen():
    state = run(flip_late)
    assert state.terms["b"].trust == 0
    assert state.rho["b"] == 0
    assert "b" in state.suspects


def test_coming_back_is_seen_too():
    def episode(site, k, update, error, score, sent, before):
        return (-update if 10 <= k < 15 else update), error, score

    state = run(episode)
    assert state.terms["b"].trust == 1
    assert state.suspects == ()


@pytest.mark.parametrize("seed", range(5))
def test_where_all_are_honest_the_guard_changes_no_bit(seed):
    guarded, plain = run(seed=seed), run(seed=seed, algorithm=FedCE(guard="off"))
    assert dict(guarded.shares) == dict(plain.shares)
    np.testing.assert_array_equal(guarded.params.vector, plain.params.vector)
    assert all(not Signs(**terms.signs).faults for terms in guarded.terms.values())


def test_bad_updates_are_not_in_the_model():
    attacked, absent = run(flip), run(absent=("b",))
    np.testing.assert_allclose(attacked.params.vector, absent.params.vector, rtol=1e-5, atol=1e-6)


def test_where_all_are_bad_the_round_goes_on():
    state = run(zero, SITES, n_rounds=3)
    assert sum(state.rho.values()) == pytest.approx(1)
    assert sum(state.shares.values()) == pytest.approx(1)


GOOD = Signs(length=1.0, agreement=0.3, turn=0.8, coherence=1.0, repetition=0.9, excess=0.05, weight=0.2)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"length": 0.0}, "zero update"),
        ({"length": 9e-4}, "zero update"),
        ({"agreement": -0.51}, "its updates go against the others' or have nothing to do with them"),
        ({"relation": -0.26}, "its updates go against the others' or have nothing to do with them"),
        ({"relation": 0.02, "is_settled": True}, "its updates go against the others' or have nothing to do with them"),
        ({"turn": -0.26}, "its updates go against the others' or have nothing to do with them"),
        ({"suspected": True, "agreement": 0.1}, "its updates go against the others' or have nothing to do with them"),
        ({"coherence": 0.24}, "its updates are noise"),
        ({"repetition": 0.999995}, "it sent an old update again"),
        ({"one_case": True}, "its validation cases are all the same"),
    ],
)
def test_what_is_bad_gets_nothing(change, fault):
    signs = replace(GOOD, **change)
    assert signs.faults == [fault]
    assert signs.trust == 0


@pytest.mark.parametrize(
    "change",
    [
        {"agreement": -0.49},
        {"agreement": None},
        {"relation": 0.02},
        {"relation": 0.07, "is_settled": True},
        {"coherence": None, "turn": None},
        {"coherence": 0.3},
        {"suspected": True, "agreement": 0.25},
        {"suspected": True, "turn": -0.5},
        {"repetition": None},
        {"excess": 0.29},
        {"excess": None},
    ],
)
def test_what_is_only_unusual_loses_nothing(change):
    signs = replace(GOOD, **change)
    assert signs.faults == []
    assert judged(Terms(0.5, 0.4), signs) == Terms(0.5, 0.4, 1.0, None, judged(Terms(), signs).signs)


def test_an_error_that_the_own_score_contradicts_is_not_believed():
    signs = replace(GOOD, excess=0.6)
    terms = judged(Terms(0.5, 0.9), signs)
    assert terms.trust == 1
    assert terms.believed == pytest.approx(0.3)
    assert signs.faults == ["it claims an error that its own score contradicts"]


def test_alike_sites_share():
    assert replace(GOOD, twins={"b": 1.0}).trust == 0.5
    assert replace(GOOD, twins={"b": 1.0, "c": 1.0}).trust == pytest.approx(1 / 3)
    assert replace(GOOD, twins={"b": 0.2}).trust == pytest.approx(1 / 1.2)
    assert replace(GOOD, twins={"b": 0.7, "c": 0.2}).faults == ["its updates are nearly those of b"]


def test_one_repeated_case_is_told_from_cases_that_all_fail_alike():
    assert Claim(0.5, 0.52, (0.52, 0.52, 0.52), 0.6, was_uniform=True).is_of_one_case
    assert not Claim(0.5, 0.5, (0.5, 0.5, 0.5), 0.5, was_uniform=True).is_of_one_case
    assert not Claim(0.5, 0.5, (0.5, 0.51), 0.6, was_uniform=True).is_of_one_case
    assert not Claim(0.5, 0.5, (), 0.6, was_uniform=True).is_of_one_case
    assert not Claim(0.5, 0.5, (0.5, 0.5), was_uniform=True).is_of_one_case
    # The round in which all predictions become empty.
    assert not Claim(0.0, 1.0, (1.0, 1.0), 0.93, was_uniform=False).is_of_one_case


def test_an_absent_suspect_stays_one():
    bad = judged(Terms(1.0, 0.5), replace(GOOD, agreement=-0.6))
    good = judged(Terms(1.0, 0.5), GOOD)
    assert suspects_after((), {"a": good, "b": bad}) == ("b",)
    assert suspects_after(("b",), {"a": good}) == ("b",)
    assert suspects_after(("b",), {"a": good, "b": good}) == ()


def test_two_sites_have_no_majority():
    updates = [Params(layout(4), np.array(v, np.float32)) for v in ([1, 0, 0, 0], [-1, 0, 0, 0])]
    zero_model = Params(layout(4), np.zeros(4, np.float32))
    kept = sketches_with({}, {site: sketch(u.vector) for site, u in zip("ab", updates, strict=True)}, [0.0] * 64)
    claims = dict.fromkeys("ab", Claim(0.5, None, ()))
    signs = look("ab", gram(updates, zero_model), kept, claims, {"a": 0.5, "b": 0.5})
    assert [found.trust for found in signs.values()] == [1.0, 1.0]


def test_only_so_many_updates_are_kept():
    kept = {}
    for k in range(KEPT + 5):
        kept = sketches_with(kept, {"a": [float(k - 3)] + [0.0] * 63}, [float(k)] * 64)
    assert kept["a"].shape == (KEPT, 64)
    assert kept["a"][-1, 0] == 1.0
    assert kept[""][:, 0].tolist() == [KEPT + 3, KEPT + 4]
    endless = sketches_with({}, {"a": [float("inf")] * 64}, [0.0] * 64)
    assert not endless["a"].any()


def step_back(site, k, update, error, score, sent, before):
    """One round of undoing everybody's last step, then honest again."""
    return (5 * (before[k - 2] - before[k - 1]) if k == 8 else update), error, score


@pytest.mark.parametrize(("absent", "attackers"), [(("b", "c", "d"), ("a",)), (("d",), ("b", "c"))])
def test_a_minority_can_not_expel_the_rare_site(absent, attackers):
    honest, attacked = run(absent=absent), run(step_back, attackers, absent=absent)
    assert attacked.terms[RARE].trust == 1
    assert attacked.shares[RARE] >= 0.9 * honest.shares[RARE]


def test_a_long_update_does_not_make_the_other_of_two_stand_still():
    def longer(site, k, update, error, score, sent, before):
        return 5000 * update, error, score

    state = run(longer, absent=("c", "d", "e", "f"), n_rounds=4)
    assert state.terms["a"].trust == 1
    assert state.shares["a"] > 0.2


def test_noise_that_leaves_before_it_is_known_keeps_little():
    honest = run(n_rounds=30)
    for n in (1, 2, 3, 4):
        accounts = {**honest.accounts, "b": run(noise, n_rounds=n).accounts["b"]}
        assert FedCE().shares(accounts)["b"] <= 1.1 * honest.shares["b"]
        assert FedCE(guard="off").shares(accounts)["b"] == FedCE(guard="off").weights(accounts, accounts)["b"]


def test_a_claimed_novelty_is_believed_as_far_as_the_server_measured_it():
    last = judged(Terms(0.5, 0.5), replace(GOOD, novelty=0.4))
    assert believed_novelty(2.0, last) == 0.4
    assert believed_novelty(0.42, last) == 0.42
    assert believed_novelty(0.1, last) == 0.1
    assert believed_novelty(None, last) is None
    assert believed_novelty(2.0, Terms()) == 2.0


def test_three_or_four_sites_have_no_twins():
    for absent in (("b", "c", "d"), ("b", "c")):
        guarded, plain = run(absent=absent), run(absent=absent, algorithm=FedCE(guard="off"))
        assert dict(guarded.shares) == dict(plain.shares)


def test_the_known_bad_have_no_voice():
    """Late in a run honest updates hardly agree; two who undo everything must not turn the median against them."""

    def undo(site, k, update, error, score, sent, before):
        back = before[k - 2] - before[k - 1] if k > 1 else -update
        return 2 * back, error, score

    state = run(undo, ("b", "d"), n_rounds=80)
    assert {site: terms.trust for site, terms in state.terms.items()} == {
        site: 0.0 if site in ("b", "d") else 1.0 for site in SITES
    }
    suspected = judged(Terms(), replace(GOOD, agreement=-0.6))
    assert suspects_after((), {"b": suspected}) == ("b",)
    vectors = {"a": [1, 0.2], "b": [-1, 0], "c": [1, -0.2], "d": [-1, 0.1], "e": [0.3, 1]}
    updates = [Params(layout(2), np.array(v, np.float32)) for v in vectors.values()]
    kept = sketches_with({}, {site: sketch(u.vector) for site, u in zip(vectors, updates, strict=True)}, [0.0] * 64)
    claims = dict.fromkeys(vectors, Claim(0.5, None, ()))
    products = gram(updates, Params(layout(2), np.zeros(2, np.float32)))
    weights = dict.fromkeys(vectors, 0.2)
    assert look(list(vectors), products, kept, claims, weights)["e"].agreement < 0.15
    assert look(list(vectors), products, kept, claims, weights, suspects=("b", "d"))["e"].agreement > 0.4
