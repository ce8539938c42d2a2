"""The rounds that a site may later have to reproduce: drawn by a secret seed, whose hash the ledger begins with."""

from hashlib import sha256


def hash_of(seed: str) -> str:
    """What the ledger begins with; it does not tell the seed.

    >>> hash_of("00ff")[:8]
    '06eb7d6a'
    """
    return sha256(bytes.fromhex(seed)).hexdigest()


def drawn_by(seed: str, part: float, first: int, end: int) -> frozenset[int]:
    """The drawn rounds from `first` to before `end`: each by itself with probability `part`, and at least one.

    No draw tells anything about another, so a site that knows which earlier rounds were drawn is no wiser. If chance
    draws no round, the one that came nearest is drawn.

    >>> sorted(drawn_by("00ff", 0.05, 0, 100))
    [0, 1, 15, 65, 86]
    >>> drawn_by("00ff", 0.05, 10, 13), drawn_by("00ff", 0.0, 0, 100)
    (frozenset({11}), frozenset())
    """
    if part == 0 or first >= end:
        return frozenset()
    lots = {round_no: _lot(seed, round_no) for round_no in range(first, end)}
    nearest = min(lots, key=lambda round_no: lots[round_no])
    return frozenset(round_no for round_no, lot in lots.items() if lot < part) | {nearest}


def _lot(seed: str, round_no: int) -> float:
    """A number in [0, 1) that nobody can tell without the seed."""
    return int.from_bytes(sha256(bytes.fromhex(seed) + b"/%d" % round_no).digest()[:7]) / 2**56
