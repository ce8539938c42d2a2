"""What the guard makes of the signs of a site: whom it trusts, which errors it believes, what it tells readers."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from fedce.core.recorded import Facts, Flag
from fedce.guard.claims import Book, Books, books_after, most_believed
from fedce.guard.evidence import KEPT, Related
from fedce.guard.signs import CONTRADICTION, Signs


@dataclass(frozen=True)
class Verdict:
    """What the guard makes of one site in one round."""

    err: float | None
    """The error without the site, as the site claims it."""
    signs: Signs
    trust: float = 1.0
    """The part of the site's gains that counts; 0: nothing of its reply is used."""
    most: float | None = None
    """The largest error that is believed; None: any error is."""
    past: float = 1.0
    """The part of what the site earned in earlier rounds that counts from now on."""

    @classmethod
    def of(cls, err: float | None, signs: Signs) -> "Verdict":
        most = None
        if signs.overstates and err is not None and signs.excess is not None and signs.most_excess is not None:
            # Whoever overstates grossly is believed no more than its own score says.
            most = max(err - signs.excess + (0.0 if signs.contradicts_itself else signs.most_excess), 0.0)
        return cls(err, signs, signs.trust, most, signs.past)

    @classmethod
    def read(cls, facts: Facts) -> "Verdict":
        return cls(facts["err"], signs_in(facts["signs"]), facts["trust"], facts["most"], facts.get("past", 1.0))

    @property
    def recorded(self) -> dict[str, Any]:
        return {"trust": self.trust, "most": self.most, "past": self.past, "signs": asdict(self.signs)}

    @property
    def believed(self) -> float | None:
        if self.err is None or self.signs.owes_error:
            return None
        return self.err if self.most is None else min(self.err, self.most)

    @property
    def believed_excess(self) -> float | None:
        signs = self.signs
        if signs.excess is None or signs.most_excess is None or self.trust == 0:
            return None
        return 0.0 if signs.contradicts_itself else min(signs.excess, signs.most_excess)


def believed_errors(verdicts: Mapping[str, Verdict]) -> dict[str, float | None]:
    """The error of each site as the method gets to see it.

    An error that was asked for and could be measured, and is missing all the same, counts as the least of the round:
    else silence would pay where the truth is a small error.
    """
    known = [verdict.believed for verdict in verdicts.values() if verdict.believed is not None]
    least = min(known, default=None)
    return {
        site: least if verdict.believed is None and verdict.signs.owes_error else verdict.believed
        for site, verdict in verdicts.items()
    }


def with_bounds(signs: Mapping[str, Signs], books: Books) -> dict[str, Signs]:
    """The signs with the largest excess error that is believed of each site; bad sites support nobody's claim."""
    claiming = {site: found for site, found in signs.items() if found.excess is not None and not found.is_bad}
    bounds = most_believed(
        books,
        {site: found.moved for site, found in claiming.items()},
        {site: found.excess for site, found in claiming.items() if found.excess is not None},
        {site: found.weight for site, found in claiming.items()},
    )
    return {site: replace(found, most_excess=bounds.get(site)) for site, found in signs.items()}


def books_of(books: Books, verdicts: Mapping[str, Verdict]) -> dict[str, Book]:
    believed = {site: found for site, verdict in verdicts.items() if (found := verdict.believed_excess) is not None}
    return books_after(books, {site: verdicts[site].signs.moved for site in believed}, believed)


def lengths_with(
    before: Mapping[str, Sequence[float]], verdicts: Mapping[str, Verdict]
) -> dict[str, tuple[float, ...]]:
    """The lengths kept so far, and this round's; an update that is not used does not count as usual."""
    now = {site: verdict.signs.length for site, verdict in verdicts.items() if verdict.trust > 0}
    longer = {site: (*before.get(site, ()), length)[-KEPT:] for site, length in now.items()}
    return {**{site: tuple(lengths) for site, lengths in before.items()}, **longer}


def related_with(before: Mapping[str, Related], verdicts: Mapping[str, Verdict]) -> dict[str, Related]:
    """The sites' agreement in their first rounds so far, and with this round."""
    now = {site: mean for site, verdict in verdicts.items() if (mean := verdict.signs.mean_agreement) is not None}
    n = {site: before.get(site, Related()).n_rounds for site in now}
    return {**before, **{site: Related(n[site] + 1, mean) for site, mean in now.items()}}


def suspects_after(before: Sequence[str], verdicts: Mapping[str, Verdict]) -> tuple[str, ...]:
    """Sites that are suspected in the next round; a site that did not reply stays as it was."""
    absent = {site for site in before if site not in verdicts}
    return tuple(sorted(absent | {site for site, verdict in verdicts.items() if verdict.signs.is_adverse}))


def flags_by_guard(facts: Facts) -> list[Flag]:
    """What the guard says of a site, from what is recorded; nothing if the guard is off."""
    if not facts.get("signs"):
        return []
    found = signs_in(facts["signs"])
    return found.flags if "most_excess" in facts["signs"] or facts["most"] is None else [*found.flags, CONTRADICTION]


def signs_in(recorded: Mapping[str, Any]) -> Signs:
    """The signs that a ledger holds; earlier versions had others too."""
    known = {one.name for one in fields(Signs)}
    return Signs(**{name: value for name, value in recorded.items() if name in known})
