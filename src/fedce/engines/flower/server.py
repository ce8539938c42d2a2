"""The ServerApp: our round loop over Flower's Grid."""

from collections.abc import Iterator
from pathlib import Path

from flwr.app import Context, Message, MessageType
from flwr.serverapp import Grid, ServerApp

from fedce.engines.flower.parcels import from_record, to_record
from fedce.errors import FedceError, ReplyError
from fedce.files import write_json
from fedce.wire import Parcel, kind_of

OUTCOME = "outcome.json"


class FlowerCourier:
    """Parcels over the Grid."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.open: set[str] = set()

    def nodes(self) -> list[str]:
        # With the time it came: an authenticated node that was restarted has its old number, and lost its message.
        return [f"{node.node_id}@{node.last_activated_at}" for node in self.grid.get_nodes()]

    def send(self, node: str, parcel: Parcel, round_no: int) -> str:
        kind = MessageType.QUERY if kind_of(parcel.about) == "hello" else MessageType.TRAIN
        message = Message(
            to_record(parcel), dst_node_id=int(node.partition("@")[0]), message_type=kind, group_id=str(round_no + 1)
        )
        (ticket,) = self.grid.push_messages([message])
        self.open.add(str(ticket))
        return str(ticket)

    def collect(self) -> Iterator[tuple[str, Parcel | str]]:
        if not self.open:
            return
        for message in self.grid.pull_messages(self.open):
            ticket = message.metadata.reply_to_message_id
            self.open.discard(ticket)
            if message.has_error():
                yield ticket, f"{message.error.reason}"
                continue
            try:
                yield ticket, from_record(message.content)
            except ReplyError as error:
                yield ticket, Parcel(str(error), {})  # Not signed, and so refused with a reason.


def server_app(config_file: Path) -> ServerApp:
    """The app of an experiment; the run configuration's `out` says where the run folder is."""
    app = ServerApp()

    def main(grid: Grid, context: Context) -> None:
        from fedce.config import load
        from fedce.experiment import Observer, coordinate

        out = Path(str(context.run_config["out"])).expanduser()
        outcome = out.with_name(f"{out.name}.engine") / OUTCOME
        observer = Observer(notice=lambda message: print(message, flush=True))  # noqa: T201 (into Flower's log)
        try:
            coordinate(load(config_file), out, FlowerCourier(grid), observer=observer, command=_command(context))
        except FedceError as error:
            write_json(outcome, {"error": str(error)})
            raise
        write_json(outcome, {"error": None})

    app.main()(main)
    return app


def _command(context: Context) -> str:
    return str(context.run_config.get("command") or "flwr run")
