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
        "low": f"{chosen.low[site]:,}" if chosen.low else "",
        "high": f"{chosen.high[site]:,}" if chosen.high else "",
        "by_rule": {name: f"{payout.amounts[site]:,}" for name, payout in payouts.items()},
        "change": {name: f"{payout.amounts[site] - amount:+,}" for name, payout in payouts.items()},
    }


def summary(payouts: Mapping[str, Payout], rule: str) -> list[str]:
    """Who gets most, what is uncertain, and whom the choice of the rule touches most."""
    chosen = payouts[rule].amounts
    first = max(chosen, key=lambda site: chosen[site])
    sentences = [f"{first} gets most: {chosen[first]:,}."]
    if (low := payouts[rule].low) and (high := payouts[rule].high):
        widest = max(chosen, key=lambda site: high[site] - low[site])
        sentences.append(f"The widest interval is {widest}'s: {low[widest]:,} to {high[widest]:,}.")
    against = "samples" if rule != "samples" else "contribution"
    changes = {site: payouts[against].amounts[site] - amount for site, amount in chosen.items()}
    gains, loses = max(changes, key=lambda site: changes[site]), min(changes, key=lambda site: changes[site])
    if changes[gains] > 0:
        sentences.append(
            f"By {against} instead, {gains} would get {changes[gains]:,} more and {loses} {-changes[loses]:,} less."
        )
    return sentences
