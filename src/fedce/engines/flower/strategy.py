"""FedCE for your own Flower app: a strategy for the server, and a helper for clients that measures the data term."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from logging import INFO, WARNING, getLogger
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from fedce import algorithms
from fedce.core.algorithm import State
from fedce.core.messages import Reply, Task
from fedce.core.params import KINDS, Entry, Kind, Layout, Params, leave_out
from fedce.guard.border import problem_of

RECORD = "fedce"
"""The strategy and the client helper exchange values under this key; other records of the app stay untouched."""
STATISTICS = ("running_mean", "running_var")
log = getLogger("flwr")


def is_statistic(name: str) -> bool:
    """Batch norm's running statistics: averaged like weights, but no part of an update's direction."""
    return name.endswith(STATISTICS)


class FedCE(FedAvg):  # type: ignore[misc]
    """Weights nodes by their contribution; `shares` holds the contributions so far.

    Options of FedCE (combine, max_share, ...) go into `options`; other arguments are FedAvg's. Credit belongs to a
    site's name if the node has one (--node-config "site='A'"), otherwise to its node id, which a restart changes.
    A name belongs to the node that first came with it, as long as that node is connected. Set `authenticated` if
    SuperNodes have keys: a node's number then follows from its key, and a name stays with it while the node is away.
    """

    def __init__(
        self,
        options: Mapping[str, Any] | None = None,
        is_buffer: Callable[[str], bool] = is_statistic,
        authenticated: bool = False,
        **fedavg: Any,
    ) -> None:
        super().__init__(**fedavg)
        self.algorithm = algorithms.guarded(algorithms.make("fedce", options or {}), "standard")
        self.is_buffer = is_buffer
        self.state: State | None = None
        self.authenticated = authenticated
        self.site_by_node: dict[int, str] = {}
        self._connected: set[int] = set()
        self._sent = ArrayRecord()

    @property
    def shares(self) -> dict[str, float]:
        """Contributions so far; they sum to 1."""
        return dict(self.state.shares) if self.state else {}

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        params, self._sent = to_params(arrays, self.is_buffer), arrays
        self._connected = set(grid.get_node_ids())
        if self.state is None:
            self.state = self.algorithm.begin((), params)
        elif not np.array_equal(params.vector, self.state.params.vector):
            # The app changed the model after aggregation, so the model without a site is unknown.
            self.state = replace(self.state, params=params, rho={})
        messages = []
        for message in super().configure_train(server_round, arrays, config, grid):
            told = self._weight_of(message.metadata.dst_node_id)
            own = ConfigRecord({"round": server_round, **({} if told is None else {"weight": told})})
            # All nodes share one record of the model; each gets its weight in a separate record.
            message.content = RecordDict({**message.content, RECORD: own})
            messages.append(message)
        return messages

    def _weight_of(self, node: int) -> float | None:
        """A site's weight in the model; None for a node without a name, which may be a restarted site."""
        assert self.state is not None
        if not self.state.rho or node not in self.site_by_node:
            return None
        return self.state.rho.get(self.site_by_node[node], 0.0)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        assert self.state is not None
        valid, _ = self._check_and_log_replies(replies, is_train=True)
        usable: dict[str, tuple[Reply, RecordDict]] = {}
        # Nodes that held their name before come first: nobody takes it from them.
        for message in sorted(valid, key=lambda one: (self._claimed(one), not self._holds_its_name(one))):
            if (holder := self._holder_of(message)) is not None:
                node, name = message.metadata.src_node_id, self._claimed(message)
                log.log(WARNING, "fedce: the reply of node %s is refused: node %s is %r", node, holder, name)
                continue
            try:
                reply = self._reply(message)
            except Exception as error:  # noqa: BLE001 (whatever a client sends, the others' round goes on)
                what = f"{type(error).__name__}: {error}"
                log.log(
                    WARNING, "fedce: the reply of %s is refused: it can't be read (%s)", self._site_of(message), what
                )
                continue
            task = Task(reply.site, self.state.round_no, self.state.params)
            reason = "replied twice" if reply.site in usable else problem_of(reply, task)
            if reason is not None:
                log.log(WARNING, "fedce: the reply of %s is refused: %s", reply.site, reason)
            else:
                usable[reply.site] = (reply, message.content)
        if not usable:
            return None, None
        state = replace(self.state, sites=tuple(usable))
        self.state = self.algorithm.round(state, lambda tasks: [reply for reply, _ in usable.values()])
        log.log(INFO, "fedce: shares %s", {site: round(share, 3) for site, share in self.shares.items()})
        contents = [content for _, content in usable.values()]
        metrics = self.train_metrics_aggr_fn(contents, self.weighted_by_key)
        for site, share in self.shares.items():
            metrics[f"share of {site}"] = share
        return to_record(self.state.params, self._sent), metrics

    def _claimed(self, message: Message) -> str:
        """The name that a node gives itself."""
        told = message.content.get(RECORD)
        name = told.get("site") if isinstance(told, ConfigRecord) else None
        return str(name or f"node {message.metadata.src_node_id}")

    def _holds_its_name(self, message: Message) -> bool:
        return self.site_by_node.get(message.metadata.src_node_id) == self._claimed(message)

    def _holder_of(self, message: Message) -> int | None:
        """Another node to which the claimed name belongs; None if the claim is good."""
        node, name = message.metadata.src_node_id, self._claimed(message)
        holders = (other for other, held in self.site_by_node.items() if held == name and other != node)
        return next((other for other in holders if self.authenticated or other in self._connected), None)

    def _site_of(self, message: Message) -> str:
        """The name of a node whose claim is good; it holds the name from now on."""
        site, node = self._claimed(message), message.metadata.src_node_id
        self.site_by_node = {other: name for other, name in self.site_by_node.items() if name != site} | {node: site}
        return site

    def _reply(self, message: Message) -> Reply:
        assert self.state is not None
        told = message.content.get(RECORD)
        error = told.get("error") if isinstance(told, ConfigRecord) else None
        (arrays,) = message.content.array_records.values()
        (metrics,) = message.content.metric_records.values()
        return Reply(
            site=self._site_of(message),
            round_no=self.state.round_no,
            n_train=int(metrics[self.weighted_by_key]),
            params=to_params(arrays, self.is_buffer),
            score=0.0,  # Not asked of an app that has its own evaluation.
            error_without=float(error) if isinstance(error, float) else None,
        )


class Contribution:
    """For a ClientApp's train function: the model without this site, and the reply with that model's error."""

    def __init__(self, message: Message, context: Context) -> None:
        self.message, self.context = message, context
        self.error: float | None = None
        (self._received,) = message.content.array_records.values()

    def model_without_me(self) -> ArrayRecord | None:
        """The model without this site; None in the first round, and if this site's weight in it is unknown."""
        told, kept = self.message.content.get(RECORD), self.context.state.get(RECORD)
        about = self.context.state.get(f"{RECORD}.round")
        weight = told.get("weight") if isinstance(told, ConfigRecord) else None
        if weight == 0:
            return self._received
        if not isinstance(weight, float) or not isinstance(kept, ArrayRecord) or not isinstance(about, ConfigRecord):
            return None
        if weight >= 1 or about.get("round") != self._round - 1:
            return None
        whole, own = (to_params(record, is_statistic) for record in (self._received, kept))
        return to_record(leave_out(whole, weight, own), self._received)

    def reply(self, arrays: ArrayRecord, metrics: MetricRecord) -> Message:
        """The train function's reply; keeps the model for the next round."""
        self.context.state[RECORD] = arrays
        self.context.state[f"{RECORD}.round"] = ConfigRecord({"round": self._round})
        about: dict[str, Any] = {"site": str(self.context.node_config.get("site") or "")}
        if self.error is not None:
            about["error"] = float(self.error)
        content = RecordDict({"arrays": arrays, "metrics": metrics, RECORD: ConfigRecord(about)})
        return Message(content, reply_to=self.message)

    @property
    def _round(self) -> int:
        told = self.message.content.get(RECORD)
        return int(told["round"]) if isinstance(told, ConfigRecord) else 0


def to_params(record: ArrayRecord, is_buffer: Callable[[str], bool]) -> Params:
    """A model in fedce's form: one vector of averaged numbers, and one of counts."""
    arrays = {name: array.numpy() for name, array in record.items()}
    by_kind: dict[Kind, list[str]] = {kind: [] for kind in KINDS}
    for name, array in arrays.items():
        floating = np.issubdtype(array.dtype, np.floating)
        by_kind["counter" if not floating else "buffer" if is_buffer(name) else "trainable"].append(name)
    names = [(name, kind) for kind in KINDS for name in by_kind[kind]]
    layout = Layout(tuple(Entry(name, tuple(arrays[name].shape), kind) for name, kind in names))
    parts = [np.asarray(arrays[name], np.float32).reshape(-1) for name, _ in names]
    return Params(layout, np.concatenate(parts) if parts else np.empty(0, np.float32))


def to_record(params: Params, like: ArrayRecord) -> ArrayRecord:
    """The parameters with the names, order and types of the record `like`."""
    found = {entry.name: params.vector[where].reshape(entry.shape) for entry, where in params.layout.slices()}
    return ArrayRecord({name: Array(found[name].astype(array.numpy().dtype)) for name, array in like.items()})
