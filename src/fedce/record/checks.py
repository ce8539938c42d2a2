"""The outcome of one check of a ledger."""

from typing import Any


class Part:
    """The outcome of one check."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.facts: list[str] = []
        self.unchecked: list[str] = []
        self.doubt = ""
        self.results: dict[str, Any] | None = None

    def add(self, other: "Part") -> None:
        self.problems += other.problems
        self.facts += other.facts
        self.unchecked += other.unchecked
        self.doubt = self.doubt or other.doubt
        self.results = self.results or other.results
