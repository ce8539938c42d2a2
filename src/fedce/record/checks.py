"""What is found when one thing of a ledger is checked."""

from collections.abc import Mapping, Sequence
from typing import Any

Entry = Mapping[str, Any]
Numbered = Sequence[tuple[int, Entry]]
"""Entries with the numbers of their lines."""


class Part:
    """What was found of one thing that is checked."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.facts: list[str] = []
        self.unchecked: list[str] = []
        self.doubt = ""
        self.results: dict[str, Any] | None = None
