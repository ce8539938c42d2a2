"""A budget shared among sites by several rules: amounts sum to the budget to the cent, with a floor and a cap."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from itertools import combinations
from typing import Any

from fedce.base.errors import ConfigError, RunError, nearest
from fedce.valuation.worth import is_told, some_of

CENT = Decimal("0.01")
RULES = ("worth", "contribution", "samples", "equal", "mix")
"""worth: by what a site gives to the others; contribution: by the method's own measure, with FedCE what a site needs;
samples: by a site's training images when it last took part; mix: half by worth, half in equal parts."""
BY_WORTH = ("worth", "mix")


@dataclass(frozen=True)
class Payout:
    """The amounts that each site gets by one rule."""

    rule: str
    shares: Mapping[str, float]
    """Shares after floor and cap; they sum to 1."""
    amounts: Mapping[str, Decimal]
    """Amounts, which sum to the budget exactly."""
    low: Mapping[str, Decimal | None] | None
    high: Mapping[str, Decimal | None] | None
    """Amounts at the ends of the interval of a site's share; None for a site without an interval, and for a rule
    without uncertainty."""


def allocate(results: Mapping[str, Any], budget: str, floor: str = "0%", cap: str = "100%") -> dict[str, Payout]:
    """A run's results as payouts by every rule."""
    total = money(budget)
    least, most = fraction("--floor", floor), fraction("--cap", cap)
    n = len(results["contributions"])
    if least * n > 1:
        raise ConfigError(f"--floor {floor}: {n} sites with at least {floor} each would get more than the budget")
    if most * n < 1:
        raise ConfigError(f"--cap {cap}: {n} sites with at most {cap} each would get less than the budget")
    if least > most:
        raise ConfigError(f"--floor {floor} is above --cap {cap}")
    return {rule: _payout(rule, results, total, least, most) for rule in rules_for(results)}


def rules_for(results: Mapping[str, Any]) -> list[str]:
    """The rules by which a run can be paid: those that rest on worth only if it was measured."""
    measured = (results.get("worth") or {}).get("share") is not None
    return [rule for rule in RULES if measured or rule not in BY_WORTH]


def check_measured(rule: str, results: Mapping[str, Any]) -> None:
    if rule not in rules_for(results):
        reason = (results.get("worth") or {}).get("reason") or "an earlier version did not measure it"
        raise RunError(
            f"--rule {rule}: what each site gives to the others was not measured ({reason}); choose --rule "
            "contribution, which with FedCE pays by what a site needs, or samples or equal"
        )


def check_rule(rule: str) -> None:
    if rule not in RULES:
        raise ConfigError(f"--rule: unknown rule {rule!r}{nearest(rule, RULES)}; known: {', '.join(RULES)}")


def doubts_of(rule: str, results: Mapping[str, Any]) -> list[str]:
    """Why no site should be paid by this rule; rules that rest on no measurement raise no doubt."""
    if rule in ("samples", "equal"):
        return []
    doubts = []
    if rule in BY_WORTH:
        if unmeasured := results["worth"].get("unmeasured"):
            doubts.append(f"what {some_of(unmeasured)} gives was not measured")
        if not is_told(results["worth"]):
            doubts.append("the sites differ by no more than noise in what they give to each other")
        elif not any_apart(results["worth"]):
            doubts.append("no two sites can be told apart by the intervals of what they give to each other")
    elif not (intervals := results.get("intervals")):
        reason = results.get("no_intervals") or "too few rounds, or shares that are not means over rounds"
        doubts.append(f"the contributions have no intervals ({reason})")
    elif not told_apart(intervals):
        doubts.append("no two sites can be told apart by the intervals of their contributions")
    if not better_than_at_first(results):
        doubts.append(
            "at no site is the final model's validation Dice above that of the initial model by more than its interval"
        )
    return doubts


def any_apart(worth: Mapping[str, Any]) -> bool:
    """Whether the intervals of what two sites give lie apart, so that one is shown to give more than the other."""
    return bool(max(worth["low"].values()) > min(worth["high"].values()))


def told_apart(intervals: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Pairs of sites whose order is shown by the intervals; a site without an interval is in no such pair."""
    alike = {frozenset(pair) for pair in intervals["indistinguishable"]}
    known = [site for site, low in intervals["low"].items() if low is not None]
    return [pair for pair in combinations(known, 2) if frozenset(pair) not in alike]


def better_than_at_first(results: Mapping[str, Any]) -> list[str]:
    """Sites where the low end of the final model's validation Dice is above the initial model's validation Dice."""
    initial: Mapping[str, float | None] = results["initial_dice"]
    final: Mapping[str, Sequence[float] | None] = results.get("validation_interval", {})
    return [
        site
        for site, interval in final.items()
        if interval is not None and (before := initial.get(site)) is not None and interval[0] > before
    ]


def check_doubts(rule: str, doubts: Sequence[str], yes: bool) -> None:
    if doubts and not yes:
        raise RunError(
            f"no site should be paid by --rule {rule} here: {'; '.join(doubts)}; choose --rule equal or samples, or "
            f"add --yes to allocate by {rule} all the same"
        )


def _payout(rule: str, results: Mapping[str, Any], total: Decimal, floor: float, cap: float) -> Payout:
    shares = bounded(raw_shares(rule, results), floor, cap)
    amounts = in_cents(shares, total)
    found = results["worth"] if rule in BY_WORTH else results["intervals"] if rule == "contribution" else None
    if not found:
        return Payout(rule, shares, amounts, None, None)
    low, high = (
        {site: _end(rule, site, found[side].get(site), results, (floor, cap), total) for site in shares}
        for side in ("low", "high")
    )
    # The cents that are left over may lie beyond a rounded end.
    low = {site: end if end is None else min(end, amounts[site]) for site, end in low.items()}
    high = {site: end if end is None else max(end, amounts[site]) for site, end in high.items()}
    return Payout(rule, shares, amounts, low, high)


def _end(
    rule: str, site: str, share: float | None, results: Mapping[str, Any], bounds: tuple[float, float], total: Decimal
) -> Decimal | None:
    """The amount at one end of a site's interval, if the other sites shared the rest as they do now."""
    if share is None:
        return None
    raw = raw_shares(rule, results)
    end = (share + 1 / len(raw)) / 2 if rule == "mix" else share
    rest = sum(value for other, value in raw.items() if other != site)
    even = (1 - end) / max(len(raw) - 1, 1)
    moved = {other: value * (1 - end) / rest if rest > 0 else even for other, value in raw.items()} | {site: end}
    return (total * Decimal(bounded(moved, *bounds)[site])).quantize(CENT)


def raw_shares(rule: str, results: Mapping[str, Any]) -> dict[str, float]:
    """Shares by a rule, before floor and cap."""
    contributions: Mapping[str, float] = results["contributions"]
    n = len(contributions)
    if rule == "equal":
        return dict.fromkeys(contributions, 1 / n)
    if rule == "samples":
        images = results["train_images_used"]
        total = sum(images.values())
        return {site: images[site] / total if total else 1 / n for site in contributions}
    if rule == "contribution":
        return dict(contributions)
    gives = {site: results["worth"]["share"].get(site, 0.0) for site in contributions}
    return gives if rule == "worth" else {site: (share + 1 / n) / 2 for site, share in gives.items()}


def bounded(shares: Mapping[str, float], floor: float, cap: float) -> dict[str, float]:
    """The shares, raised to the floor or cut to the cap where needed; the others keep their proportions.

    Each bound that is hit frees or takes an amount, which the sites between the bounds share in proportion; this may
    push another site over a bound, so the step is repeated: at most once for each site.
    """
    fixed: dict[str, float] = {}
    while True:
        free = {site: share for site, share in shares.items() if site not in fixed}
        rest = 1 - sum(fixed.values())
        whole = sum(free.values())
        scaled = {site: rest * (share / whole if whole > 0 else 1 / len(free)) for site, share in free.items()}
        # Only one kind of bound at a time, the one with the larger amount: fixing both may fix too many sites.
        under = {site: floor for site, share in scaled.items() if share < floor}
        over = {site: cap for site, share in scaled.items() if share > cap}
        lacking = sum(floor - scaled[site] for site in under)
        spare = sum(scaled[site] - cap for site in over)
        hit = under if lacking >= spare else over
        if not hit:
            return {site: fixed.get(site, scaled.get(site, 0.0)) for site in shares}
        fixed |= hit


def in_cents(shares: Mapping[str, float], total: Decimal) -> dict[str, Decimal]:
    """Whole cents that sum to the total: rounded down, then a cent more for the largest remainders (ties by name)."""
    exact = {site: total * Decimal(share) for site, share in shares.items()}
    amounts = {site: _cents(amount) for site, amount in exact.items()}
    missing = int((total - sum(amounts.values(), Decimal(0))) / CENT)
    # Shares carry the noise of floating point, which must not decide between equal remainders.
    by_remainder = sorted(exact, key=lambda site: (round(amounts[site] - exact[site], 8), site))
    for i in range(missing):
        amounts[by_remainder[i % len(by_remainder)]] += CENT
    return amounts


def _cents(amount: Decimal) -> Decimal:
    return amount.quantize(CENT, ROUND_FLOOR)


def money(text: str) -> Decimal:
    """An amount in whole cents, above 0."""
    try:
        amount = Decimal(text.replace("_", ""))
        if amount.is_finite() and amount > 0 and amount == amount.quantize(CENT):
            return amount.quantize(CENT)
    except ArithmeticError:
        pass
    raise ConfigError(f"--budget: expected an amount above 0 in whole cents, such as 100000 or 2500.50, got {text!r}")


def fraction(option: str, text: str) -> float:
    """ "2%" or "0.02" as 0.02."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        if 0 <= value <= 1:
            return value
    except ValueError:
        pass
    raise ConfigError(f"{option}: expected a share such as 2% or 0.02, got {text!r}")
