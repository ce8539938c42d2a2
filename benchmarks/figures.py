"""A benchmark's figures: each is a ratio measured several times in one run, perhaps with a goal."""

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from statistics import median


@dataclass(frozen=True)
class Figure:
    """One row of the table."""

    what: str
    values: Sequence[float]
    """One value for each repeat."""
    unit: str = "x"
    """The unit; x stands for a ratio of two things that were measured together."""
    at_most: float | None = None
    at_least: float | None = None

    def __post_init__(self) -> None:
        if not self.values or not all(isfinite(value) for value in self.values):
            raise ValueError(f"{self.what}: measured {list(self.values)}")

    @property
    def goal(self) -> str:
        if self.at_most is not None:
            return f"at most {self.at_most:g}"
        return f"at least {self.at_least:g}" if self.at_least is not None else ""

    @property
    def holds(self) -> bool | None:
        """Whether the median reaches the goal; None without a goal."""
        if self.at_most is not None:
            return median(self.values) <= self.at_most
        return median(self.values) >= self.at_least if self.at_least is not None else None


def number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}" if value >= 10 or value < 0.01 else f"{value:.3f}"


def table(figures: Iterable[Figure]) -> str:
    lines = ["| figure | median | range | goal | |", "|---|---:|---|---|---|"]
    for figure in figures:
        unit = "" if figure.unit == "x" else f" {figure.unit}"
        low, high = number(min(figure.values)), number(max(figure.values))
        spread = f"{low} to {high}" if len(figure.values) > 1 else ""
        verdict = {True: "holds", False: "**missed**", None: ""}[figure.holds]
        middle = number(median(figure.values))
        lines.append(f"| {figure.what} | {middle}{unit} | {spread} | {figure.goal} | {verdict} |")
    return "\n".join(lines)


def main(doc: str, measure: Callable[[int], list[Figure]], repeats: int) -> None:
    """A benchmark's command line: prints its table; for `make bench` also as JSON."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=repeats)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    figures = measure(given.repeats)
    print(table(figures), flush=True)
    if given.json:
        given.json.write_text(json.dumps([asdict(figure) for figure in figures]))
