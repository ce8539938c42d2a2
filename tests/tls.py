"""Certificates and keys for tests: what 'fedce new' makes, and what docs/flower.md makes with ssh-keygen."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from fedce.base.certificates import SERVER_DAYS, certificates_for


def write_certificates(folder: Path, days: int = SERVER_DAYS) -> None:
    """ca.pem, server.pem and server.key, for this machine."""
    folder.mkdir(parents=True, exist_ok=True)
    made = certificates_for("fedce test authority", "localhost", days)
    (folder / "ca.pem").write_bytes(made.authority)
    (folder / "server.pem").write_bytes(made.server)
    (folder / "server.key").write_bytes(made.server_key)


def write_node_key(path: Path) -> Path:
    """A SuperNode's key pair, as ssh-keygen writes it."""
    key = ec.generate_private_key(ec.SECP256R1())
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    path.with_suffix(".pub").write_bytes(public)
    return path


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
