"""What is found when one thing of a ledger is checked."""

from typing import Any


class Part:
    """What was found of one thing that is checked."""

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
