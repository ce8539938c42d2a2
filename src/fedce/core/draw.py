"""Which sites take part in a round, if not all do."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256


@dataclass(frozen=True)
class Draw:
    """Draws the sites that were drawn least often so far; among equals it decides by lot.

    So all sites are measured equally often, and anybody who knows the seed can repeat the draw.
    """

    n_sites: int
    seed: int

    def sites(self, draws: Mapping[str, int], round_no: int) -> tuple[str, ...]:
        def place(site: str) -> tuple[int, str]:
            return draws[site], sha256(f"{self.seed}/{round_no}/{site}".encode()).hexdigest()

        return tuple(sorted(sorted(draws, key=place)[: self.n_sites]))


def draws_of(everybody: Iterable[str], draws: Mapping[str, int]) -> dict[str, int]:
    """How often each site was drawn; a newcomer counts as drawn least often, or it would be in every round."""
    least = min(draws.values(), default=0)
    return {site: draws.get(site, least) for site in everybody}
