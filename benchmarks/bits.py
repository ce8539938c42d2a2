"""Whether two runs gave the same bits."""

from pathlib import Path
from typing import Any

from fedce.record.folder import RunFolder

DIFFERENT = ("time", "seconds", "previous", "signature", "signed")


def rounds_of(folder: Path) -> list[dict[str, Any]]:
    """A ledger's rounds without values that differ in every run, such as times."""
    return [
        {
            **{key: value for key, value in done.content.items() if key not in DIFFERENT},
            "sites": {
                site: {key: value for key, value in facts.items() if key not in DIFFERENT}
                for site, facts in done.facts.items()
            },
        }
        for done in RunFolder(folder).rounds()
    ]


def same(one: Path, other: Path) -> bool:
    ours, theirs = RunFolder(one), RunFolder(other)
    keys = ("contributions", "dice", "dice_without", "model_sha256")
    return (
        rounds_of(one) == rounds_of(other)
        and all(ours.results[key] == theirs.results[key] for key in keys)
        and ours.model_file.read_bytes() == theirs.model_file.read_bytes()
    )
