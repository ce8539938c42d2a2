"""What a public key looks like, wherever one is written down."""

from base64 import b64decode
from binascii import Error as NotBase64

FIELD = 2**255 - 19
ORDER_8 = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
WEAK = {0, 1, ORDER_8, FIELD - ORDER_8, FIELD - 1}
"""Second coordinates of the curve's points of small order: with such a key, one signature fits any text."""


def checked_key(public: str) -> str:
    """The public key, if it is 32 bytes in base64 and not one of the weak keys, which verify anything."""
    try:
        raw = b64decode(public, validate=True)
    except NotBase64:
        raw = b""
    second = int.from_bytes(raw, "little") % 2**255
    if len(raw) != 32 or second in WEAK or second >= FIELD:
        raise ValueError(f"{public!r} is not a public key; expected 44 characters as 'fedce keys new' prints them")
    return public
