"""A Flower federation on this machine as docs/flower.md sets one up: TLS, and nodes with registered keys."""

from collections.abc import Mapping
from pathlib import Path
from time import sleep

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from fedce.base.certificates import SERVER_DAYS, certificates_for
from fedce.engines.flower.launch import Federation

N_TRIES = 60


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


def secure(federation: Federation, keys: Path, authorities: Mapping[str, Path]) -> None:
    """Certificates for the SuperLink, a key for each node; `authorities`: the folder whose authority a node trusts."""
    write_certificates(keys)
    federation.connection = {"address": federation.connection["address"], "root-certificates": str(keys / "ca.pem")}
    federation.server_security = [
        *("--ssl-certfile", str(keys / "server.pem"), "--ssl-keyfile", str(keys / "server.key")),
        *("--ssl-ca-certfile", str(keys / "ca.pem"), "--enable-supernode-auth"),
    ]
    for node, folder in authorities.items():
        key = write_node_key(keys / node)
        federation.node_security[node] = [
            *("--root-certificates", str(folder / "ca.pem")),
            *("--auth-supernode-private-key", str(key)),
        ]


def register(federation: Federation, keys: Path, node: str) -> None:
    """Tell the SuperLink, which may still be starting, a node's public key."""
    for _ in range(N_TRIES):
        answer = federation.flwr("supernode", "register", str(keys / f"{node}.pub"), "here", "--format", "json")
        if answer.get("success"):
            return
        sleep(0.5)
    raise AssertionError(answer)
