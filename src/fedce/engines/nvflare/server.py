"""The part of a job that NVFlare's server runs: fedce's round loop over calls to the clients' published functions."""

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from logging import getLogger
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic, sleep
from typing import Any

from nvflare.collab import collab
from nvflare.collab.api.exceptions import RunAborted

from fedce.base.errors import ConfigError, EngineError, ReplyError
from fedce.base.files import write_json
from fedce.engines.nvflare import settings
from fedce.site.wire import Parcel

PING_SECONDS, PING_TIMEOUT = 3.0, 10.0
GONE_SECONDS = 30.0
"""A client that has not answered a ping for this many seconds is gone."""
CALL_SECONDS = 30 * 24 * 3600.0
"""Practically no limit: the deadline finds slow clients, and the pings find those that are gone."""
LOST_SECONDS = 600.0
"""A call that was sent this many seconds ago, and that the client does not know, was lost."""
log = getLogger("fedce.federation")


class NvflareCourier:
    """Sends parcels as calls; each call waits in its own thread, and pings show which clients are connected."""

    def __init__(self, clients: Mapping[str, Any], is_aborted: Callable[[], bool] = lambda: False) -> None:
        self.clients = dict(clients)
        self.round_no = 0
        self.paused = False
        self.said = ""
        """The last line that the coordinator said, for an administrator who asks."""
        self._is_aborted = is_aborted
        self._tickets = count()
        self._open: dict[str, tuple[str, float]] = {}
        self._came: SimpleQueue[tuple[str, Parcel | str]] = SimpleQueue()
        self._heard: dict[str, float] = {}
        for client in self.clients:
            Thread(target=self._watch, args=(client,), daemon=True).start()

    def nodes(self) -> list[str]:
        self._check()
        now = monotonic()
        return [client for client, heard in list(self._heard.items()) if now - heard < GONE_SECONDS]

    def send(self, node: str, parcel: Parcel, round_no: int) -> str:
        if self.paused and round_no > self.round_no:
            raise EngineError("paused between two rounds; submit the job again to go on")
        self.round_no = round_no
        ticket = f"{node}/{next(self._tickets)}"
        self._open[ticket] = (node, monotonic())
        Thread(target=self._call, args=(ticket, node, parcel), daemon=True).start()
        return ticket

    def collect(self) -> Iterator[tuple[str, Parcel | str]]:
        self._check()
        while True:
            try:
                yield self._came.get_nowait()
            except Empty:
                return

    def _check(self) -> None:
        """End an aborted job at once: otherwise every call that was cut off would look like a site that is gone."""
        if self._is_aborted():
            raise RunAborted("the job was aborted")

    def command(self, topic: str) -> dict[str, Any]:
        """Answer an administrator; a pause stops the job before its next round begins."""
        self.paused = self.paused or topic == settings.PAUSE
        return {"round": self.round_no, "nodes": self.nodes(), "paused": self.paused, "said": self.said}

    def _call(self, ticket: str, client: str, parcel: Parcel) -> None:
        answer: Parcel | str
        try:
            answer = Parcel.from_bytes(self.clients[client](timeout=CALL_SECONDS).answer(ticket, parcel.to_bytes()))
        except RunAborted:
            return
        except ReplyError as error:
            answer = Parcel(str(error), {})  # Unsigned, hence refused with this reason.
        except Exception as error:  # noqa: BLE001 (any error means that there is no answer)
            answer = _told(error)
        if self._open.pop(ticket, None) is not None:
            self._came.put((ticket, answer))

    def _watch(self, client: str) -> None:
        while not self._is_aborted():
            try:
                in_hand = self.clients[client](timeout=PING_TIMEOUT).here()
            except Exception:  # noqa: BLE001 (any error means that the client did not answer)
                pass
            else:
                self._heard[client] = monotonic()
                self._find_lost(client, set(in_hand))
            sleep(PING_SECONDS)

    def _find_lost(self, client: str, in_hand: set[str]) -> None:
        for ticket, (node, since) in list(self._open.items()):
            lost = node == client and ticket not in in_hand and monotonic() - since > LOST_SECONDS
            if lost and self._open.pop(ticket, None) is not None:
                self._came.put((ticket, "the call was lost on its way"))


def _told(error: Exception) -> str:
    """The error as one line; the remote traceback stays in the logs."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


class Coordinator:
    """The server's half of a job; its run folder is in the server's `runs`, so that a job submitted again continues."""

    def __init__(self, run: str, command: str = "") -> None:
        if Path(run).name != run or run in ("", ".", ".."):
            raise ConfigError(f"{run!r} can't be the name of a run folder")
        self.run, self.command = run, command

    @collab.main  # type: ignore[untyped-decorator]
    def coordinate(self) -> None:
        from fedce.base.config import load
        from fedce.engines.launching import stream
        from fedce.present.reported import coordinate
        from fedce.record.folder import OUTCOME, RunFolder

        workspace, context = collab.workspace, collab.context
        config_file = Path(workspace.get_app_config_dir(collab.fl_ctx.get_job_id())) / settings.EXPERIMENT
        out = Path(settings.load(Path(workspace.get_site_config_dir())).runs).expanduser() / self.run
        run = RunFolder(out)
        beside = run.engine_folder
        courier = NvflareCourier({client.name: client for client in collab.clients}, lambda: bool(context.is_aborted()))
        for topic in (settings.NODES, settings.PAUSE):
            collab.fl_ctx.get_engine().register_app_command(topic, _command, courier)
        write_json(beside / settings.STARTED, {"clients": sorted(courier.clients)})

        def say(message: str) -> None:
            log.info(message)
            courier.said = message

        observer = stream(run, say)
        try:
            coordinate(load(config_file), out, courier, observer=observer, command=self.command or "nvflare job submit")
        except Exception as error:
            write_json(beside / OUTCOME, {"error": str(error)})
            raise
        write_json(beside / OUTCOME, {"error": None})


def _command(topic: str, data: Any, context: Any, courier: NvflareCourier) -> dict[str, Any]:
    return courier.command(topic)
