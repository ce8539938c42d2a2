"""The guard: each sign by hand, honest sites however rare, and every attack on a federation of vectors."""

from dataclasses import replace

import numpy as np
import pytest

from fedce.algorithms import FedCE, FedCEAtSites, FedCERunningMeans, guarded
from fedce.algorithms.fedce import BothTerms
from fedce.core.credit import Account, Credit
from fedce.core.messages import Reply
from fedce.core.params import Params, gram, sketch
from fedce.guard import Guarded
from fedce.guard.evidence import KEPT, Claim, Related, Updates, sketches_with
from fedce.guard.guarded import GuardedTerms, believed_novelty
from fedce.guard.signs import Signs, look
from fedce.guard.verdicts import Verdict, related_with, suspects_after
from support import layout, params

N = 4000
SITES = ("a", "b", "c", "d", "e", "f")
RARE = "e"


def words_of(signs):
    return [flag.text for flag in signs.flags]


def trust_in(state, site):
    return state.own.verdicts[site].trust


def judged(cos, err, trust=1.0, past=1.0):
    return GuardedTerms(10, BothTerms(10, cos, err), Verdict(err, GOOD, trust, None, past))


def bad():
    return GuardedTerms(10, None, Verdict(0.5, GOOD, 0.0))


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
    algorithm = algorithm or Guarded(FedCE())
    world = Vectors(seed)
    start = np.zeros(N, np.float32)
    state = algorithm.begin(tuple(site for site in SITES if site not in absent), Params(layout(N), start))
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


def mirror(site, k, update, error, score, sent, before):
    """An honest update and one held direction, which the partner adds with the opposite sign."""
    held = np.random.default_rng(7).normal(size=N)
    way = 1 if site == "b" else -1
    return update + way * 1.5 * np.linalg.norm(update) * held / np.linalg.norm(held), error, score


def grow_late(site, k, update, error, score, sent, before):
    return (3 if k >= 25 else 1) * update, error, score


def overstate(site, k, update, error, score, sent, before):
    """Always claims 0.2 more than is true, which no single round contradicts."""
    return update, min(error + 0.2, 1.0), score


ATTACKS = [
    *((attack, ("b",)) for attack in (zero, noise, flip, weakly_flip, hold, replay, echo, inflate)),
    *((attack, ("b", "d")) for attack in (zero, noise, flip, weakly_flip, replay, echo, inflate, collude, mirror)),
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
    plain = FedCE()
    honest, attacked = run(algorithm=plain), run(attack, attackers, algorithm=plain)
    gained = sum(attacked.shares[site] for site in attackers) / sum(honest.shares[site] for site in attackers)
    assert gained > 1.1


def test_overstating_a_little_in_every_round_gains_little():
    honest, attacked = run(), run(overstate)
    assert attacked.shares["b"] / honest.shares["b"] < 1.25
    without = run(overstate, algorithm=FedCE()).shares["b"] / run(algorithm=FedCE()).shares["b"]
    assert without > 1.4
    both = run(overstate, ("b", "d"))
    assert (both.shares["b"] + both.shares["d"]) / (honest.shares["b"] + honest.shares["d"]) < 1.25


def test_pairs_that_cancel_and_sudden_length_are_seen():
    for attack, who, word in (
        (mirror, ("b", "d"), "its own direction cancels that of another site"),
        (grow_late, ("b",), "its update is far longer than its updates before"),
    ):
        state = run(attack, who)
        said = {site: words_of(verdict.signs) for site, verdict in state.own.verdicts.items()}
        assert {site for site, words in said.items() if words == [word]} == set(who)
        assert all(words == [] for site, words in said.items() if site not in who)


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
    assert trust_in(together, "b") == pytest.approx(0.5, abs=0.05)
    without = run(twin, ("d",), algorithm=FedCE())
    assert without.shares["b"] + without.shares["d"] > 1.1 * run(absent=("d",), algorithm=FedCE()).shares["b"]


def test_turning_against_the_others_late_is_seen():
    state = run(flip_late)
    assert trust_in(state, "b") == 0
    assert state.rho["b"] == 0
    assert "b" in state.own.suspects


def test_coming_back_is_seen_too():
    def episode(site, k, update, error, score, sent, before):
        return (-update if 10 <= k < 15 else update), error, score

    state = run(episode)
    assert trust_in(state, "b") == 1
    assert state.own.suspects == ()


@pytest.mark.parametrize("seed", range(5))
def test_where_all_are_honest_the_guard_changes_no_bit(seed):
    guarded, plain = run(seed=seed), run(seed=seed, algorithm=FedCE())
    assert dict(guarded.shares) == dict(plain.shares)
    np.testing.assert_array_equal(guarded.params.vector, plain.params.vector)
    assert all(not verdict.signs.flags for verdict in guarded.own.verdicts.values())


def test_bad_updates_are_not_in_the_model():
    attacked, absent = run(flip), run(absent=("b",))
    np.testing.assert_allclose(attacked.params.vector, absent.params.vector, rtol=1e-5, atol=1e-6)


def test_where_all_are_bad_the_round_goes_on():
    state = run(zero, SITES, n_rounds=3)
    assert sum(state.rho.values()) == pytest.approx(1)
    assert sum(state.shares.values()) == pytest.approx(1)


GOOD = Signs(1.0, agreement=0.3, others_agreement=0.3, turn=0.8, coherence=1.0, repetition=0.9, excess=0.05, weight=0.2)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"length": 0.0}, "zero update"),
        ({"length": 9e-6}, "zero update"),
        ({"agreement": -0.51}, "its updates go against the others' or have nothing to do with them"),
        ({"relation": -0.26}, "its updates go against the others' or have nothing to do with them"),
        ({"relation": 0.02, "is_settled": True}, "its updates go against the others' or have nothing to do with them"),
        (
            {"relation": 0.02, "is_settled": True, "length": 0.1},
            "its updates go against the others' or have nothing to do with them",
        ),
        ({"turn": -0.26}, "its updates go against the others' or have nothing to do with them"),
        ({"suspected": True, "agreement": 0.1}, "its updates go against the others' or have nothing to do with them"),
        ({"coherence": 0.24}, "its updates are noise"),
        ({"repetition": 0.999995}, "it sent an old update again"),
        ({"one_case": True}, "its validation cases are all the same"),
    ],
)
def test_what_is_bad_gets_nothing(change, fault):
    signs = replace(GOOD, **change)
    assert words_of(signs) == [fault]
    assert signs.trust == 0


def test_sites_whose_updates_cancel_when_the_training_has_converged_are_not_adverse():
    """Four sites around their common optimum: the updates sum to nothing, so everybody is against the rest."""
    converged = seen([[1.0, 0.05], [-1.0, 0.05], [-0.9, -0.1], [0.9, 0.0]], round_no=90)
    assert min(signs.agreement for signs in converged.values()) < -0.5
    assert all(words_of(signs) == [] for signs in converged.values())
    lone = seen([[1.0, 0.05], [-1.0, 0.05], [0.9, -0.1], [0.9, 0.0]], round_no=90)
    assert [site for site, signs in lone.items() if signs.is_bad] == ["b"]


@pytest.mark.parametrize(
    "change",
    [
        {"length": 2e-5},
        {"length": 0.05, "jump": 9.0},
        {"agreement": -0.49},
        {"agreement": -0.6, "others_agreement": -0.2},
        {"agreement": None},
        {"relation": 0.02},
        {"relation": -0.24},
        {"relation": 0.07, "is_settled": True},
        {"relation": -0.07, "is_settled": True, "length": 0.05},
        {"turn": -0.24},
        {"coherence": None, "turn": None},
        {"coherence": 0.3},
        {"suspected": True, "agreement": 0.25},
        {"suspected": True, "turn": -0.5},
        {"suspected": True, "turn": -0.5, "agreement": 0.1},
        {"repetition": 0.9999},
        {"repetition": None},
        {"excess": 0.29},
        {"excess": None},
    ],
)
def test_what_is_only_unusual_loses_nothing(change):
    signs = replace(GOOD, **change)
    assert words_of(signs) == []
    assert Verdict.of(0.4, signs) == Verdict(0.4, signs, 1.0, None)


def test_an_error_that_the_own_score_contradicts_is_not_believed():
    signs = replace(GOOD, excess=0.6, most_excess=0.05)
    terms = Verdict.of(0.9, signs)
    assert terms.trust == 1
    assert terms.believed == pytest.approx(0.3)
    assert terms.believed_excess == 0
    assert words_of(signs) == ["it claims an error that its own score contradicts"]
    # Rounding may carry a score past 1; no error is less than 0.
    assert Verdict.of(0.9, replace(signs, excess=0.9 + 1e-6)).believed == 0
    assert Verdict.of(None, signs).believed is None
    assert Claim(None, 0.5, ()).excess is None
    # Honest sites may claim a little more than is believed; they keep what is.
    little = Verdict.of(0.4, replace(signs, excess=0.2))
    assert little.believed == pytest.approx(0.25)
    assert words_of(little.signs) == []


def test_alike_sites_share():
    assert replace(GOOD, twins={"b": 1.0}).trust == 0.5
    assert replace(GOOD, twins={"b": 1.0, "c": 1.0}).trust == pytest.approx(1 / 3)
    assert replace(GOOD, twins={"b": 0.2}).trust == pytest.approx(1 / 1.2)
    assert words_of(replace(GOOD, twins={"b": 0.7, "c": 0.2})) == ["its updates are nearly those of b"]
    assert len(replace(GOOD, twins=dict.fromkeys("bcd", 1.0)).flags) == 3
    many = replace(GOOD, twins=dict.fromkeys("bcde", 1.0))
    assert words_of(many) == ["its updates are nearly those of several others"]


def test_one_repeated_case_is_told_from_cases_that_all_fail_alike():
    assert Claim(0.5, 0.52, (0.52, 0.52, 0.52), 0.6, was_uniform=True).is_of_one_case
    assert not Claim(0.5, 0.5, (0.5, 0.5, 0.5), 0.5, was_uniform=True).is_of_one_case
    assert not Claim(0.5, 0.5, (0.5, 0.51), 0.6, was_uniform=True).is_of_one_case
    assert not Claim(0.5, 0.5, (), 0.6, was_uniform=True).is_of_one_case
    assert not Claim(0.5, 0.5, (0.5, 0.5), was_uniform=True).is_of_one_case
    assert not Claim(0.5, None, (0.5, 0.5), 0.6, was_uniform=True).is_of_one_case
    # The round in which all predictions become empty.
    assert not Claim(0.0, 1.0, (1.0, 1.0), 0.93, was_uniform=False).is_of_one_case


def test_an_absent_suspect_stays_one():
    bad = Verdict.of(0.5, replace(GOOD, agreement=-0.6))
    good = Verdict.of(0.5, GOOD)
    assert suspects_after((), {"a": good, "b": bad}) == ("b",)
    assert suspects_after(("b",), {"a": good}) == ("b",)
    assert suspects_after(("b",), {"a": good, "b": good}) == ()
    assert suspects_after(("f", "b", "d"), {"e": bad, "a": bad, "c": bad}) == ("a", "b", "c", "d", "e", "f")


def test_only_who_went_against_the_others_is_suspected():
    still = Verdict.of(0.5, replace(GOOD, length=0.0))
    assert still.trust == 0
    assert suspects_after((), {"a": still}) == ()


def test_two_sites_have_no_majority():
    updates = [Params(layout(4), np.array(v, np.float32)) for v in ([1, 0, 0, 0], [-1, 0, 0, 0])]
    zero_model = Params(layout(4), np.zeros(4, np.float32))
    kept = sketches_with({}, {site: sketch(u.vector) for site, u in zip("ab", updates, strict=True)}, [0.0] * 64)
    claims = dict.fromkeys("ab", Claim(0.5, None, ()))
    signs = look(Updates("ab", gram(updates, zero_model), kept, claims, {"a": 0.5, "b": 0.5}))
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
    assert trust_in(attacked, RARE) == 1
    assert attacked.shares[RARE] >= 0.9 * honest.shares[RARE]


def test_a_long_update_does_not_make_the_other_of_two_stand_still():
    def longer(site, k, update, error, score, sent, before):
        return 5000 * update, error, score

    state = run(longer, absent=("c", "d", "e", "f"), n_rounds=4)
    assert trust_in(state, "a") == 1
    assert state.shares["a"] > 0.2


def test_noise_that_leaves_before_it_is_known_keeps_little():
    honest = run(n_rounds=30)
    for n in (1, 2, 3, 4):
        credit = Credit({**honest.credit, "b": run(noise, n_rounds=n).credit["b"]})
        assert Guarded(FedCE()).shares(credit)["b"] <= 1.1 * honest.shares["b"]
        assert FedCE().shares(credit)["b"] == FedCE().weigh(credit, dict.fromkeys(credit))["b"]


def test_a_claimed_novelty_is_believed_as_far_as_the_server_measured_it():
    assert believed_novelty(2.0, 0.4) == 0.4
    assert believed_novelty(0.46, 0.4) == 0.4
    assert believed_novelty(0.42, 0.4) == 0.42
    assert believed_novelty(0.1, 0.4) == 0.1
    assert believed_novelty(None, 0.4) is None
    assert believed_novelty(2.0, None) == 2.0


def test_three_or_four_sites_have_no_twins():
    for absent in (("b", "c", "d"), ("b", "c")):
        guarded, plain = run(absent=absent), run(absent=absent, algorithm=FedCE())
        assert dict(guarded.shares) == dict(plain.shares)


def test_the_known_bad_have_no_voice():
    """Late in a run honest updates hardly agree; two who undo everything must not turn the median against them."""

    def undo(site, k, update, error, score, sent, before):
        back = before[k - 2] - before[k - 1] if k > 1 else -update
        return 2 * back, error, score

    state = run(undo, ("b", "d"), n_rounds=80)
    assert {site: verdict.trust for site, verdict in state.own.verdicts.items()} == {
        site: 0.0 if site in ("b", "d") else 1.0 for site in SITES
    }
    suspected = Verdict.of(None, replace(GOOD, agreement=-0.6))
    assert suspects_after((), {"b": suspected}) == ("b",)
    vectors = {"a": [1, 0.2], "b": [-1, 0], "c": [1, -0.2], "d": [-1, 0.1], "e": [0.3, 1]}
    updates = [Params(layout(2), np.array(v, np.float32)) for v in vectors.values()]
    kept = sketches_with({}, {site: sketch(u.vector) for site, u in zip(vectors, updates, strict=True)}, [0.0] * 64)
    claims = dict.fromkeys(vectors, Claim(0.5, None, ()))
    products = gram(updates, Params(layout(2), np.zeros(2, np.float32)))
    weights = dict.fromkeys(vectors, 0.2)
    assert look(Updates(list(vectors), products, kept, claims, weights))["e"].agreement < 0.15
    known = Updates(list(vectors), products, kept, claims, weights, suspects=("b", "d"))
    assert look(known)["e"].agreement > 0.4


def at(*degrees):
    """Unit vectors of a plane, as sketches."""
    angles = np.radians(degrees)
    sketches = np.zeros((len(angles), 64), np.float32)
    sketches[:, 0], sketches[:, 1] = np.cos(angles), np.sin(angles)
    return sketches


def seen(updates, kept=None, claims=None, **others):
    """What is seen of sites a, b, ... that send these updates; unless said otherwise each has gone on in a curve."""
    sites, products = "abcdef"[: len(updates)], np.array(updates) @ np.transpose(updates)
    kept = {"": np.zeros((1, 64), np.float32), **dict.fromkeys(sites, at(0, 10, 20)), **(kept or {})}
    claims = {**dict.fromkeys(sites, Claim(0.5, None, ())), **(claims or {})}
    return look(Updates(sites, products, kept, claims, dict.fromkeys(sites, 1 / len(sites)), **others))


def test_a_site_whose_update_was_shortened_owes_its_error_too():
    """Its part entered with another length: it did not move the model by what is known, and could still be silent."""
    said = {"a": Claim(0.8, None, ()), "b": Claim(0.8, 0.3, ()), "c": Claim(0.8, None, ())}
    found = seen(([1, 0], [1, 1], [0, 1]), claims=said, moved={"b": 1.0}, owing={"a", "b"})
    assert [found[site].owes_error for site in "abc"] == [True, False, False]


def test_lengths_are_in_medians_of_the_round():
    def lengths(*updates):
        return [signs.length for signs in seen(updates).values()]

    assert lengths([1, 0], [2, 0], [0, 4]) == [0.5, 1, 2]
    assert lengths([0, 0], [3, 0]) == [0, 1]
    assert lengths([0, 0], [0, 0], [3, 0]) == [0, 0, 1]


def test_agreement_is_with_the_others_and_needs_a_direction():
    signs = seen([[1, 0], [0, 1], [-1, 0], [0.6, 0.8], [0, 0]])
    assert signs["a"].agreement == 0  # The median of 0, -1 and 0.6.
    assert signs["e"].agreement is None


def test_the_mean_agreement_is_of_the_first_five_rounds():
    def mean(round_no, n, before):
        claims = {"a": Claim(0.5, None, (), related=Related(n, before))}
        return seen(np.eye(3), claims=claims, round_no=round_no)["a"].mean_agreement

    assert mean(0, 0, 0.0) == 0
    assert mean(2, 2, 0.6) == pytest.approx(0.4)  # Twice 0.6, and 0 now.
    assert mean(4, 4, 0.5) == pytest.approx(0.4)
    assert mean(5, 5, 0.5) is None
    assert mean(2, 0, 0.0) is None  # It came later.
    assert mean(6, 4, 0.5) == pytest.approx(0.4)  # It was away twice.
    assert mean(10, 4, 0.5) is None


def test_staying_away_once_is_not_enough_to_be_related_to_nobody():
    """The others' first rounds are over; this site's fifth is compared with what they had."""
    claims = {site: Claim(0.5, None, (), related=Related(5, 0.4)) for site in "bcdef"}
    late = {"a": Claim(0.5, None, (), related=Related(4, 0.01)), **claims}
    found = seen(np.eye(6), claims=late, round_no=5)
    assert found["a"].relation == pytest.approx(0.02)
    assert found["a"].is_settled
    assert found["a"].is_unrelated
    assert found["b"].relation is None


def test_the_first_rounds_are_remembered_while_a_site_is_away():
    agreed = {site: Verdict(None, Signs(length=1.0, mean_agreement=0.3)) for site in "ab"}
    once = related_with({}, agreed)
    assert related_with(once, {"b": Verdict(None, Signs(length=1.0, mean_agreement=0.2))}) == {
        "a": Related(1, 0.3),
        "b": Related(2, 0.2),
    }


def test_relation_is_a_part_of_the_others_mean_agreement():
    def relation(*means, suspects=()):
        """Of the first of sites whose mean agreements after the third round, with 0 in it, are these."""
        before = [Related() if mean is None else Related(2, mean * 3 / 2) for mean in means]
        claims = {site: Claim(0.5, None, (), related=one) for site, one in zip("abcdef", before, strict=False)}
        return seen(np.eye(len(means)), claims=claims, suspects=suspects, round_no=2)["a"].relation

    assert relation(0.1, 0.2, 0.4) == pytest.approx(0.25)  # Of two others the higher.
    assert relation(0.1, 0.2, 0.4, 0.8) == pytest.approx(0.25)
    assert relation(0.1, 0.2, 0.4, 0.1, suspects=("d",)) == pytest.approx(0.25)
    assert relation(0.03, 0.02, 0.06) == pytest.approx(0.5)
    assert relation(0.03, 0.02, 0.04) is None
    assert relation(0.1, 0.4, None) is None  # One other is no majority.


def test_five_rounds_settle_a_relation():
    def settled(n: int) -> bool:
        return seen(np.eye(3), claims={"a": Claim(0.5, None, (), related=Related(n, 0.1))}, round_no=n)["a"].is_settled

    assert [settled(n) for n in range(2, 6)] == [False, False, True, True]


STRAIGHT = at(0, 0, 0)


@pytest.mark.parametrize(
    ("own", "others", "coherence"),
    [
        (at(0, 60, 120), [STRAIGHT] * 2, 0.5),
        (at(0, 60, 120), [at(0, 60, 120)] * 2, 1.0),
        (at(0, 90, 90, 90), [STRAIGHT] * 2, 2 / 3),
        (at(90, 0, 0, 0, 0), [STRAIGHT] * 2, 1.0),
        (at(0, 0), [STRAIGHT] * 2, None),
        (STRAIGHT, [at(0)] * 2, None),
        (at(0, 60, 120), [STRAIGHT, at(0, 60, 120)], 0.5 / 0.75),
        (at(0, 60, 120), [STRAIGHT, STRAIGHT, at(0, 90, 180)], 0.5),
        (STRAIGHT, [at(0, 66, 132)] * 2, 1 / np.cos(np.radians(66))),
        (STRAIGHT, [at(0, 67, 134)] * 2, None),
    ],
)
def test_coherence_is_of_the_last_four_updates_and_a_part_of_the_others_median(own, others, coherence):
    kept = dict(zip("abcd", [own, *others], strict=False))
    found = seen(np.eye(len(kept)), kept)["a"].coherence
    assert found == (None if coherence is None else pytest.approx(coherence, abs=1e-6))


def test_a_turn_is_seen_where_the_others_go_on():
    turned = at(0, 10, 130)
    signs = seen(np.eye(3), {"a": turned})["a"]
    assert signs.turn == pytest.approx(-0.5)
    assert signs.is_adverse
    assert seen(np.eye(3), {"a": turned, "b": at(0, 67, 134), "c": at(0, 67, 134)})["a"].turn is None


@pytest.mark.parametrize(
    ("own", "models", "repetition"),
    [
        (at(0, 30, 60, 0), at(0), 1.0),
        (at(0, 30, 60, 90), at(0), np.cos(np.radians(30))),
        (at(90), np.cumsum(at(0, 90), axis=0), 1.0),
        (at(270), np.cumsum(at(0, 90), axis=0), 1.0),
        (at(45), np.cumsum(at(0, 90), axis=0), np.cos(np.radians(45))),
        (at(0), at(0), None),
        (at(0), np.array([[0.0] * 64, [np.inf] * 64], np.float32), None),
    ],
)
def test_repetition_is_of_own_updates_and_of_the_last_step_forth_and_back(own, models, repetition):
    found = seen(np.eye(3), {"a": own, "": models})["a"].repetition
    assert found == (None if repetition is None else pytest.approx(repetition))


@pytest.mark.parametrize(("n_rounds", "is_known"), [(19, True), (21, False)])
def test_an_update_is_known_again_after_nineteen_rounds(n_rounds, is_known):
    kept = {}
    for k in [*range(n_rounds), 0]:
        kept = sketches_with(kept, {"a": np.eye(64)[k]}, [0.0] * 64)
    assert (seen(np.eye(3), {"a": kept["a"]})["a"].repetition == 1) == is_known


def test_an_update_is_known_again_after_an_absence():
    kept = {}
    for site in ("a", "b", "a"):
        kept = sketches_with(kept, {site: np.eye(64)[0]}, [0.0] * 64)
    assert seen(np.eye(3), {"a": kept["a"]})["a"].repetition == 1


def alike(cosine, n_sites=5):
    """Updates at right angles, apart from the first two."""
    updates = np.eye(n_sites)
    updates[1, :2] = cosine, np.sqrt(1 - cosine**2)
    return updates


KNOWN = {
    "a": Claim(0.5, None, (), rounds_alike={"b": 2}),
    "b": Claim(0.5, None, (), rounds_alike={"a": 2}),
}
"""Two sites that were alike in the last two rounds."""
OWN = np.cos(np.radians(10))
"""Of a site that goes on in a curve, each update with the one before."""


@pytest.mark.parametrize(("likeness", "much"), [(0.89, None), (0.95, 0.5), (1.0, 1.0), (1.01, 1.0)])
def test_two_of_five_are_alike_as_far_as_each_is_like_itself_a_round_before(likeness, much):
    signs = seen(alike(likeness * OWN), claims=KNOWN)
    assert signs["a"].likeness == pytest.approx(likeness)
    assert signs["a"].twins == ({} if much is None else {"b": pytest.approx(much, abs=1e-6)})
    assert signs["c"].twins == {}


def test_who_is_bad_or_new_is_nobodys_twin():
    assert seen(alike(0.99, 6), claims=KNOWN)["a"].twins == {"b": 1.0}
    assert seen(alike(0.99, 6), claims=KNOWN, suspects=("b",))["a"].twins == {}
    assert seen(alike(0.99), dict.fromkeys("abcde", at(0)), claims=KNOWN)["a"].twins == {}


def test_two_sites_share_after_three_rounds_in_a_row_and_then_their_past_too():
    def after(n, round_no=10):
        claims = {"a": Claim(0.5, None, (), rounds_alike={"b": n}), "b": Claim(0.5, None, (), rounds_alike={"a": n})}
        signs = seen(alike(0.99), claims=claims, round_no=round_no)["a"]
        return signs.rounds_alike.get("b", 0), signs.trust, signs.past

    assert after(0) == (1, 1.0, 1.0)
    assert after(1) == (2, 1.0, 1.0)
    assert after(2) == (3, 0.5, 0.5)
    assert after(3) == (4, 0.5, 1.0), "the past is shared once"
    assert after(2, round_no=9) == (0, 1.0, 1.0), "in the first ten rounds all may be alike"


def test_a_twin_that_is_found_late_is_paid_once_for_all_rounds():
    fair = {site: judged(0.5, 0.5) for site in "abcde"}
    found = {site: judged(0.5, 0.5, trust=0.5, past=0.5) if site in "ab" else term for site, term in fair.items()}
    algorithm = Guarded(FedCE())
    late = algorithm.earn(algorithm.earn(algorithm.earn(Credit(), fair), fair), found)
    once = {site: judged(0.5, 0.5, trust=0.5) if site in "ab" else term for site, term in fair.items()}
    always = algorithm.earn(algorithm.earn(algorithm.earn(Credit(), once), once), once)
    assert algorithm.shares(late) == pytest.approx(algorithm.shares(always))


def test_of_sites_that_hardly_go_on_in_a_direction_only_copies_are_twins():
    """A cosine of a site with itself that is near the background says nothing about others."""
    wavering = dict.fromkeys("ab", at(0, 75, 150))
    signs = seen(alike(0.9, 6), wavering)
    assert (signs["a"].likeness, signs["a"].twins) == (pytest.approx(0.0, abs=1e-6), {})
    assert seen(alike(0.999999, 6), wavering)["a"].twins == {"b": 1.0}


def test_five_who_send_one_update_are_one_site():
    signs = seen([[1, 0]] * 5)
    assert [found.trust for found in signs.values()] == pytest.approx([0.2] * 5)


class Altered:
    """FedCE with replies that were changed on their way."""

    def __init__(self, change, algorithm=None):
        self.change, self.algorithm = change, Guarded(algorithm or FedCE())
        self.begin = self.algorithm.begin

    def round(self, state, ask):
        replies = [self.change(state, reply) for reply in ask(())]
        return self.algorithm.round(state, lambda tasks: replies)


@pytest.mark.parametrize(("since", "trust"), [(1, 0.0), (2, 1.0)])
def test_one_repeated_case_is_known_after_two_rounds_of_errors(since, trust):
    def repeat(state, reply):
        is_repeated = reply.site == "b" and state.round_no >= since
        return replace(reply, error_replicates=(reply.error_without,) * 4) if is_repeated else reply

    assert trust_in(run(n_rounds=3, algorithm=Altered(repeat)), "b") == trust


def test_the_old_model_sent_back_is_known_again():
    models = {}

    def send_back(state, reply):
        models[state.round_no] = state.params
        return replace(reply, params=models[state.round_no - 1]) if reply.site == "b" and state.round_no else reply

    state = run(n_rounds=2, algorithm=Altered(send_back))
    assert "it sent an old update again" in words_of(state.own.verdicts["b"].signs)


def test_the_weight_of_a_site_is_its_part_in_the_model_that_it_was_sent():
    first, second = run(n_rounds=1), run(n_rounds=2)
    entered = [{site: verdict.signs.weight for site, verdict in run.own.verdicts.items()} for run in (first, second)]
    assert entered == [dict.fromkeys(SITES, 0.0), dict(first.rho)]


def test_statistics_are_no_part_of_an_update():
    def sketches(*statistics):
        models = [params([*update, value], n_buffers=1) for update, value in zip(np.eye(3), statistics, strict=True)]
        replies = [Reply(site, 0, 10, model, score=0.5) for site, model in zip("abc", models, strict=True)]
        start = params([0.0] * 4, n_buffers=1)
        algorithm = Guarded(FedCE())
        return algorithm.round(algorithm.begin("abc", start), lambda tasks: replies).own.sketches

    plain, shifted = sketches(0.0, 0.0, 0.0), sketches(5.0, -5.0, 1.0)
    assert all((plain[name] == shifted[name]).all() for name in ("", "a", "b", "c"))


def test_where_all_are_bad_novelty_is_as_without_the_guard():
    watched, plain = (run(replay, SITES, 2, guarded(FedCE(), guard)) for guard in ("standard", "off"))
    assert {trust_in(watched, site) for site in SITES} == {0.0}
    assert [watched.measured[site]["cos"] for site in SITES] == [plain.measured[site]["cos"] for site in SITES]


def test_claiming_novelty_pays_nothing():
    def claim(liars):
        def say(state, reply):
            last = state.own.verdicts[reply.site].signs.novelty if state.own.verdicts else None
            return replace(reply, novelty=2.0 if reply.site in liars and state.round_no else last)

        return Altered(say, FedCEAtSites())

    honest, lied = run(algorithm=claim(())), run(algorithm=claim(("b",)))
    assert dict(lied.shares) == dict(honest.shares)
    assert set(honest.shares) == set(SITES)
    assert trust_in(run(flip, algorithm=claim(())), "b") == 0


def test_who_is_bad_earns_nothing_and_loses_what_it_earned_on_probation():
    before = Credit({"a": Account(5, (6.0,)), "b": Account(2, (4.0,)), "c": Account(1, (1.0,))})
    terms = {"a": bad(), "b": bad(), "c": judged(0.4, 0.3), "d": judged(0.6, 0.5, trust=0.5)}
    earned = Guarded(FedCE(combine="cos")).earn(before, terms)
    assert earned["a"] == Account(6, (6.0,))
    assert earned["b"] == Account(3, (0.0,))
    # Of two good sites' credit c has 0.4 and d 0.6; an average site earns 1.
    assert earned["c"].rounds == 2
    assert earned["c"].value == pytest.approx(1.0 + 0.8)
    assert earned["d"].value == pytest.approx(0.5 * 1.2)
    # In NVFlare's order an account holds both terms.
    both = Credit({"a": Account(5, (1.5, 0.9)), "b": Account(2, (1.0, 0.6)), "c": Account(1, (0.5, 0.4))})
    summed = Guarded(FedCERunningMeans(combine="cos")).earn(both, terms)
    assert summed["a"] == Account(6, (1.5, 0.9))
    assert summed["b"] == Account(3, (0.0, 0.0))
    assert summed["c"].totals == pytest.approx((0.5 + 0.4, 0.4 + 0.3))
    assert summed["d"].totals == pytest.approx((0.5 * 0.6, 0.5 * 0.5))


def test_an_error_that_was_not_measured_is_the_mean_of_the_sites_own():
    before = Credit({"a": Account(2, (1.0, 0.6))})
    earned = FedCERunningMeans(combine="cos").earn(before, {"a": BothTerms(10, 0.5), "b": BothTerms(10, 0.5)})
    assert earned["a"].totals[1] == pytest.approx(0.6 + 0.3)
    assert earned["b"].totals[1] == 1.0


def test_whoever_is_new_counts_as_at_most_the_least_of_the_known():
    totals = {"a": (5, 10.0), "b": (5, 5.0), "c": (2, 10.0), "d": (4, 2.0), "e": (9, 0.0)}
    earned = Credit({site: Account(n, (total,)) for site, (n, total) in totals.items()})
    # Means 2, 1, 5, 0.5 and 0: c counts as two fifths of b's, d as four fifths of its own.
    expected = {"a": 2 / 3.8, "b": 1 / 3.8, "c": 0.4 / 3.8, "d": 0.4 / 3.8, "e": 0.0}
    assert Guarded(FedCE()).shares(earned) == pytest.approx(expected)
