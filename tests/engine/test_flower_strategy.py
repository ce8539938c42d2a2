"""FedCE as a strategy of somebody's own Flower app, with Flower's own loop and no network."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install -c constraints.txt -e '.[flower]'")

from examples.flower_drop_in import client_app, server_app
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fedce.algorithms import FedCE as Algorithm
from fedce.engines.flower import Contribution, FedCE
from fedce.engines.flower.strategy import is_statistic, to_params, to_record
from fedce.guard import Guarded
from support import FakeFederation, FakeSite

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def a_run(monkeypatch):
    """Flower's messages know the run that their process works for."""
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


class Wire(Grid):
    """Calls ClientApps in this process; `changed` may change a reply, or swallow it."""

    def __init__(self, app: ClientApp, node_configs: dict[int, dict]) -> None:
        self.app = app
        self.contexts = {
            node: Context(run_id=1, node_id=node, node_config=config, state=RecordDict(), run_config={})
            for node, config in node_configs.items()
        }
        self.changed: Callable[[int, Message], Message | None] = lambda node, reply: reply

    def set_run(self, run): ...

    @property
    def run(self):
        return None

    def create_message(self, *args, **kwargs): ...

    def get_node_ids(self):
        return list(self.contexts)

    def push_messages(self, messages): ...

    def pull_messages(self, message_ids): ...

    def send_and_receive(self, messages, *, timeout=None):
        replies = []
        for message in messages:
            node = message.metadata.dst_node_id
            message.metadata.__dict__["_message_id"] = f"{node}"
            reply = self.changed(node, self.app(message, self.contexts[node]))
            if reply is not None:
                reply.metadata.__dict__["_src_node_id"] = node
                replies.append(reply)
        return reversed(replies)


def updating_app(updates: dict[str, list[float]], scores: Callable[[np.ndarray], float]) -> ClientApp:
    """Each site adds a fixed update and scores by a given function."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        contribution = Contribution(message, context)
        if (others := contribution.model_without_me()) is not None:
            contribution.error = 1 - scores(others["w"].numpy())
        w = message.content["arrays"]["w"].numpy() + np.array(updates[context.node_config["site"]], np.float32)
        return contribution.reply(ArrayRecord({"w": Array(w)}), MetricRecord({"num-examples": 10}))

    return app


UPDATES = {"a": [1.0, 0.0, 0.2], "b": [0.8, 0.3, 0.0], "c": [-0.1, 1.0, 0.5]}


def score(w: np.ndarray) -> float:
    return float(1 / (1 + np.abs(w).sum()))


def run(strategy: FedCE, wire: Wire, n_rounds: int = 4):
    start = ArrayRecord({"w": Array(np.zeros(3, np.float32))})
    return strategy.start(wire, start, num_rounds=n_rounds)


def wire_of(nodes=(11, 22, 33)) -> Wire:
    return Wire(updating_app(UPDATES, score), {node: {"site": site} for node, site in zip(nodes, UPDATES, strict=True)})


def test_the_same_shares_and_weights_as_our_own_round_loop():
    strategy = FedCE(fraction_evaluate=0.0)
    result = run(strategy, wire_of())
    ours = FakeFederation(
        Guarded(Algorithm()),
        [FakeSite(site, update, score=lambda w: score(w.vector)) for site, update in UPDATES.items()],
    )
    state = ours.run(4)
    assert strategy.shares == dict(state.shares)
    assert np.array_equal(result.arrays["w"].numpy(), state.params.vector)
    assert sum(strategy.shares.values()) == pytest.approx(1)
    told = result.train_metrics_clientapp[4]
    assert told["share of c"] == strategy.shares["c"]


def test_a_restarted_node_keeps_its_credit_by_its_name():
    strategy, wire = FedCE(fraction_evaluate=0.0), wire_of()
    run_rounds(strategy, wire, 1, 3)
    before = strategy.shares["b"]
    wire.contexts[44] = Context(run_id=1, node_id=44, node_config={"site": "b"}, state=RecordDict(), run_config={})
    del wire.contexts[22]
    run_rounds(strategy, wire, 4, 4)
    assert set(strategy.shares) == {"a", "b", "c"}
    assert strategy.shares["b"] == pytest.approx(before, abs=0.1)


def named(node: int, site: str) -> Context:
    return Context(run_id=1, node_id=node, node_config={"site": site}, state=RecordDict(), run_config={})


def test_a_name_belongs_to_the_node_that_came_with_it(caplog):
    strategy, wire = FedCE(fraction_evaluate=0.0), wire_of()
    run_rounds(strategy, wire, 1, 1)
    # A lower number, which would come first, and a third node that changes its own name.
    wire.contexts[5] = named(5, "b")
    wire.contexts[33] = named(33, "a")
    honest = FedCE(fraction_evaluate=0.0)
    without = wire_of()
    run_rounds(honest, without, 1, 1)
    del without.contexts[33]
    run_rounds(strategy, wire, 2, 2)
    run_rounds(honest, without, 2, 2)
    assert "the reply of node 5 is refused: node 22 is 'b'" in caplog.text
    assert "the reply of node 33 is refused: node 11 is 'a'" in caplog.text
    assert strategy.shares == honest.shares
    assert np.array_equal(strategy.state.params.vector, honest.state.params.vector)


@pytest.mark.parametrize("authenticated", [False, True])
def test_a_key_holds_a_name_while_its_node_is_away(authenticated: bool):
    strategy, wire = FedCE(fraction_evaluate=0.0, authenticated=authenticated), wire_of()
    run_rounds(strategy, wire, 1, 1)
    del wire.contexts[22]
    wire.contexts[44] = named(44, "b")
    run_rounds(strategy, wire, 2, 2)
    assert strategy.state.rho.get("b", 0) == 0 if authenticated else strategy.state.rho["b"] > 0
    assert (strategy.site_by_node.get(44) == "b") is not authenticated


def run_rounds(strategy: FedCE, wire: Wire, first: int, last: int) -> None:
    arrays = ArrayRecord({"w": Array(np.zeros(3, np.float32))})
    if strategy.state is not None:
        arrays = ArrayRecord({"w": Array(strategy.state.params.vector)})
    for number in range(first, last + 1):
        replies = wire.send_and_receive(strategy.configure_train(number, arrays, ConfigRecord(), wire))
        arrays, _ = strategy.aggregate_train(number, replies)


def test_what_is_not_a_number_and_a_wild_error_are_refused(caplog):
    def spoil(node, reply):
        if node == 22:
            reply.content["arrays"] = ArrayRecord({"w": Array(np.array([np.nan, 0, 0], np.float32))})
        if node == 33:
            reply.content["fedce"] = ConfigRecord({"site": "c", "error": 1e6})
        return reply

    strategy, wire = FedCE(fraction_evaluate=0.0), wire_of()
    run_rounds(strategy, wire, 1, 2)
    wire.changed = spoil
    run_rounds(strategy, wire, 3, 3)
    assert np.isfinite(strategy.state.params.vector).all()
    assert strategy.state.rho == {"a": 1.0}
    wire.changed = lambda node, reply: reply
    run_rounds(strategy, wire, 4, 4)
    assert sum(strategy.state.rho.values()) == pytest.approx(1)
    assert set(strategy.state.rho) == {"a", "b", "c"}


@pytest.mark.parametrize(
    "spoilt",
    [
        {"metrics": MetricRecord({"num-examples": float("nan")})},
        {"metrics": MetricRecord({"num-examples": float("inf")})},
        {"arrays": ArrayRecord({"w": Array("float32", (3,), "numpy.ndarray", b"garbage")})},
        {"arrays": ArrayRecord({"w": Array("float32", (3,), "other", b"")})},
        {"arrays": ArrayRecord({"w": Array(np.array(["x", "y", "z"]))})},
        {"arrays": ArrayRecord({"w": Array(np.array([1, 2, 3]))})},
    ],
)
def test_a_reply_that_cant_be_read_is_refused_and_the_round_goes_on(spoilt):
    def spoil(node, reply):
        if node == 22:
            for key, record in spoilt.items():
                reply.content[key] = record
        return reply

    strategy, wire = FedCE(fraction_evaluate=0.0), wire_of()
    wire.changed = spoil
    run_rounds(strategy, wire, 1, 2)
    assert set(strategy.state.rho) == {"a", "c"}


def test_the_precision_of_one_is_not_that_of_all():
    def halve(node, reply):
        if node == 11:
            reply.content["arrays"] = ArrayRecord({"w": Array(reply.content["arrays"]["w"].numpy().astype(np.float16))})
        return reply

    strategy, wire = FedCE(fraction_evaluate=0.0), wire_of()
    wire.changed = halve
    arrays = ArrayRecord({"w": Array(np.zeros(3, np.float32))})
    replies = wire.send_and_receive(strategy.configure_train(1, arrays, ConfigRecord(), wire))
    after, _ = strategy.aggregate_train(1, replies)
    assert after["w"].numpy().dtype == np.float32
    assert np.array_equal(after["w"].numpy(), strategy.state.params.vector)


def test_a_model_survives_the_way_there_and_back():
    record = ArrayRecord(client_app.make_model().state_dict())
    params = to_params(record, is_statistic)
    assert params.layout.n_trainable == 16 * 2 + 16 + 2 * 16 + 16 + 1
    assert [entry.name for entry in params.layout.entries if entry.kind == "counter"] == ["1.num_batches_tracked"]
    back = to_record(params, record)
    assert list(back) == list(record)
    for name, array in record.items():
        assert np.array_equal(back[name].numpy(), array.numpy())
        assert back[name].numpy().dtype == array.numpy().dtype


def test_the_example_prints_contributions_by_name(capsys):
    wire = Wire(client_app.app, {i: {"partition-id": i, "site": f"hospital {i}"} for i in range(3)})
    server_app.app(wire, Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config={}))
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("hospital")]
    assert len(printed) == 3
    assert sum(float(line.split()[-2]) for line in printed) == pytest.approx(100, abs=0.2)


def test_an_app_changes_about_ten_lines():
    lines = [
        line
        for name in ("client_app", "server_app")
        for line in (ROOT / "examples" / "flower_drop_in" / f"{name}.py").read_text().splitlines()
        if "# fedce" in line and not line.startswith('"')
    ]
    assert 5 < len(lines) <= 11
