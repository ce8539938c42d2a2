"""What the lower layers may know of a ledger's round. The ledger's lines themselves are in `record/entries.py`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Facts = Mapping[str, Any]
"""Everything that a ledger's round holds of one site; an algorithm reads its own terms from it (`Algorithm.read`)."""


@dataclass(frozen=True)
class Flag:
    """Something in a site's round that a reader should look at.

    >>> Flag("twin", "its updates are nearly those of", "north").text
    'its updates are nearly those of north'
    """

    kind: str
    words: str
    other: str = ""
    """The site named after the words, if they end with a site."""

    @property
    def text(self) -> str:
        """The flag as the ledger holds it."""
        return f"{self.words} {self.other}" if self.other else self.words

    @property
    def text_without_name(self) -> str:
        """The flag for a reader who may know of no other site."""
        return f"{self.words} another site" if self.other else self.words


class RecordedSite(Protocol):
    """What the rounds of every method hold of a site."""

    @property
    def weight(self) -> float: ...
    @property
    def share(self) -> float: ...
    @property
    def score(self) -> float | None: ...
    @property
    def err(self) -> float | None: ...
    @property
    def err_replicates(self) -> Sequence[float]: ...
    @property
    def flags(self) -> Sequence[Flag]: ...
    @property
    def score_local(self) -> float | None: ...
    @property
    def similarity(self) -> float | None: ...
    @property
    def similarity_to_all(self) -> float | None: ...
    @property
    def sketch(self) -> Sequence[float] | None: ...


class RecordedRound(Protocol):
    @property
    def round_no(self) -> int: ...
    @property
    def mean_score(self) -> float: ...
    @property
    def sketch(self) -> Sequence[float] | None: ...
    @property
    def sites(self) -> Mapping[str, RecordedSite]: ...
    @property
    def facts(self) -> Mapping[str, Facts]: ...


Rounds = Sequence[RecordedRound]
