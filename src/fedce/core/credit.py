"""What each site has earned, over the rounds in which it was measured; independent of the algorithm."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

Gains = Mapping[str, tuple[float, ...]]
"""What each site earns in one round; most methods count one quantity."""


@dataclass(frozen=True)
class Account:
    """One site's account: in how many rounds it was measured, and what it earned in them."""

    rounds: int = 0
    totals: tuple[float, ...] = ()

    @property
    def value(self) -> float:
        """The total, for a method that counts one quantity."""
        return self.totals[0]

    @property
    def means(self) -> tuple[float, ...]:
        """The average per round."""
        return tuple(total / self.rounds for total in self.totals)

    def keeping(self, part: float) -> "Account":
        """The account with only this part of the totals; the number of rounds stays."""
        return Account(self.rounds, tuple(part * total for total in self.totals))


@dataclass(frozen=True)
class Credit(Mapping[str, Account]):
    """The accounts of all sites.

    >>> Credit().plus({"a": (2.0,)}).plus({"a": (1.0,), "b": (3.0,)})["a"]
    Account(rounds=2, totals=(3.0,))
    """

    accounts: Mapping[str, Account] = field(default_factory=dict)

    def __getitem__(self, site: str) -> Account:
        return self.accounts[site]

    def __iter__(self) -> Iterator[str]:
        return iter(self.accounts)

    def __len__(self) -> int:
        return len(self.accounts)

    def plus(self, gains: Gains) -> "Credit":
        """The credit after a round in which the gains are added."""
        added = {
            site: tuple(before + now for before, now in zip(self._totals(site, won), won, strict=True))
            for site, won in gains.items()
        }
        return self._with(added)

    def replaced(self, gains: Gains) -> "Credit":
        """The credit after a round in which the gains replace the totals: only the last value counts."""
        return self._with(gains)

    def keeping(self, parts: Mapping[str, float]) -> "Credit":
        """The credit after these sites lose a part of what they had earned."""
        kept = {site: self.accounts[site].keeping(part) for site, part in parts.items() if site in self.accounts}
        return Credit({**self.accounts, **kept})

    def _totals(self, site: str, like: tuple[float, ...]) -> tuple[float, ...]:
        before = self.accounts[site].totals if site in self.accounts else ()
        return before or (0.0,) * len(like)

    def _with(self, totals: Gains) -> "Credit":
        rounds = {site: account.rounds for site, account in self.accounts.items()}
        after = {site: Account(rounds.get(site, 0) + 1, tuple(total)) for site, total in totals.items()}
        return Credit({**self.accounts, **after})
