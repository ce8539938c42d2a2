"""Who takes part in a round where not all do."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256


@dataclass(frozen=True)
class Draw:
    """Who takes part in a round where not all do: those who were drawn least often, among equals by lot.

    So all are measured equally often, and anybody who knows the seed can draw again.
    """

    n_sites: int
    seed: int

    def sites(self, draws: Mapping[str, int], round_no: int) -> tuple[str, ...]:
        def place(site: str) -> tuple[int, str]:
            return draws[site], sha256(f"{self.seed}/{round_no}/{site}".encode()).hexdigest()

        return tuple(sorted(sorted(draws, key=place)[: self.n_sites]))


def draws_of(everybody: Iterable[str], draws: Mapping[str, int]) -> dict[str, int]:
    """How often each was drawn; a newcomer counts as one who was drawn least, or it would be in every round."""
    least = min(draws.values(), default=0)
    return {site: draws.get(site, least) for site in everybody}
