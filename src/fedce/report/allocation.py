"""A payout as a page that members can look at together."""

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path

from fedce.allocation import Payout, money
from fedce.files import write_bytes
from fedce.record import RunFolder
from fedce.report.pages import page


def write_allocation(
    run: RunFolder, payouts: Mapping[str, Payout], rule: str, budget: str, floor: str, cap: str, out: Path | None
) -> Path:
    chosen = payouts[rule]
    path = out or run.path / "allocation.html"
    content = page(
        "allocation.html.j2",
        name=run.path.resolve().name,
        data_name=Path(run.results["data"]).name,
        results=run.results,
        rule=rule,
        budget=f"{money(budget):,}",
        total=f"{sum(chosen.amounts.values(), Decimal(0)):,}",
        floor=floor,
        cap=cap,
        intervals=chosen.low is not None,
        summary=summary(payouts, rule),
        rules=list(payouts),
        rows=[_row(site, payouts, chosen) for site in chosen.amounts],
    )
    write_bytes(path, content)
    return path


def _row(site: str, payouts: Mapping[str, Payout], chosen: Payout) -> dict[str, object]:
    amount = chosen.amounts[site]
    return {
        "site": site,
        "share": chosen.shares[site],
        "amount": f"{amount:,}",
        "low": _end(chosen.low, site),
        "high": _end(chosen.high, site),
        "by_rule": {name: f"{payout.amounts[site]:,}" for name, payout in payouts.items()},
        "change": {name: f"{payout.amounts[site] - amount:+,}" for name, payout in payouts.items()},
    }


def _end(amounts: Mapping[str, Decimal | None] | None, site: str) -> str:
    amount = amounts[site] if amounts else None
    return "no interval" if amount is None else f"{amount:,}"


def summary(payouts: Mapping[str, Payout], rule: str) -> list[str]:
    """Who gets most, what is uncertain, and whom the choice of the rule touches most."""
    chosen = payouts[rule].amounts
    first = max(chosen, key=lambda site: chosen[site])
    sentences = [f"{first} gets most: {chosen[first]:,}."]
    if (low := payouts[rule].low) and (high := payouts[rule].high):
        ends = {site: (a, b) for site in chosen if (a := low[site]) is not None and (b := high[site]) is not None}
        widest = max(ends, key=lambda site: ends[site][1] - ends[site][0])
        sentences.append("The widest interval is {}'s: {:,} to {:,}.".format(widest, *ends[widest]))
        if without := [site for site in chosen if site not in ends]:
            sentences.append(f"Without an interval: {', '.join(without)}.")
    against = "samples" if rule != "samples" else "contribution"
    changes = {site: payouts[against].amounts[site] - amount for site, amount in chosen.items()}
    gains, loses = max(changes, key=lambda site: changes[site]), min(changes, key=lambda site: changes[site])
    if changes[gains] > 0:
        sentences.append(
            f"By {against} instead, {gains} would get {changes[gains]:,} more and {loses} {-changes[loses]:,} less."
        )
    return sentences
