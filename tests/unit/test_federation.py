"""The border: replies that can't be used are refused with a reason, and the round goes on."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedce.algorithms import FedAvg, FedCE, FedCEAtSites
from fedce.base.errors import ReplyError, RunError
from fedce.core.algorithm import Cleared, State
from fedce.core.credit import Account, Credit
from fedce.core.draw import Draw, draws_of
from fedce.core.messages import Reply, Task
from fedce.core.params import Entry, Layout, Params
from fedce.core.site import Memory, without_site
from fedce.federation.asking import Rules
from fedce.federation.checkpoint import load_state, save_state
from fedce.federation.loop import rounds
from fedce.guard import Guarded
from fedce.guard.border import (
    FAR_STATISTICS,
    HARMFUL_STATISTICS,
    STANDARD,
    Limits,
    outliers_of,
    problem_of,
    replicates_missing,
    shortened,
)
from fedce.guard.sign import ZERO_UPDATE
from fedce.guard.statistics import FAR, batch_statistics, distances, is_harmful, trial_of
from support import FakeFederation, FakeSite, params

TASK = Task("a", 3, params([1.0, 2.0]))
GOOD = Reply("a", 3, 10, params([1.5, 2.0]), score=0.5, error_without=0.3, novelty=1.2, loss=0.4)


def test_a_good_reply_has_no_problem():
    assert problem_of(GOOD, TASK) is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"round_no": 2}, "replied for round 2 in round 3"),
        ({"n_train": 0}, "0 training images"),
        ({"n_train": 10**9 + 1}, "claims 1000000001 training images"),
        ({"n_train": True}, "claims True training images"),
        ({"score": 1.5}, "score 1.5 is not in [0, 1]"),
        ({"score": 1.0000005}, "score 1.0000005 is not in [0, 1]"),
        ({"score": True}, "score True is not in [0, 1]"),
        ({"novelty": -1e-8}, "novelty -1e-08 is not in [0, 2]"),
        ({"seconds": float("inf")}, "number of seconds inf is not in [0, 1e+09]"),
        ({"error_without": 1e6}, "error 1000000.0 is not in [0, 1]"),
        ({"error_without": float("nan")}, "error nan"),
        ({"novelty": -0.5}, "novelty -0.5"),
        ({"novelty": float("inf")}, "novelty inf"),
        ({"params": params([1.0, 2.0, 3.0])}, "another layout"),
        ({"params": params([float("nan"), 2.0])}, "not finite"),
        ({"params": params([float("inf"), 2.0])}, "not finite"),
    ],
)
def test_a_bad_reply_is_refused_with_its_reason(change, reason):
    assert reason in problem_of(replace(GOOD, **change), TASK)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"params": None}, "sent no model"),
        ({"score": None}, "sent no validation score"),
        ({"loss": float("nan")}, "loss nan is not in [-1e+06, 1e+06]"),
        ({"loss_before": 1e20}, "loss 1e+20 is not in [-1e+06, 1e+06]"),
        ({"n_train": 2.5}, "claims 2.5 training images"),
        ({"scores": (0.5,)}, "sent 1 scores for 0 models"),
    ],
)
def test_an_incomplete_reply_is_refused(change, reason):
    assert reason in problem_of(replace(GOOD, **change), TASK)


def test_replicates_are_left_out_only_by_sites_that_have_too_few_cases():
    assert replicates_missing(GOOD, n_cases=4) is None
    assert replicates_missing(GOOD, n_cases=0) is None  # Not known.
    assert replicates_missing(replace(GOOD, error_without=None), n_cases=5) is None
    assert replicates_missing(replace(GOOD, error_replicates=(0.3,) * 20), n_cases=5) is None
    assert replicates_missing(GOOD, n_cases=5) == "sent no replicates of its error; with 5 validation cases it has 20"


@pytest.mark.parametrize(("limits", "is_rejected"), [(STANDARD, True), (None, False)])
def test_a_site_that_hides_its_replicates_is_rejected_by_the_guard_alone(limits, is_rejected):
    engine = ScriptedEngine(FedCE(), sites(), lambda reply: replace(reply, error_replicates=()))
    rules = Rules(limits=limits, n_cases=lambda site: 9 if site == "b" else 4)
    first, second = rounds(FedCE(), engine.federation.state, engine, 2, rules)
    assert first.rejected == {}
    assert ("b" in second.rejected) == is_rejected


def test_a_second_reply_of_a_site_does_not_count():
    class Twice(ScriptedEngine):
        def ask(self, tasks):
            return [reply for reply in super().ask(tasks) for _ in range(1 + (reply.site == "b"))]

    engine = Twice(FedAvg(), sites(), lambda reply: reply)
    done = next(rounds(FedAvg(), engine.federation.state, engine, 1))
    assert done.rejected == {"b": "replied twice"}
    np.testing.assert_allclose(done.state.params.vector, [2 / 3, 2 / 3])


def test_who_was_not_asked_is_refused():
    assert problem_of(GOOD, None) == "was not asked"


class ScriptedEngine:
    """Fake sites, with some replies changed on the way."""

    def __init__(self, algorithm, sites, change, start=None):
        self.federation = FakeFederation(algorithm, sites, start)
        self.change = change

    def here(self, sites):
        return tuple(site for site in sites if site not in self.federation.absent)

    def sites(self, known):
        return tuple(known)

    def ask(self, tasks):
        return [self.change(reply) for reply in reversed(self.federation.ask(tasks))]


def sites():
    return [FakeSite(name, update) for name, update in zip("abc", ([1, 0], [0, 1], [1, 1]), strict=True)]


def poison(reply):
    return replace(reply, params=params([float("nan"), 0])) if reply.site == "b" else reply


@pytest.mark.parametrize("algorithm", [FedAvg(), Guarded(FedCE()), Guarded(FedCEAtSites())])
def test_one_poisoned_reply_does_not_reach_the_model(algorithm):
    engine = ScriptedEngine(algorithm, sites(), poison)
    for done in rounds(algorithm, engine.federation.state, engine, 4):
        assert done.rejected == {"b": "its model holds values that are not finite"}
        assert done.state.rho.keys() == {"a", "c"}
        assert np.isfinite(done.state.params.vector).all()
    assert sum(done.state.shares.values()) == pytest.approx(1)


def test_too_few_usable_replies_stop_the_run():
    engine = ScriptedEngine(FedAvg(), sites(), lambda reply: replace(reply, score=7.0))
    with pytest.raises(ReplyError, match="round 1: 0 usable replies, at least 2 needed"):
        next(rounds(FedAvg(), engine.federation.state, engine, 1))


def test_a_zero_update_is_flagged_and_earns_next_to_nothing():
    members = [FakeSite("a", [1, 0]), FakeSite("b", [0, 1]), FakeSite("lazy", [0, 0])]
    algorithm = FedCE()  # These sites always send the same.
    engine = ScriptedEngine(algorithm, members, lambda reply: reply)
    *_, done = rounds(algorithm, engine.federation.state, engine, 3)
    assert done.flags == {"lazy": (ZERO_UPDATE,)}
    assert done.state.shares["lazy"] < 1e-4


def test_a_state_survives_the_disk(tmp_path: Path):
    state = State(
        sites=("a", "b"),
        params=params([1.0, 2.0]),
        round_no=5,
        rho={"a": 0.1 + 0.2, "b": 1 / 3},
        shares={"a": 0.5, "b": 0.5},
        credit=Credit({"a": Account(3, (0.1, 0.2))}),
        measured={"a": {"cos": 0.1}},
    )
    save_state(tmp_path / "state.safetensors", state)
    found = load_state(tmp_path / "state.safetensors", state)
    assert replace(found, params=state.params) == state
    assert found.params.digest == state.params.digest
    with pytest.raises(RunError, match="another network"):
        load_state(tmp_path / "state.safetensors", State((), params([1.0])))


def long_reply(site, length, n_train=10):
    return Reply(site, 0, n_train, params([float(length), 0.0]), score=0.5)


def too_long(most, *replies):
    tasks = {reply.site: Task(reply.site, 0, params([0.0, 0.0])) for reply in replies}
    return {site: float(model.vector[0]) for site, model in shortened(replies, tasks, most).items()}


def test_an_update_that_is_much_longer_than_the_median_is_shortened():
    normal = [long_reply("a", 1.0), long_reply("b", 1.2), long_reply("c", 0.8)]
    assert too_long(5, *normal, long_reply("d", 4.9)) == {}
    assert too_long(5, *normal, long_reply("d", 5.6)) == {"d": pytest.approx(5.5)}
    assert too_long(5, *normal, long_reply("d", -5.6)) == {"d": pytest.approx(-5.5)}
    assert too_long(10, *normal, long_reply("d", 5.6)) == {}
    assert too_long(float("inf"), *normal, long_reply("d", 1e30)) == {}
    assert too_long(5, *normal, long_reply("d", 1e15)) == {"d": pytest.approx(5.5)}


def test_a_length_that_can_not_be_measured_is_rejected():
    replies = [long_reply("a", 1.0), long_reply("b", 1.2), long_reply("c", 0.8), long_reply("d", 1e30)]
    tasks = {reply.site: Task(reply.site, 0, params([0.0, 0.0])) for reply in replies}
    assert outliers_of(replies, tasks, 5) == {"d": "its update is too long for its length to be measured"}


def test_a_number_of_images_that_a_site_says_it_has_does_not_let_it_go_further():
    normal = [long_reply("a", 1.0), long_reply("b", 1.0), long_reply("c", 1.0)]
    assert too_long(5, *normal, long_reply("d", 19.0, n_train=10**9)) == {"d": pytest.approx(5.0)}


def test_statistics_may_not_be_far_out_either():
    def reply(site, statistic):
        return Reply(site, 0, 10, params([1.0, statistic], n_buffers=1), score=0.5)

    def found(last):
        replies = [reply("a", 1.0), reply("b", 2.0), reply("c", 3.0), reply("d", last)]
        tasks = {one.site: Task(one.site, 0, params([0.0, 0.0], n_buffers=1)) for one in replies}
        return outliers_of(replies, tasks, 5)

    assert found(200.0) == {}
    assert found(1e9) == {"d": "its change of statistics is more than 100 times as long as the median"}


def normalised(weight=1.0, mean=0.0, variance=1.0, count=5.0):
    """A model with one batch norm."""
    kinds = (("weight", "trainable"), ("running_mean", "buffer"), ("running_var", "buffer"))
    entries = [Entry(f"norm.{name}", (1,), kind) for name, kind in (*kinds, ("num_batches_tracked", "counter"))]
    return Params(Layout(tuple(entries)), np.array([weight, mean, variance, count], np.float32))


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (normalised(variance=-1e-3), "a negative variance"),
        (normalised(count=-1), "whole numbers"),
        (normalised(count=2.5), "whole numbers"),
        (normalised(count=1e9), "whole numbers up to 16777216"),
    ],
)
def test_statistics_that_no_training_gives_are_refused(model, reason):
    task = Task("a", 0, normalised())
    assert problem_of(Reply("a", 0, 10, normalised(variance=0, count=2**24), score=0.5), task) is None
    assert reason in problem_of(Reply("a", 0, 10, model, score=0.5), task)


def test_a_count_of_batches_cant_run_away():
    def found(count, most=5.0):
        models = [normalised(1.0, count=15), normalised(1.1, count=15), normalised(1.2, count=count)]
        replies = [Reply(site, 0, 10, model, score=0.5) for site, model in zip("abc", models, strict=True)]
        return outliers_of(replies, dict.fromkeys("abc", Task("a", 0, normalised(0.0))), most)

    assert found(9_900) == {}
    assert found(10_100) == {"c": "its model counts more than 1000 times as many new batches as the median"}
    assert found(10_100, float("inf")) == {}


def likes_small_variances(w: Params) -> float:
    """A site that is served worse the larger the model's running variance is."""
    return max(0.0, 0.9 - float(w.vector[2]) / 10)


def members_with(variance: float, score=likes_small_variances) -> list[FakeSite]:
    honest = [FakeSite(name, [i, 0, i, 0], score=score) for i, name in enumerate("abc", 1)]
    return [*honest, FakeSite("d", [4, 0, variance - 1, 0], score=score)]


def first_round(members, limits=STANDARD):
    engine = ScriptedEngine(FedAvg(), members, lambda reply: reply, normalised(0.0))
    return next(rounds(FedAvg(), engine.federation.state, engine, 1, Rules(limits=limits)))


def test_whose_statistics_did_not_enter_leaves_them_in_what_it_takes_itself_out_of():
    done = first_round(members_with(9))
    assert done.rejected == {}
    assert done.flags == {"d": (HARMFUL_STATISTICS,)}
    assert done.harms == {"d": pytest.approx((9 - 3.5) / 4 / 10)}
    assert done.state.params.vector.tolist() == pytest.approx([2.5, 0.0, (2 + 3 + 4 + 3.5) / 4, 5.0])
    sent = normalised(4.0, variance=9)
    without = without_site(FedAvg().task(done.state, "d"), Memory(0, sent))
    assert without.vector[0] == pytest.approx((1 + 2 + 3) / 3)
    assert without.vector[2] == done.state.params.vector[2]
    others = without_site(FedAvg().task(done.state, "a"), Memory(0, normalised(1.0, variance=2.0)))
    assert others.vector[2] == pytest.approx((3 + 4 + 3.5) / 3)


@pytest.mark.parametrize(
    ("members", "limits", "is_asked"),
    [
        (members_with(9, score=lambda w: 0.5), STANDARD, True),  # Far out, and nobody is served worse by it.
        (members_with(9), None, False),  # The guard is off.
        (members_with(9), Limits(statistics=False), False),
        (members_with(9)[2:], STANDARD, False),  # Two have no majority.
        (members_with(4), STANDARD, False),  # As the others': nobody is asked.
    ],
)
def test_statistics_that_harm_nobody_are_used_to_the_last_bit(members, limits, is_asked):
    done = first_round(members, limits)
    assert done.flags == {}
    assert bool(done.harms) is is_asked
    variance = sum(1 + float(site.update[2]) for site in members) / len(members)
    assert float(done.state.params.vector[2]) == np.float32(variance)


class Seeing(FakeSite):
    """A site whose batches have these means and variances, one of each for every round."""

    def __init__(self, name, variances, means=None, score=lambda w: 0.5):
        super().__init__(name, [1, 0, 0, 9], score=score)
        self.variances, self.means = variances, means or [0.0] * len(variances)

    def train(self, w, round_no, moments, pull=None):
        trained = super().train(w, round_no, moments, pull)
        kept = 0.9**9  # Nine steps take over most of what was seen.
        for i, seen in ((1, self.means[round_no]), (2, self.variances[round_no])):
            trained.params.vector[i] = kept * w.vector[i] + (1 - kept) * seen
        return trained


def rounds_with(variances, means=None, score=lambda w: 0.5, says=lambda reply: reply):
    """The rounds of a federation in which site d sees these statistics, and the others mean 0 and variance 1."""
    members = [*(Seeing(name, [1.0] * len(variances), score=score) for name in "abc")]
    members.append(Seeing("d", variances, means, score))
    engine = ScriptedEngine(FedAvg(), members, says, normalised(0.0))
    return list(rounds(FedAvg(), engine.federation.state, engine, len(variances)))


def asked_about(variances, means=None, score=lambda w: 0.5):
    """The rounds in which the other sites are asked about site d."""
    return [done.round_no for done in rounds_with(variances, means, score) if "d" in done.harms]


def test_nobody_is_asked_again_about_statistics_that_were_found_harmless_lately():
    assert asked_about([5.0] * 12) == [0, 5, 10], "every fifth round"
    assert asked_about([5.0, 5.2, 5.4, 5.2, 5.0]) == [0], "a little away from what was judged"
    assert asked_about([5.0, 5.0, 9.0, 9.0]) == [0, 2], "other statistics are judged at once"
    assert asked_about([5.0, 5.2, 5.4, 5.55, 5.7]) == [0, 4], "small steps away from what was judged add up"
    assert asked_about([5.0] * 4, means=[0.0, 0.0, 3.0, 3.0]) == [0, 2], "means count too"


def test_statistics_are_not_cleared_while_harm_could_not_be_seen():
    assert asked_about([5.0] * 4, score=lambda w: 0.15) == [0, 1, 2, 3], "too low a score to lower"
    assert asked_about([5.0] * 4, score=lambda w: 0.5 - 0.03 * float(w.vector[2])) == [0, 1, 2, 3], "a little harm"
    assert rounds_with([5.0] * 4, score=lambda w: 0.5 - 0.03 * float(w.vector[2]))[-1].flags == {}


def test_whose_statistics_are_left_out_is_asked_about_in_every_round():
    found = rounds_with([9.0] * 4, score=likes_small_variances)
    assert [done.state.strangers for done in found] == [("d",)] * 4
    assert [done.state.cleared for done in found] == [{}] * 4


def test_without_voters_nothing_is_cleared():
    mute = lambda reply: replace(reply, scores=()) if reply.site in "ab" else reply  # noqa: E731
    assert all(done.state.cleared == {} for done in rounds_with([5.0] * 3, says=mute))


def test_what_was_cleared_outlives_a_checkpoint(tmp_path):
    state = rounds_with([5.0])[-1].state
    save_state(tmp_path / "state", state)
    loaded = load_state(tmp_path / "state", FedAvg().begin("abcd", normalised(0.0)))
    assert loaded.cleared.keys() == {"d"}
    assert (loaded.cleared["d"].round_no, loaded.cleared["d"].weight) == (0, 0.25)
    np.testing.assert_array_equal(loaded.cleared["d"].statistics, state.cleared["d"].statistics)


def test_who_has_more_weight_than_when_it_was_judged_is_judged_again():
    def asked(weights):
        models = [normalised(0.0, variance=variance, count=14) for variance in (1.0, 1.0, 1.0, 4.0)]
        replies = [Reply(site, 1, 10, model, score=0.5) for site, model in zip("abcd", models, strict=True)]
        starts = dict.fromkeys("abcd", normalised(0.0))
        seen = batch_statistics(models[-1], starts["d"])
        trial = trial_of(replies, starts, dict(zip("abcd", weights, strict=True)), {"d": Cleared(0, 0.1, seen)})
        return trial is not None and trial.sites == ("d",)

    assert not asked([0.3, 0.3, 0.3, 0.1])
    assert asked([0.25, 0.25, 0.25, 0.25])


def test_one_liar_among_the_scorers_neither_saves_nor_ruins_statistics():
    def lies(reply):
        return replace(reply, scores=tuple(reversed(reply.scores))) if reply.site == "a" else reply

    bad = ScriptedEngine(FedAvg(), members_with(9), lies, normalised(0.0))
    assert next(rounds(FedAvg(), bad.federation.state, bad, 1)).flags == {"d": (HARMFUL_STATISTICS,)}

    def slanders(reply):
        return replace(reply, scores=(1.0, *(0.0 for _ in reply.scores[1:]))) if reply.scores else reply

    accused = members_with(9, score=lambda w: 0.5)
    good = ScriptedEngine(FedAvg(), accused, lambda r: slanders(r) if r.site == "a" else r, normalised(0.0))
    assert next(rounds(FedAvg(), good.federation.state, good, 1)).flags == {}


def test_statistics_that_no_images_give_are_not_used_and_nobody_is_asked():
    members = members_with(99, score=lambda w: 0.5)
    done = first_round(members)
    assert (done.flags, done.harms) == ({"d": (FAR_STATISTICS,)}, {})
    assert done.far == {"d": pytest.approx(2 * FAR)}, "a channel counts for at most that"
    assert done.state.strangers == ("d",)
    assert done.state.params.vector[2] == pytest.approx((2 + 3 + 4 + 3.5) / 4)
    assert all(site.n_scored == 1 for site in members)


def test_one_channel_that_is_alive_at_one_site_alone_is_not_impossible():
    def model(variances):
        kinds = (("running_mean", "buffer", [0.0] * 16), ("running_var", "buffer", variances))
        entries = [Entry("weight", (1,), "trainable"), *(Entry(f"norm.{name}", (16,), kind) for name, kind, _ in kinds)]
        return Params(Layout(tuple(entries)), np.array([0.0, *(v for *_, values in kinds for v in values)], np.float32))

    def away_by(variances):
        models = [*(model([1e-9] + [1.0] * 15) for _ in range(4)), model(variances)]
        rows = np.array([one.vector[1:].astype(np.float64) for one in models])
        usual = np.median(rows, axis=0)
        return distances(rows, usual, usual, models[0].layout)[-1]

    assert away_by([1e3] + [1.0] * 15) < FAR
    assert away_by([30.0] * 16) > FAR


def test_statistics_are_judged_by_the_batches_that_they_come_from():
    """Two steps take over a fifth of what was seen: a push that is small in the mean is large in what it adds up to."""
    start, after = normalised(0.0, mean=1.0, variance=2.0, count=5), normalised(0.0, mean=1.19, variance=2.19, count=7)
    assert batch_statistics(after, start) == pytest.approx([2.0, 3.0], rel=1e-4)
    assert batch_statistics(normalised(0.0, mean=1.0, variance=0.0, count=7), start) == pytest.approx([1.0, 0.0])


def test_who_was_left_out_comes_back_only_when_its_statistics_do_no_harm():
    assert not is_harmful(0.09, was_harmful=False)
    assert is_harmful(0.11, was_harmful=False)
    assert is_harmful(0.02, was_harmful=True)
    assert not is_harmful(0.0, was_harmful=True)


def test_a_site_that_moves_the_model_without_voters_is_not_judged():
    def silent(reply):
        return replace(reply, scores=()) if reply.site in "ab" else reply

    engine = ScriptedEngine(FedAvg(), members_with(9), silent, normalised(0.0))
    done = next(rounds(FedAvg(), engine.federation.state, engine, 1))
    assert (done.flags, done.harms) == ({}, {})


def test_two_updates_have_no_median():
    assert too_long(5, long_reply("a", 1.0), long_reply("b", 100.0)) == {}


def test_a_scaled_update_is_shortened_and_its_site_has_nothing_to_subtract():
    members = [FakeSite(name, [1, 0.1 * i]) for i, name in enumerate("abcd")]
    scaled = lambda reply: replace(reply, params=params(50 * reply.params.vector)) if reply.site == "d" else reply  # noqa: E731
    engine = ScriptedEngine(FedAvg(), members, scaled)
    done = next(rounds(FedAvg(), engine.federation.state, engine, 1))
    assert [flag.text for flag in done.flags["d"]] == ["its update was far longer than the others' and was shortened"]
    assert done.rejected == {}
    assert done.state.rho["d"] > 0
    assert FedAvg().task(done.state, "d").rho == 0
    assert FedAvg().task(done.state, "a").rho == done.state.rho["a"]


def played(draw, everybody_by_round):
    """Who is drawn in each round."""
    draws, found = {}, []
    for round_no, everybody in enumerate(everybody_by_round):
        draws = draws_of(everybody, draws)
        found.append(draw.sites(draws, round_no))
        draws = {**draws, **{site: draws[site] + 1 for site in found[-1]}}
    return found, draws


@given(st.integers(2, 40), st.integers(2, 50), st.integers(1, 30), st.integers(0, 2**32 - 1))
def test_all_are_drawn_equally_often(n_sites, n_drawn, n_rounds, seed):
    names = [f"site{i}" for i in range(n_sites)]
    found, draws = played(Draw(n_drawn, seed), [names] * n_rounds)
    assert all(len(sites) == len(set(sites)) == min(n_drawn, n_sites) for sites in found)
    assert max(draws.values()) - min(draws.values()) <= 1
    assert found == played(Draw(n_drawn, seed), [names] * n_rounds)[0]


def test_another_seed_draws_others():
    names = [f"site{i}" for i in range(20)]
    assert played(Draw(5, 0), [names])[0] != played(Draw(5, 1), [names])[0]


def test_a_newcomer_is_not_drawn_in_every_round_to_catch_up():
    names = [f"site{i}" for i in range(10)]
    found, _ = played(Draw(5, 0), [*[names] * 8, *[[*names, "late"]] * 4])
    assert sum("late" in sites for sites in found) in (1, 2)


def test_who_is_not_drawn_is_not_asked_and_keeps_its_place():
    engine = ScriptedEngine(FedCE(), sites(), lambda reply: reply)
    found = list(rounds(FedCE(), engine.federation.state, engine, 6, Rules(draw=Draw(2, 0))))
    assert all(set(done.replies) == set(done.asked) and len(done.asked) == 2 for done in found)
    assert found[-1].state.sites == ("a", "b", "c")
    assert found[-1].state.draws == {"a": 4, "b": 4, "c": 4}
    assert {site: account.rounds for site, account in found[-1].state.credit.items()} == {"a": 4, "b": 4, "c": 4}
    assert sum(found[-1].shares.values()) == pytest.approx(1)


def test_who_is_away_is_not_drawn_unless_the_round_would_be_too_small():
    engine = ScriptedEngine(FedCE(), sites(), lambda reply: reply)
    engine.federation.absent = {"b"}
    found = list(rounds(FedCE(), engine.federation.state, engine, 4, Rules(draw=Draw(2, 0))))
    assert all(done.asked == ("a", "c") and done.absent == ("b",) for done in found)
    engine.federation.absent = {"b", "c"}
    with pytest.raises(ReplyError, match="at least 2 needed"):
        next(rounds(FedCE(), found[-1].state, engine, 5, Rules(draw=Draw(2, 0))))
