"""Shows a run on a local web page, while it goes on and afterwards. Reads the run folder and never writes to it."""

import sys
import webbrowser
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from time import monotonic, time
from typing import TYPE_CHECKING, Any

from fedce.base.errors import ConfigError, FedceError
from fedce.present.pages import page, part
from fedce.present.pages.live import Record, values_of
from fedce.record.folder import RunFolder

if TYPE_CHECKING:
    from fedce.pictures.style import Drawing

HERE = "127.0.0.1"
"""The only address that is served: the page is for people at this machine."""
IDLE_SECONDS = 10.0
RESTS = 20
"""After drawing, wait this many times as long as it took: the run needs the processor more than the page."""


class Watch:
    """The content of the run folder after its last change, and the figures last drawn."""

    def __init__(self, run: RunFolder, clock: Callable[[], float] = time) -> None:
        self.run, self.clock = run, clock
        self.stamps = self._stamps()
        self.record = Record.read(run)
        self.trouble = ""
        self.figures: dict[str, Drawing] | None = None
        self.drawn = self.rest_until = 0.0
        # One request at a time: matplotlib's settings apply to the whole process.
        self.lock = Lock()

    def page(self) -> bytes:
        return page("watch.html.j2", script="watch.js", connects=True, **self._values())

    def state(self) -> bytes:
        """The part of the page that changes."""
        return part("watch_state.html.j2", **self._values())

    def report(self) -> bytes | None:
        """The content of report.html; None if there is none yet."""
        try:
            return self.run.report_file.read_bytes()
        except OSError:
            return None

    def _values(self) -> dict[str, Any]:
        with self.lock:
            self._read_again()
            values = values_of(self.record, self.run.path, self.clock())
            if self.trouble:
                values["warning"] = {"text": self.trouble, "command": ""}
            return {**values, "figures": self._figures()}

    def _stamps(self) -> list[tuple[int, int] | None]:
        """Time and size of each file, which show a change."""
        run = self.run
        files = (run.config_file, run.ledger_file, run.results_file, run.report_file, run.connections_file)
        return [_stamp(file) for file in files]

    def _read_again(self) -> None:
        """Read the folder if anything in it has changed; if it can't be read, the earlier content stays."""
        # Taken before reading, so that a change meanwhile is read the next time.
        stamps = self._stamps()
        if stamps == self.stamps:
            return
        self.stamps, self.trouble = stamps, ""
        try:
            self.record = Record.read(self.run)
        except FedceError as error:
            self.trouble = f"The run folder can't be read now; this is what it held before. ({error})"
        except OSError as error:
            self.trouble = f"The run folder can't be read now; this is what it held before. ({error.strerror})"

    def _figures(self) -> "Mapping[str, Drawing] | None":
        rounds = self.record.rounds
        if not rounds:
            return None
        newest, began = rounds[-1].time, monotonic()
        rested = began >= self.rest_until or self.record.results is not None
        if newest != self.drawn and (rested or self.figures is None):
            from fedce.pictures import plots

            self.figures = {"contributions": plots.contributions(rounds), "progress": plots.progress(rounds)}
            self.drawn = newest
            self.rest_until = monotonic() + RESTS * (monotonic() - began)
        return self.figures


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


class WatchServer(ThreadingHTTPServer):
    """Answers this machine alone. Threads, because browsers hold connections open that they do not use."""

    def __init__(self, watch: Watch, port: int = 0) -> None:
        try:
            super().__init__((HERE, port), _Handler)
        except OSError as error:
            raise ConfigError(
                f"--port {port} can't be used: {error.strerror}; leave it out to get a free one"
            ) from None
        self.watch = watch

    @property
    def address(self) -> str:
        return f"http://{HERE}:{self.server_port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a browser that closes the connection during an answer."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """GET of three paths; everything else is refused."""

    server: WatchServer
    server_version, sys_version = "fedce", ""
    timeout = IDLE_SECONDS

    def do_GET(self) -> None:
        # A foreign page can make its own host name point here, but can't send this host's name.
        if self.headers.get("Host") not in {f"{host}:{self.server.server_port}" for host in (HERE, "localhost")}:
            self.send_error(HTTPStatus.FORBIDDEN, "This page is only for the machine that it runs on")
            return
        watch = self.server.watch
        answers = {"/": watch.page, "/state": watch.state, "/report.html": watch.report}
        answer = answers.get(self.path, lambda: None)()
        if answer is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(answer)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.end_headers()
        self.wfile.write(answer)

    def refuse(self) -> None:
        self.send_response(HTTPStatus.METHOD_NOT_ALLOWED)
        self.send_header("Allow", "GET")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = refuse

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the terminal shows only the address."""


def open_browser(address: str) -> None:
    """Open a browser window; text browsers are left out, because they would take over the terminal."""
    with suppress(webbrowser.Error):
        browser = webbrowser.get()
        if type(browser) is not webbrowser.GenericBrowser:
            # Some browsers return only when their window is closed.
            Thread(target=browser.open, args=(address,), daemon=True).start()
