"""The results of many trainings in one file that travels, for studies on several machines or in several stretches.

A line is a training: what decides its results, by which code and versions it was made, and its results, with a digest.
Lines of several files may be put into one.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedce.base.errors import RunError
from fedce.base.files import sealed, unsealed, write_bytes

NOT_KEPT = ("command", "data")
"""Results that name folders of the machine that trained."""


@dataclass(frozen=True)
class Kept:
    """The results of one training, as another machine may have made them."""

    key: str
    """Digest of experiment, data and device."""
    name: str
    """For a person who reads the file."""
    code: str
    """The version of fedce and the digest of its code."""
    versions: Mapping[str, str]
    results: Mapping[str, Any]


class ResultsFile:
    """Results by what decides them; a training that another version of the code made counts too, and is named.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "results.jsonl"
    ...     ResultsFile(file).add(Kept("5d41", "fundus6-fedce-0", "0.1.0 8f14", {}, {"dice": {"north": 0.9}}))
    ...     ResultsFile(file).find("5d41", "0.1.0 8f14").results
    {'dice': {'north': 0.9}}
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kept = [_read(line, path, number) for number, line in enumerate(_lines(path), 1)]

    def find(self, key: str, code: str) -> Kept | None:
        """The training with this key: by this code if there is one, otherwise the last by other code."""
        known = [one for one in self._kept if one.key == key]
        best = [one for one in known if one.code == code] or known
        return best[-1] if best else None

    def add(self, one: Kept) -> None:
        results = {name: value for name, value in one.results.items() if name not in NOT_KEPT}
        self._kept.append(Kept(one.key, one.name, one.code, one.versions, results))
        lines = [json.dumps(sealed(asdict(kept)), ensure_ascii=False, allow_nan=False) for kept in self._kept]
        write_bytes(self.path, ("\n".join(lines) + "\n").encode())


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8").splitlines() if path.exists() else []
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(
            f"can't read {path}: {error}; --results names a file of results that fedce study wrote"
        ) from None


def _read(line: str, path: Path, number: int) -> Kept:
    try:
        found = unsealed(json.loads(line))
        return Kept(**found)
    except (ValueError, TypeError, RecursionError):
        raise RunError(
            f"{path}, line {number}: expected the results of a training as fedce study wrote them, and the line was "
            "changed or is of another kind; delete the line, and the same command repeats this training"
        ) from None
