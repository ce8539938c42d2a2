"""Time stamps by an authority outside the federation (RFC 3161), checked by the program `openssl`."""

import subprocess
from pathlib import Path

from fedce.base.errors import ConfigError, RunError

SECONDS = 60.0


def check_is_for(reply: bytes, digest: str, where: Path) -> None:
    """Refuse a reply that was given for something else; whether it is genuine, only `checked_time` says."""
    if bytes.fromhex(digest) not in reply:
        raise RunError(
            f"{where} is not a time stamp of this attestation; make its query with "
            f"'openssl ts -query -sha256 -cert -digest {digest} -out query.tsq'"
        )


def checked_time(reply: Path, digest: str, authority: Path) -> str:
    """The time at which the authority saw the digest; a RunError if the reply does not prove it."""
    if not authority.is_file():
        raise ConfigError(
            f"--authority: there is no file {authority}; expected the authority's certificates in PEM form"
        )
    _openssl("-verify", "-in", str(reply), "-digest", digest, "-CAfile", str(authority))
    # The token alone: the reply around it is not signed, and anybody could write another time into its status text.
    for line in _openssl("-reply", "-in", str(reply), "-token_out", "-text").splitlines():
        if line.startswith("Time stamp: "):
            return line.removeprefix("Time stamp: ")
    raise RunError("the reply states no time")


def _openssl(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["openssl", "ts", *arguments], capture_output=True, text=True, errors="replace", timeout=SECONDS
        )
    except OSError:
        raise ConfigError(
            "a time stamp is checked by the program openssl, which can't be started; install it"
        ) from None
    except subprocess.TimeoutExpired:
        raise RunError(f"openssl did not end within {SECONDS:g} seconds") from None
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if "error" in line.lower()]
        raise RunError(f"openssl refuses it ({said[0].split('::')[-1][:200] if said else 'no reason given'})")
    return done.stdout
