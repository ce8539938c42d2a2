"""Signed statements that other programs can check: DSSE envelopes with Ed25519 signatures.

DSSE: https://github.com/secure-systems-lab/dsse. A signature's `keyid` is the public key itself, as `fedce keys show`
prints it; it only says which key to try.
"""

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from fedce.base.errors import RunError, first_problem
from fedce.base.files import read_json, write_json
from fedce.base.identity import Identity, is_signed
from fedce.record.forms import Form

IN_TOTO = "application/vnd.in-toto+json"
MOST_SIGNATURES = 10_000


class _Signature(Form):
    keyid: Annotated[str, Field(max_length=200)]
    sig: Annotated[str, Field(max_length=200)]


class _Written(Form):
    payload: str
    payload_type: Annotated[str, Field(alias="payloadType")]
    signatures: Annotated[list[_Signature], Field(max_length=MOST_SIGNATURES)]


@dataclass(frozen=True)
class Envelope:
    """A text, and signatures on it.

    >>> Envelope("{}").pae
    'DSSEv1 28 application/vnd.in-toto+json 2 {}'
    """

    payload: str
    signatures: Mapping[str, str] = field(default_factory=dict)
    """Public key to signature."""
    payload_type: str = IN_TOTO

    @property
    def pae(self) -> str:
        """The text that is signed: DSSE's pre-authentication encoding."""
        lengths = len(self.payload_type.encode()), len(self.payload.encode())
        return f"DSSEv1 {lengths[0]} {self.payload_type} {lengths[1]} {self.payload}"

    def signed_by(self, identity: Identity) -> "Envelope":
        return replace(self, signatures={**self.signatures, identity.public: identity.sign(self.pae)})

    def with_signatures_of(self, other: "Envelope") -> "Envelope":
        """This envelope, with further signatures that another copy of it has."""
        return replace(self, signatures={**other.signatures, **self.signatures})

    def is_signed_by(self, public: str) -> bool:
        return is_signed(self.pae, self.signatures.get(public, ""), public)

    def write(self, path: Path) -> None:
        signatures = [{"keyid": key, "sig": signature} for key, signature in self.signatures.items()]
        payload = b64encode(self.payload.encode()).decode()
        write_json(path, {"payload": payload, "payloadType": self.payload_type, "signatures": signatures})

    @classmethod
    def read(cls, path: Path) -> "Envelope":
        value = read_json(path)
        try:
            written = _Written.model_validate(value)
            payload = _decoded(written.payload).decode()
            # Other programs may write base64 in the form for web addresses.
            signatures = {one.keyid: b64encode(_decoded(one.sig)).decode() for one in written.signatures}
        except ValidationError as error:
            raise RunError(f"{path} is not a DSSE envelope ({first_problem(error)})") from None
        except (NotBase64, ValueError) as error:
            raise RunError(f"{path} is not a DSSE envelope ({error})") from None
        if len(signatures) < len(written.signatures):
            raise RunError(f"{path} holds two signatures with the same keyid")
        return cls(payload, signatures, written.payload_type)


def _decoded(text: str) -> bytes:
    return b64decode(text.translate(str.maketrans("-_", "+/")), validate=True)
