"""Secure aggregation: Flower's own SecAgg+ workflow and mod, over a grid in memory in the place of the network."""

from copy import deepcopy

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install -c constraints.txt -e '.[flower]'")

from examples.flower_secure import client_app, server_app
from flwr.app import ConfigRecord, Context, RecordDict
from flwr.client import ClientApp, NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.common import bytes_to_ndarray, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key, Stage
from flwr.compat.common.recorddict_compat import arrayrecord_to_parameters, parameters_to_arrayrecord
from flwr.server import ServerConfig
from flwr.server.client_manager import SimpleClientManager
from flwr.server.compat.grid_client_proxy import GridClientProxy
from flwr.server.compat.legacy_context import LegacyContext
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD
from flwr.server.workflow.constant import Key as WorkflowKey
from flwr.supercore.task_identity import TaskIdentity

from fedce.algorithms import FedCEAtSites
from fedce.base.errors import ConfigError
from fedce.engines.flower.secure import SecureContribution, SecureFedCE, workflow
from support import FakeFederation, FakeSite

SIZE = 500
NAMES = ("east", "north", "south", "west")
SCORES = dict(zip(NAMES, (0.9, 0.8, 0.7, 0.3), strict=True))


@pytest.fixture(autouse=True)
def in_a_task(monkeypatch):
    """Flower's messages carry the ids of the process that they are made in, which a SuperLink gives."""
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def update_of(site: str) -> np.ndarray:
    rng = np.random.default_rng(list(site.encode()))
    return (0.1 * np.sin(np.arange(SIZE)) + 0.1 * rng.normal(size=SIZE)).astype(np.float32)


def client_fn(context: Context):
    site = str(context.node_config["site"])

    class Client(NumPyClient):
        def fit(self, parameters, config):
            mine = SecureContribution(context, parameters, config, lambda model: SCORES[site])
            return mine.result([parameters[0] + update_of(site)])

    return Client().to_client()


class Grid:
    """Hands messages over, and keeps what the server sees."""

    def __init__(self, app, contexts, absent=()):
        self.app = app
        self.contexts, self.absent, self.seen = contexts, set(absent), []

    def get_node_ids(self):
        return list(self.contexts)

    def send_and_receive(self, messages, *, timeout=None):
        replies = []
        for message in messages:
            node = message.metadata.dst_node_id
            stage = message.content.config_records[RECORD_KEY_CONFIGS].get(Key.STAGE)
            if (node, stage) in self.absent:
                continue
            # A network would give every node its own.
            reply = self.app(deepcopy(message), self.contexts[node])
            self.seen.append((stage, reply))
            replies.append(reply)
        return replies


def context_of(node: int, **node_config) -> Context:
    return Context(run_id=1, node_id=node, node_config=node_config, state=RecordDict(), run_config={})


TOY = ClientApp(client_fn=client_fn, mods=[secaggplus_mod])


def run(n_rounds: int, absent=(), app=TOY, names=NAMES, start=None):
    contexts = {10 + i: context_of(10 + i, site=site) for i, site in enumerate(names)}
    grid = Grid(app, contexts, absent)
    manager = SimpleClientManager()
    for node in contexts:
        manager.register(GridClientProxy(node_id=node, grid=grid, run_id=1))
    strategy = SecureFedCE(fraction_fit=1.0, min_fit_clients=len(names), min_available_clients=len(names))
    context = LegacyContext(context_of(0), ServerConfig(n_rounds), strategy, manager)
    parameters = ndarrays_to_parameters(start or [np.zeros(SIZE, np.float32)])
    context.state.array_records[MAIN_PARAMS_RECORD] = parameters_to_arrayrecord(parameters, keep_input=True)
    protocol = workflow()
    for k in range(1, n_rounds + 1):
        context.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({WorkflowKey.CURRENT_ROUND: k})
        protocol(grid, context)
    model = parameters_to_ndarrays(arrayrecord_to_parameters(context.state.array_records[MAIN_PARAMS_RECORD], True))
    return strategy, model[0], grid


def plain(n_rounds: int):
    sites = [FakeSite(name, update_of(name), 10, lambda w, s=SCORES[name]: s) for name in NAMES]
    return FakeFederation(FedCEAtSites(), sites).run(n_rounds)


def test_sums_alone_give_the_same_shares_and_model():
    strategy, model, _ = run(4)
    state = plain(4)
    assert strategy.shares == pytest.approx(dict(state.shares), abs=2e-3)
    np.testing.assert_allclose(model, state.params.vector, atol=2e-4)


def test_the_server_sees_no_sites_model():
    _, _, grid = run(2)
    masked = [
        reply
        for stage, reply in grid.seen
        if reply.content.config_records[RECORD_KEY_CONFIGS].get(Key.MASKED_PARAMETERS)
    ]
    assert len(masked) == 8
    for reply in masked:
        assert all(len(record) == 0 for record in reply.content.array_records.values())
        (told,) = [record for name, record in reply.content.config_records.items() if name.endswith("metrics")]
        assert set(told) <= {"site", "error", "novelty"}
        content = reply.content.config_records[RECORD_KEY_CONFIGS][Key.MASKED_PARAMETERS]
        # The first number is the weight; the model follows, and is noise to whoever lacks the others' keys.
        vector = np.concatenate([bytes_to_ndarray(part).reshape(-1) for part in content])[1:].astype(float)
        clear = update_of(told["site"])
        assert abs(np.corrcoef(vector, clear)[0, 1]) < 0.2


def test_a_site_that_drops_out_in_the_middle_is_left_out():
    _, model, _ = run(1, absent=[(13, Stage.COLLECT_MASKED_VECTORS)])
    expected = np.mean([update_of(site) for site in NAMES[:3]], axis=0)
    np.testing.assert_allclose(model, expected, atol=2e-4)


def test_the_example_finds_the_site_that_is_different():
    start = client_app.arrays_of(client_app.make_model())
    strategy, _, _ = run(4, app=client_app.app, names=("east", "north", "south"), start=start)
    assert max(strategy.shares, key=strategy.shares.get) == "south"
    assert server_app.app is not None


def test_after_a_drop_out_the_site_leaves_itself_out_with_the_weight_that_it_had():
    _, _, grid = run(2, absent=[(13, Stage.COLLECT_MASKED_VECTORS)])
    told = [
        dict(record)
        for stage, reply in grid.seen[-12:]
        for name, record in reply.content.config_records.items()
        if name.endswith("metrics")
    ]
    updates = [update_of(site) for site in NAMES[:3]]
    for i, own in enumerate(updates):
        others = np.mean([update for j, update in enumerate(updates) if j != i], axis=0)
        cos = own @ others / np.linalg.norm(own) / np.linalg.norm(others)
        assert told[i]["novelty"] == pytest.approx(1 - cos, abs=1e-3)


def test_the_guard_can_not_be_asked_for():
    with pytest.raises(ConfigError, match="only sums are visible here"):
        SecureFedCE(options={"guard": "standard"})
