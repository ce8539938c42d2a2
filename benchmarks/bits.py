"""When two runs gave the same bits."""

from pathlib import Path
from typing import Any

from fedce.record.folder import RunFolder


def rounds_of(folder: Path) -> list[dict[str, Any]]:
    """A ledger's rounds without what no two runs share."""
    rounds = RunFolder(folder).rounds()
    for entry in rounds:
        for key in ("time", "seconds", "previous", "signature"):
            entry.pop(key)
        for facts in entry["sites"].values():
            facts.pop("seconds")
            facts.pop("signed", None)
    return rounds


def same(one: Path, other: Path) -> bool:
    ours, theirs = RunFolder(one), RunFolder(other)
    keys = ("contributions", "dice", "dice_without", "model_sha256")
    return (
        rounds_of(one) == rounds_of(other)
        and all(ours.results[key] == theirs.results[key] for key in keys)
        and ours.model_file.read_bytes() == theirs.model_file.read_bytes()
    )
