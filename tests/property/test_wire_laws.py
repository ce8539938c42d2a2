"""What comes over a network: nothing is lost on the way, and nothing that comes can do more than be refused."""

import json
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedce import __version__
from fedce.base.errors import ReplyError
from fedce.base.identity import Identity
from fedce.base.ranges import N_REPLICATES
from fedce.core.messages import Evaluation, Measured, Member, Reply, Task
from fedce.engines.joining import Known, Reports, Rules
from fedce.engines.remote import RemoteEngine, _Node
from fedce.site.travel import sent_as
from fedce.site.wire import (
    Failure,
    Hello,
    MemberForm,
    NotHeldError,
    Parcel,
    ReplyForm,
    Signed,
    TaskForm,
    kind_of,
    reply_form,
    reply_from,
    task_arrays,
    task_from,
    task_parcel,
)
from support import layout, params

LAYOUT = layout(3, 1, 1)
TASK = Task("a", 0, params([0.0], 0, 0))
floats = st.floats(allow_nan=True, allow_infinity=True, width=64)
scores = st.floats(0, 1)
losses = st.floats(-1e6, 1e6)
ENDLESS = np.float32([np.inf, 0, 0, 0, 0])
"""What a diverged training may give; the border refuses it only after it has arrived."""
vectors = arrays(np.float32, LAYOUT.size, elements=st.floats(width=32, allow_nan=True))
names = st.text(min_size=1, max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | floats | st.text(),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.text(max_size=12), inside, max_size=6),
    max_leaves=12,
)
FORMS = (Hello, TaskForm, MemberForm, ReplyForm, Failure, Signed)


@st.composite
def replies(draw):
    interval = st.none() | st.tuples(scores, scores)
    by_class = st.dictionaries(names, scores, min_size=1, max_size=3)
    numbers = st.dictionaries(names, st.none() | st.floats(-1e9, 1e9), min_size=1, max_size=3)
    counts = st.dictionaries(names, st.integers(0, 10**9), max_size=3)
    measured = st.builds(Measured, numbers, counts, st.sampled_from(["", "mm", "px"]))
    metrics = st.dictionaries(names, measured, max_size=3)
    evaluation = st.builds(Evaluation, scores, by_class, st.none() | scores, interval, interval, metrics)
    return Reply(
        site=draw(names),
        round_no=draw(st.integers(0, 10**6)),
        n_train=draw(st.integers(1, 10**9)),
        params=draw(st.none() | vectors.map(lambda vector: params(vector.tolist(), 1, 1))),
        score=draw(st.none() | scores),
        error_without=draw(st.none() | scores),
        error_replicates=tuple(draw(st.just([]) | st.lists(scores, min_size=N_REPLICATES, max_size=N_REPLICATES))),
        novelty=draw(st.none() | st.floats(0, 2)),
        loss=draw(st.none() | losses),
        loss_before=draw(st.none() | losses),
        score_local=draw(st.none() | scores),
        scores=tuple(draw(st.lists(scores, max_size=5))),
        evaluation=draw(st.none() | evaluation),
        seconds=draw(st.floats(0, 1e6)),
    )


def same(one, other) -> bool:
    """Equal, where not-a-number equals itself."""
    return repr(one) == repr(other)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # Beside other work it is.
@given(replies())
def test_a_reply_arrives_as_it_was_sent(reply: Reply):
    form = reply_form(reply, "00ff", TASK)
    sent = {} if reply.params is None else {"params": reply.params.vector}
    parcel = Parcel.from_bytes(Parcel(form.model_dump_json(), sent).to_bytes())
    came = reply_from(ReplyForm.read(parcel.about), parcel.arrays, LAYOUT)
    for name in ("site", "round_no", "n_train", "score", "error_without", "error_replicates", "novelty", "loss"):
        assert same(getattr(came, name), getattr(reply, name)), name
    for name in ("loss_before", "score_local", "scores", "evaluation", "seconds"):
        assert same(getattr(came, name), getattr(reply, name)), name
    if reply.params is None:
        assert came.params is None
    else:
        assert came.params.vector.tobytes() == reply.params.vector.tobytes()


def test_an_evaluation_and_a_member_of_an_earlier_version_are_read():
    """They were signed without intervals and numbers of cases, and must still verify to the letter."""
    said = Reply("a", 3, 10, evaluation=Evaluation(0.5, {"x": 0.25}, None))
    sent = reply_form(said, "00", replace(TASK, action="evaluate")).model_dump()
    del sent["received"]
    for key in ("validation_interval", "test_interval"):
        del sent["evaluation"][key]
    came = reply_from(ReplyForm.read(json.dumps(sent)), {}, LAYOUT)
    assert came.evaluation == Evaluation(0.5, {"x": 0.25}, None, None, None)
    assert "metrics" not in sent["evaluation"], "without any, a site signs what it signed before there were any"
    assert Evaluation.recorded(sent["evaluation"]) == came.evaluation
    about = {"run": "00", "nonce": "00", "name": "a", "n_train": 4, "n_validation": 2, "n_test": 2, "shape": [1, 8, 8]}
    about |= {"classes": {"x": [1]}, "fingerprint": "00", "versions": {}, "key": "k"}
    assert MemberForm.read(json.dumps(about)).member.n_validation_cases == 0


@given(vectors, st.lists(vectors, max_size=3), st.none() | st.floats(0, 1), st.booleans())
def test_a_task_arrives_as_it_was_sent(vector, models, rho, persist):
    made = [params(model.tolist(), 1, 1) for model in models]
    task = Task("a", 3, params(vector.tolist(), 1, 1), rho=rho, models=tuple(made), persist=persist, shares={"a": 0.1})
    task = replace(task, drawn=(1, 2))
    parcel = Parcel.from_bytes(task_parcel(task, "00", 3).to_bytes())
    came = task_from(TaskForm.read(parcel.about), parcel.arrays, LAYOUT)
    assert (came.site, came.round_no, came.rho, came.persist, dict(came.shares)) == ("a", 3, rho, persist, {"a": 0.1})
    assert came.drawn == (1, 2)
    sent = [task.params, *task.models]
    assert [p.vector.tobytes() for p in (came.params, *came.models)] == [p.vector.tobytes() for p in sent]


@example(ENDLESS, None, [], ENDLESS, "fp16")
@given(vectors, st.none() | vectors, st.lists(vectors, max_size=3), vectors, st.sampled_from(["lossless", "fp16"]))
def test_packed_models_arrive_as_they_were_sent(vector, held, models, answered, pack):
    base = None if held is None else params(held.tolist(), 1, 1)
    made = tuple(params(model.tolist(), 1, 1) for model in models)
    task = Task("a", 3, params(vector.tolist(), 1, 1), models=made)
    digest = base.digest if base else ""
    parcel = Parcel.from_bytes(task_parcel(task, "00", 3, "", task_arrays(task, pack, base), digest).to_bytes())
    form = TaskForm.read(parcel.about)
    came = task_from(form, parcel.arrays, LAYOUT, pack, [task.params, *([base] if base else [])])
    assert [p.digest for p in (came.params, *came.models)] == [p.digest for p in (task.params, *task.models)]
    if base is not None and digest != task.params.digest:
        with pytest.raises(NotHeldError):
            task_from(form, parcel.arrays, LAYOUT, pack, [task.params])
    reply = Reply("a", 3, 4, params(answered.tolist(), 1, 1), score=0.5)
    sent = {"params": sent_as(reply.params, pack, task.params)}
    back = Parcel.from_bytes(Parcel(reply_form(reply, "00", task).model_dump_json(), sent).to_bytes())
    found = reply_from(ReplyForm.read(back.about), back.arrays, LAYOUT, pack, task.params)
    assert found.params.digest == reply.params.digest


@given(st.binary(max_size=200))
def test_raw_bytes_are_read_or_refused(content):
    with suppress(ReplyError):
        Parcel.from_bytes(content)


@given(st.text(max_size=200) | json_values.map(json.dumps))
def test_any_text_is_read_or_refused(text):
    assert isinstance(kind_of(text), str)
    for form in FORMS:
        try:
            form.read(text)
        except ReplyError as error:
            assert len(str(error)) < 1000  # noqa: PT017 (an error is one of two good ends)


def test_a_text_that_nests_without_end_is_refused():
    assert kind_of("[" * 100_000) == ""
    assert kind_of('{"kind":' * 50_000) == ""


class _Mouth:
    """One node that says whatever it is given."""

    def __init__(self, answer: Parcel | str) -> None:
        self.answer, self.tickets = answer, 0
        self.waiting: list[str] = []

    def nodes(self):
        return ["n"]

    def send(self, node, parcel, round_no):
        self.tickets += 1
        self.waiting.append(str(self.tickets))
        return str(self.tickets)

    def collect(self):
        came, self.waiting = self.waiting, []
        return [(ticket, self.answer) for ticket in came]


@settings(deadline=None)
@given(
    st.text(max_size=100) | json_values.map(json.dumps),
    json_values,
    st.dictionaries(st.sampled_from(["params", "other"]), vectors, max_size=2),
)
def test_whatever_a_member_says_the_server_lives(tmp_path_factory, text, changed, given_arrays):
    """Rubbish, rubbish with a good signature, and a good answer with one field changed."""
    identity = Identity.at(tmp_path_factory.getbasetemp() / "member.pem")
    member = Member("a", 4, 2, 2, (3, 32, 32), {"x": (1,)}, "ff")
    good = json.loads(reply_form(Reply("a", 0, 4, score=0.5), "00", TASK).model_dump_json())
    texts = [text, *(json.dumps({**good, name: changed}) for name in list(good)[:6])]
    for content in texts:
        for about in (content, Signed(content=content, signature=identity.sign(content)).model_dump_json()):
            notes = []
            clock = iter(range(10**6))
            engine = RemoteEngine(
                _Mouth(Parcel(about, given_arrays)),
                Rules("00", {}, 1, 1, 5, __version__),
                Reports(notes.append),
                {"a": Known(identity.public, member)},
                clock=lambda clock=clock: float(next(clock)),
                pause=lambda seconds: None,
            )
            engine.bind(LAYOUT, 3)
            engine.node_by_site["a"] = "n"
            engine._nodes["n"] = _Node(asked=True)
            engine.ask([Task("a", 0, params([0.0] * LAYOUT.size, 1, 1))])
