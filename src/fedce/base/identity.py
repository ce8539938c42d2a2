"""The identity of a site or a coordinator: an Ed25519 key that never leaves its machine."""

import os
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from fedce.base.errors import ConfigError
from fedce.base.files import write_private
from fedce.base.keys import checked_key

PUBLIC = b"Public key: "
"""The text before the public key, in the file of a private key."""


class Identity:
    """A private key, and what can be done with it."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    @classmethod
    def at(cls, path: Path) -> "Identity":
        """The key in a file; if there is no file, a new key is made."""
        if not path.exists():
            write_private(path, cls(Ed25519PrivateKey.generate()).to_pem())
        if not path.is_file():
            raise ConfigError(f"{path} is not a file; expected a private key in PEM form")
        if os.name == "posix" and path.stat().st_mode & 0o077:
            raise ConfigError(f"{path} is a private key that others can read; run 'chmod 600 {path}'")
        try:
            content = path.read_bytes()
            loaded = load_pem_private_key(content, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise ConfigError(f"{path} is not a private key in PEM form; delete it to have a new one made") from None
        if not isinstance(loaded, Ed25519PrivateKey):
            raise ConfigError(f"{path} is not an Ed25519 key; delete it to have a new one made")
        found = cls(loaded)
        # A key with one bit changed is a key too, but another one. Keys of other programs lack the public one.
        if (stated := content.partition(PUBLIC)[2].strip()) and stated != found.public.encode():
            raise ConfigError(f"{path} was changed since it was written; restore it, or delete it to have a new one")
        return found

    def to_pem(self) -> bytes:
        """The private key, followed by the public key as text that PEM readers skip."""
        private = self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return private + PUBLIC + self.public.encode() + b"\n"

    @property
    def public(self) -> str:
        return b64encode(self._key.public_key().public_bytes_raw()).decode()

    def sign(self, text: str) -> str:
        return b64encode(self._key.sign(text.encode())).decode()


def coordinator_file() -> Path:
    """$FEDCE_KEY, or a file among the user's settings."""
    if stated := os.environ.get("FEDCE_KEY"):
        return Path(stated).expanduser()
    settings = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(settings).expanduser() / "fedce" / "key.pem"


def coordinator() -> Identity:
    """The identity under which federations are run on this machine."""
    return Identity.at(coordinator_file())


def held_key() -> str | None:
    """The public key of this machine's coordinator; None if there is no key yet, and no key is made."""
    return Identity.at(path).public if (path := coordinator_file()).exists() else None


def is_signed(text: str, signature: str, public: str) -> bool:
    """Whether the owner of the public key signed this text."""
    try:
        key = Ed25519PublicKey.from_public_bytes(b64decode(checked_key(public), validate=True))
        key.verify(b64decode(signature, validate=True), text.encode())
    except (InvalidSignature, ValueError, NotBase64):
        return False
    return True
