"""fedce doctor --server: each thing that may be wrong on the way to the server is one line that says what to do."""

import socket
import ssl
from pathlib import Path
from time import time

import pytest
from benchmarks.secured import write_certificates

from fedce.base.errors import ConfigError
from fedce.questions import connection
from fedce.questions.connection import Server, check_connection
from tls import Forbidding, served


class Silent(Forbidding):
    """Hangs up at once."""

    def handle(self) -> None: ...


class Wordless(Forbidding):
    """Hangs up after the handshake, as a server that speaks another protocol than HTTP."""

    def handle(self) -> None:
        self.request.do_handshake()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    write_certificates(folder)
    return folder


def found(port: int, ca: Path | None, host: str = "localhost", engine: str = "flower", clock=time) -> dict:
    server = Server.at(f"{host}:{port}", ca)
    return {finding.what: finding for finding in check_connection(server, engine, clock)}


def test_a_sound_way_to_the_server(certificates: Path):
    with served(certificates) as port:
        all_found = found(port, certificates / "ca.pem")
    assert {what: one.verdict for what, one in all_found.items()} == {"reach": "ok", "certificate": "ok", "clock": "ok"}
    assert "trusted, for localhost, 127.0.0.1, valid for 365 more days" in all_found["certificate"].found


def test_an_authority_that_did_not_sign(certificates: Path, tmp_path: Path):
    write_certificates(tmp_path)
    with served(certificates) as port:
        for ca, expected in ((tmp_path / "ca.pem", "ca.pem does not vouch for it"), (None, "no authority that")):
            one = found(port, ca)["certificate"]
            assert one.verdict == "problem"
            assert expected in one.found
            assert "--ca" in one.advice


def test_a_certificate_for_another_name(certificates: Path):
    with served(certificates) as port:
        # The loopback network has many addresses; only the first is in the certificate.
        server = Server("127.0.0.1", port, certificates / "ca.pem")
        real = server.context()
        with (
            socket.create_connection((server.host, port)) as plain,
            pytest.raises(ssl.SSLCertVerificationError) as error,
        ):
            real.wrap_socket(plain, server_hostname="fl.example.org")
    one = connection._refused(Server("fl.example.org", 1), error.value, time())
    assert one.verdict == "problem"
    assert "it is for another name than fl.example.org" in one.found


@pytest.mark.parametrize(
    ("days", "verdict", "words"), [(-1, "problem", "has expired"), (10, "warning", "10 more days")]
)
def test_an_old_certificate(tmp_path: Path, days: int, verdict: str, words: str):
    write_certificates(tmp_path, days)
    with served(tmp_path) as port:
        one = found(port, tmp_path / "ca.pem")["certificate"]
    assert (one.verdict, words in one.found) == (verdict, True), one
    assert "renew" in one.advice


def test_a_server_without_tls_and_one_that_hangs_up(certificates: Path):
    with served(None) as port:
        assert "does not speak TLS" in found(port, certificates / "ca.pem")["certificate"].found
    with served(None, Silent) as port:
        assert "was cut off" in found(port, certificates / "ca.pem")["certificate"].found


def test_a_server_that_states_no_time(certificates: Path):
    with served(certificates, Wordless) as port:
        one = found(port, certificates / "ca.pem")["clock"]
        assert found(port, certificates / "ca.pem", engine="nvflare")["clock"].verdict == "ok"
    assert one.verdict == "warning"
    assert "timedatectl" in one.advice


@pytest.mark.parametrize(
    ("ahead", "flower", "nvflare"),
    [(3, "ok", "ok"), (-200, "ok", "ok"), (8, "problem", "warning"), (-400, "problem", "warning")],
)
def test_clocks_as_flower_bears_them(certificates: Path, ahead: float, flower: str, nvflare: str):
    with served(certificates) as port:
        for engine, verdict in (("flower", flower), ("nvflare", nvflare)):
            one = found(port, certificates / "ca.pem", engine=engine, clock=lambda: time() + ahead)["clock"]
            assert one.verdict == verdict, one
            assert ("ahead of" if ahead > 0 else "behind") in one.found


def test_flowers_limits_are_those_that_we_state():
    constant = pytest.importorskip("flwr.common.constant")
    assert (constant.SYSTEM_TIME_TOLERANCE, constant.TIMESTAMP_TOLERANCE) == (
        connection.AHEAD_SECONDS,
        connection.BEHIND_SECONDS,
    )


def test_nobody_listens():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    (one,) = found(port, None).values()
    assert (one.what, one.verdict) == ("reach", "problem")
    assert one.found == f"nothing listens at localhost:{port}"


@pytest.mark.parametrize(
    ("error", "words", "advice"),
    [
        (socket.gaierror(-2, "Name or service not known"), "is not known here", "spelling"),
        (TimeoutError("timed out"), "did not answer within 10 s", "open outbound TCP to fl.example.org:8443"),
        (OSError(101, "Network is unreachable"), "Network is unreachable", "ask your IT"),
    ],
)
def test_what_a_hospitals_network_does(monkeypatch, error: OSError, words: str, advice: str):
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(socket, "create_connection", fail)
    (one,) = check_connection(Server.at("fl.example.org:8443"), "flower")
    assert one.verdict == "problem"
    assert words in one.found
    assert advice in one.advice


@pytest.mark.parametrize("address", ["fl.example.org", "https://fl.example.org", ":8443", "fl:0", "fl:99999", "fl:x"])
def test_addresses_that_are_none(address: str):
    with pytest.raises(ConfigError, match=r"expected HOST:PORT such as fl\.example\.org:8443"):
        Server.at(address)


def test_an_authority_that_is_no_certificate(tmp_path: Path):
    (tmp_path / "ca.pem").write_text("hello")
    with pytest.raises(ConfigError, match="holds no certificate"):
        list(check_connection(Server.at("localhost:1", tmp_path / "ca.pem"), "flower"))
    with pytest.raises(ConfigError, match="is not a file"):
        Server.at("localhost:1", tmp_path / "nothing.pem")
