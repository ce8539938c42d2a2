"""What a check found, and what to do about it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Verdict = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """The outcome of one check."""

    what: str
    verdict: Verdict
    found: str
    advice: str = ""


def verdict_of(findings: Sequence[Finding]) -> Mapping[str, Any]:
    """All findings as a JSON value."""
    return {
        "ready": all(finding.verdict != "problem" for finding in findings),
        "findings": [vars(finding) for finding in findings],
    }
