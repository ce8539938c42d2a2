"""The ServerApp: our round loop over Flower's Grid."""

from collections.abc import Iterator
from logging import INFO, getLogger
from pathlib import Path
from time import monotonic

from flwr.app import Context, Message, MessageType
from flwr.serverapp import Grid, ServerApp

from fedce.base.errors import FedceError, ReplyError
from fedce.base.files import write_json
from fedce.engines.flower.parcels import from_record, to_record
from fedce.site.wire import Parcel, kind_of

LIFE_SECONDS = 11 * 3600.0
"""Flower forgets a message after twelve hours."""
PULLED_AT_ONCE = 16
"""At most this many answers are in memory together, whatever the number of sites."""
log = getLogger("flwr")
"""Flower sends the lines of this log to 'flwr run --stream' and 'flwr log'."""


class FlowerCourier:
    """Parcels over the Grid."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.open: dict[str, float] = {}
        """Tickets of messages without an answer, and when they were sent."""

    def nodes(self) -> list[str]:
        # The name holds the time of joining: a restarted node with a key keeps its number, but has lost its message.
        return [f"{node.node_id}@{node.last_activated_at}" for node in self.grid.get_nodes()]

    def send(self, node: str, parcel: Parcel, round_no: int) -> str:
        kind = MessageType.QUERY if kind_of(parcel.about) == "hello" else MessageType.TRAIN
        message = Message(
            to_record(parcel), dst_node_id=int(node.partition("@")[0]), message_type=kind, group_id=str(round_no + 1)
        )
        ticket = next(iter(self.grid.push_messages([message])), None)
        if not ticket:  # The node has just left.
            return ""
        self.open[str(ticket)] = monotonic()
        return str(ticket)

    def collect(self) -> Iterator[tuple[str, Parcel | str]]:
        for ticket in [ticket for ticket, sent in self.open.items() if monotonic() - sent > LIFE_SECONDS]:
            del self.open[ticket]
            yield ticket, "no answer in eleven hours"
        tickets = list(self.open)
        for start in range(0, len(tickets), PULLED_AT_ONCE):
            for message in self.grid.pull_messages(tickets[start : start + PULLED_AT_ONCE]):
                ticket = message.metadata.reply_to_message_id
                self.open.pop(ticket, None)
                yield ticket, self._answer_in(message)

    def _answer_in(self, message: Message) -> Parcel | str:
        if message.has_error():
            return f"{message.error.reason}"
        try:
            return from_record(message.content)
        except ReplyError as error:
            return Parcel(str(error), {})  # Unsigned, hence refused with this reason.


def server_app(config_file: Path) -> ServerApp:
    """The app of an experiment; the run configuration's `out` says where the run folder is."""
    app = ServerApp()

    def main(grid: Grid, context: Context) -> None:
        from fedce.base.config import load
        from fedce.engines.launching import stream
        from fedce.present.reported import coordinate
        from fedce.record.folder import OUTCOME, RunFolder

        out = Path(str(context.run_config["out"])).expanduser()
        run = RunFolder(out)
        run.engine_folder.mkdir(parents=True, exist_ok=True)
        outcome = run.engine_folder / OUTCOME
        observer = stream(run, lambda message: log.log(INFO, "fedce: %s", message))
        try:
            coordinate(load(config_file), out, FlowerCourier(grid), observer=observer, command=_command(context))
        except FedceError as error:
            write_json(outcome, {"error": str(error)})
            raise
        write_json(outcome, {"error": None})
        log.log(INFO, "fedce: finished; the report is %s", run.report_file)

    app.main()(main)
    return app


def _command(context: Context) -> str:
    return str(context.run_config.get("command") or "flwr run")
