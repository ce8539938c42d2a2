"""One value of a plan with its reason."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Chosen:
    """One value of a plan."""

    key: str
    value: Any
    reason: str
