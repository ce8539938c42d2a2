"""A server of tests that speaks TLS, with certificates as 'fedce new' makes them."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread


class Forbidding(BaseHTTPRequestHandler):
    """As the web server of docs/flower.md: whatever is not for nodes is refused, with the server's time."""

    def do_HEAD(self) -> None:
        self.send_error(403)

    def log_message(self, *_: object) -> None: ...


@contextmanager
def served(certificates: Path | None, handler: type = Forbidding) -> Iterator[int]:
    """A server of this test on loopback; returns its port."""
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        if certificates is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        server.handle_error = lambda request, address: None
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
