"""Whether two runs gave the same bits."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedce.record.folder import RunFolder

DIFFERENT = ("time", "seconds", "previous", "signature", "signed", "drawn")


def rounds_of(folder: Path) -> list[dict[str, Any]]:
    """A ledger's rounds without values that differ in every run, such as times, and without draws."""
    return [_alike(done.content) for done in RunFolder(folder).rounds()]


def _alike(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {key: _alike(inner) for key, inner in value.items() if key not in DIFFERENT}


def same(one: Path, other: Path) -> bool:
    ours, theirs = RunFolder(one), RunFolder(other)
    keys = ("contributions", "dice", "dice_without", "worth", "model_sha256")
    return (
        rounds_of(one) == rounds_of(other)
        and all(ours.results[key] == theirs.results[key] for key in keys)
        and ours.model_file.read_bytes() == theirs.model_file.read_bytes()
    )
