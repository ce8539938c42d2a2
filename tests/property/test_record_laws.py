"""What the border lets through can be sent, recorded and read back: no number of a site's can end a run for good."""

import json
from dataclasses import replace
from math import inf, nan
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fedce.algorithms import AFL, FedAvg, FedCE, FedCEAtSites, QFedAvg
from fedce.base.errors import ReplyError, RunError
from fedce.base.ranges import LOSS, METRIC, N_REPLICATES, NOVELTY, SCORE
from fedce.core.messages import Evaluation, Measured, Reply, Task
from fedce.core.params import cosine
from fedce.federation.asking import Rules
from fedce.federation.lines import round_line
from fedce.federation.loop import evaluate, rounds
from fedce.guard import Guarded
from fedce.guard.border import problem_of
from fedce.learning.metrics import DICE_ALONE, Measures, Metric
from fedce.record.folder import RunFolder
from fedce.site.wire import reply_form
from support import FakeFederation, FakeSite, params

EDGES = [0.0, -0.0, 5e-324, -5e-324, 1.0, 1.0000000000000002, 1.0000005, 2.0, 2.0000000000000004, 1e6, 1e308, inf, nan]
floats = st.sampled_from([*EDGES, *(-edge for edge in EDGES)]) | st.floats() | st.floats(0, 1) | st.integers()
wholes = st.integers() | st.sampled_from([0, 1, 10**9, 10**9 + 1, 10**400, True])
maybe = st.none() | floats
SITES = ("a", "b", "c")
said = st.fixed_dictionaries(
    {
        "n_train": wholes,
        "score": maybe,
        "error_without": maybe,
        "error_replicates": st.lists(floats, max_size=3).map(tuple) | floats.map(lambda error: (error,) * N_REPLICATES),
        "novelty": maybe,
        "loss": maybe,
        "loss_before": maybe,
        "score_local": maybe,
        "seconds": floats,
    }
)
by_class = st.dictionaries(st.sampled_from("xy"), floats, max_size=2)


@st.composite
def evaluations_of(draw):
    """Anything that a site may say; its metrics are of the classes that its Dice is of."""
    dice = draw(by_class)
    values, counts = ({name: draw(any_value) for name in dice} for any_value in (maybe | st.floats(-2e9, 2e9), wholes))
    metrics = {"m": Measured(values, counts, draw(st.sampled_from(["", "mm", "km"])))} if draw(st.booleans()) else {}
    return Evaluation(draw(floats), dice, draw(maybe), metrics=metrics)


evaluations = evaluations_of()
M = Measures((Metric("m", "M", lambda masks, tolerance: None, "", METRIC),))


class Liars:
    """Sites whose replies are changed on the way."""

    def __init__(self, algorithm, change):
        fakes = [FakeSite(name, update) for name, update in zip(SITES, ([1, 0], [0, 1], [1, 1]), strict=True)]
        self.federation, self.change = FakeFederation(algorithm, fakes), change

    def sites(self, known):
        return tuple(known)

    def here(self, sites):
        return tuple(sites)

    def ask(self, tasks):
        return [self.change(reply) for reply in self.federation.ask(tasks)]


def recorded(folder: Path, entry: dict) -> dict:
    run = RunFolder(folder)
    run.ledger_file.unlink(missing_ok=True)
    run.append(entry)
    return dict(run.ledger().lines[0].content)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from([Guarded(FedCE()), Guarded(FedCEAtSites()), FedAvg(), QFedAvg(q=20), AFL(step=1000)]), said)
def test_a_round_that_the_border_passes_is_recorded_and_read_back(tmp_path, algorithm, claims):
    liars = Liars(algorithm, lambda reply: replace(reply, **claims) if reply.site == "b" else reply)
    for done in rounds(algorithm, liars.federation.state, liars, 3, Rules(detect=True)):
        entry = round_line(done, SITES, ())
        found = recorded(tmp_path, entry)
        assert {**entry, "previous": found["previous"]} == found


@given(evaluations, wholes)
@example(Evaluation(1.0000005, {"x": 0.5}, None), 1)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_evaluation_that_the_border_passes_is_recorded_and_read_back(tmp_path, evaluation, n_train):
    liars = Liars(
        FedAvg(), lambda reply: replace(reply, evaluation=evaluation, n_train=n_train) if reply.site == "b" else reply
    )
    state = FedAvg().begin(SITES, params([0.0, 0.0]))
    measures = M if evaluation.metrics else DICE_ALONE
    replies, rejected = evaluate(FedAvg(), state, liars, SITES, measures=measures)
    assert replies.keys() | rejected.keys() == set(SITES)
    told = {site: reply.evaluation.entry for site, reply in replies.items()}
    entry = {"kind": "end", "time": 0.0, "model": "", "shares": {}, "evaluations": told, "rejected": rejected}
    assert recorded(tmp_path, entry)["evaluations"] == json.loads(json.dumps(told))


@given(said, st.none() | evaluations)
def test_wire_and_border_refuse_the_same_numbers(claims, evaluation):
    reply = Reply("a", 0, params=params([0.0]), **{**claims, "score": claims["score"] or 0.5}, evaluation=evaluation)
    task = Task("a", 0, params([0.0]), action="evaluate" if evaluation else "train")
    try:
        reply_form(reply, "00", task)
    except ReplyError:
        assert problem_of(reply, task) is not None
    else:
        assert problem_of(reply, task) is None


@given(st.lists(st.floats(-1e3, 1e3, width=32), min_size=2, max_size=2), st.floats(-1e3, 1e3, width=32))
def test_our_own_cosines_stay_in_their_range(vector, factor):
    v = params(vector)
    found = cosine(v.vector, params([factor * x for x in vector]).vector)
    assert found is None or 1.0 - found in NOVELTY


def test_a_line_that_could_not_be_read_back_is_not_written(tmp_path: Path):
    run = RunFolder(tmp_path)
    run.append({"kind": "event", "time": 0.0, "site": "a", "what": "left"})
    before = run.ledger_file.read_bytes()
    end = {"kind": "end", "time": 0.0, "model": "", "shares": {"a": 1.0}}
    told = {"validation_dice": 1.0000005, "test_dice_by_class": {"x": 0.5}, "test_dice_without": None}
    for entry in (
        {**end, "evaluations": {"a": told}},
        {**end, "shares": {"a": nan}},
        {**end, "shares": {"a": object()}},
    ):
        with pytest.raises(RunError, match="a new line of"):
            run.append(entry)
        assert run.ledger_file.read_bytes() == before
    run.append(end)
    run.check_chain()


def test_a_range_holds_its_ends_and_no_truth_value():
    assert (0.0 in SCORE, 1 in SCORE, -0.0 in SCORE, nan in SCORE, True in SCORE, 10**400 in LOSS) == (
        *(True,) * 3,
        *(False,) * 3,
    )
