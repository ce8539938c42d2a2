"""Checks of the way from a site to the coordinator's server: reachable, the right certificate, the same time of day.

Nothing is sent but a TLS handshake and a question for the server's headers.
"""

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from time import gmtime, perf_counter, strftime, time

from fedce.base.errors import ConfigError
from fedce.base.words import duration
from fedce.questions.finding import Finding

CONNECT_SECONDS = 10.0
DAYS_LEFT = 30
DAY = 24 * 3600.0
AHEAD_SECONDS, BEHIND_SECONDS = 5.0, 300.0
"""Flower refuses a node whose clock is further ahead of, or behind, the server's clock than this."""
EXPIRED, NOT_YET_VALID, OTHER_NAME, OTHER_ADDRESS = 10, 9, 62, 64
"""OpenSSL's numbers for what is wrong with a certificate."""


@dataclass(frozen=True)
class Server:
    """Where the coordinator's server is, and how it proves who it is."""

    host: str
    port: int
    ca: Path | None = None
    """The consortium's authority; None: those that this machine trusts."""

    @classmethod
    def at(cls, address: str, ca: Path | None = None) -> "Server":
        """The server at HOST:PORT.

        >>> Server.at("fl.example.org:8443").port
        8443
        """
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ConfigError(f"--server: expected HOST:PORT such as fl.example.org:8443, got {address!r}")
        if ca is not None and not ca.is_file():
            raise ConfigError(f"--ca: {ca} is not a file; the coordinator sends it as ca.pem (NVFlare: rootCA.pem)")
        return cls(host.strip("[]"), int(port), ca)

    @property
    def name(self) -> str:
        return f"{self.host}:{self.port}"

    def context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except ssl.SSLError:
            raise ConfigError(f"--ca: {self.ca} holds no certificate in PEM form") from None
        # Newer versions of Python also refuse authorities without optional fields; NVFlare and Flower accept those.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context


def check_connection(server: Server, engine: str, clock: Callable[[], float] = time) -> Iterator[Finding]:
    """Findings in the order of a connection; those that depend on something broken are left out."""
    context = server.context()
    began = perf_counter()
    try:
        connection = socket.create_connection((server.host, server.port), CONNECT_SECONDS)
    except OSError as error:
        yield _unreachable(server, error)
        return
    with closing(connection):
        yield Finding("reach", "ok", f"{server.name} answers after {1000 * (perf_counter() - began):.0f} ms")
        try:
            with context.wrap_socket(connection, server_hostname=server.host) as secure:
                certificate = secure.getpeercert() or {}
        except OSError as error:  # TLS errors are OSErrors too.
            yield _refused(server, error, clock())
            return
    yield _certificate(certificate, clock())
    yield _clock(server, context, engine, clock)


def _unreachable(server: Server, error: OSError) -> Finding:
    if isinstance(error, socket.gaierror):
        advice = "check the spelling; if it is right, ask your IT whether this machine can look up names outside"
        return Finding("reach", "problem", f"the name {server.host} is not known here", advice)
    if isinstance(error, TimeoutError):
        advice = f"a firewall drops the connection: ask your IT to open outbound TCP to {server.name}"
        return Finding("reach", "problem", f"{server.name} did not answer within {CONNECT_SECONDS:.0f} s", advice)
    if isinstance(error, ConnectionRefusedError):
        advice = "ask the coordinator whether the server is started, and whether this is its port"
        return Finding("reach", "problem", f"nothing listens at {server.name}", advice)
    advice = f"ask your IT for a way from this machine to {server.name}"
    return Finding("reach", "problem", f"{server.name} can't be reached: {error.strerror or error}", advice)


def _refused(server: Server, error: OSError, now: float) -> Finding:
    """Why there is no trusted connection."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
            found = f"{server.name} does not speak TLS"
        else:
            found = f"the TLS handshake with {server.name} was cut off ({error.strerror or error})"
        advice = "ask the coordinator whether this is the right port; a proxy that opens TLS must leave it alone"
        return Finding("certificate", "problem", found, advice)
    told = error.verify_message
    if error.verify_code in (OTHER_NAME, OTHER_ADDRESS):
        advice = "use the name that the certificate states, or ask the coordinator for a certificate with this name"
        return Finding("certificate", "problem", f"it is for another name than {server.host} ({told})", advice)
    if error.verify_code in (EXPIRED, NOT_YET_VALID):
        which = "has expired" if error.verify_code == EXPIRED else "is not valid yet"
        today = strftime("%Y-%m-%d %H:%M", gmtime(now))
        advice = f"if this machine's clock is right ({today} UTC), the coordinator must renew the certificate"
        return Finding("certificate", "problem", f"the certificate {which} ({told})", advice)
    by = f"{server.ca} does not vouch for it" if server.ca else "no authority that this machine trusts vouches for it"
    advice = "give the coordinator's ca.pem as --ca; if you did, a proxy may open TLS: ask your IT to leave it alone"
    return Finding("certificate", "problem", f"{by} ({told})", advice)


def _certificate(certificate: object, now: float) -> Finding:
    assert isinstance(certificate, dict)
    days = (ssl.cert_time_to_seconds(str(certificate["notAfter"])) - now) / DAY
    names = ", ".join(str(name) for _, name in certificate.get("subjectAltName", ()))
    found = f"trusted, for {names or 'no name'}, valid for {days:.0f} more days"
    if days < DAYS_LEFT:
        return Finding("certificate", "warning", found, "ask the coordinator to renew it before the run")
    return Finding("certificate", "ok", found)


def _clock(server: Server, context: ssl.SSLContext, engine: str, clock: Callable[[], float]) -> Finding:
    """Compare with the time that the server states in its headers, to the second."""
    try:
        with closing(HTTPSConnection(server.host, server.port, timeout=CONNECT_SECONDS, context=context)) as asked:
            before = clock()
            asked.request("HEAD", "/")
            stated = asked.getresponse().getheader("Date")
            middle = (before + clock()) / 2
        there = parsedate_to_datetime(stated or "").timestamp() + 0.5
    except (OSError, HTTPException, ValueError):
        found = "not compared: the server does not state its time"
        if engine == "nvflare":  # It never does, and no message is refused for its time.
            return Finding("clock", "ok", found)
        return Finding("clock", "warning", found, "'timedatectl' says whether NTP keeps this machine's clock right")
    ahead = middle - there
    if abs(ahead) < 1:
        return Finding("clock", "ok", "as the server's, to the second")
    way = f"{duration(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'} the server's clock"
    if -BEHIND_SECONDS < ahead < AHEAD_SECONDS:
        return Finding("clock", "ok", way)
    advice = (
        f"let NTP set it; Flower refuses a clock that is {AHEAD_SECONDS:.0f} s ahead or {BEHIND_SECONDS:.0f} s behind"
    )
    return Finding("clock", "warning" if engine == "nvflare" else "problem", way, advice)
