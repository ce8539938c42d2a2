"""A payout as a page that members can look at together."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path

from fedce.algorithms.titles import printed_name
from fedce.base.files import write_bytes
from fedce.data.shape import counted_as
from fedce.present.columns import presence_lines
from fedce.present.glance import verdict
from fedce.present.meanings import meanings_of_amounts
from fedce.present.pages import page
from fedce.present.sentences import in_doubt
from fedce.present.terms import terms_in_words
from fedce.present.worth import vote_lines
from fedce.questions.allocation import BY_WORTH, Payout, money
from fedce.record.folder import RunFolder
from fedce.record.verify import Checked


def write_allocation(
    run: RunFolder,
    found: Checked,
    payouts: Mapping[str, Payout],
    rule: str,
    bounds: tuple[str, str, str],
    overridden: Sequence[str],
    out: Path | None,
) -> Path:
    """Write the page. `bounds` are budget, floor and cap; `overridden` are the reasons against paying by the rule."""
    chosen = payouts[rule]
    budget, floor, cap = bounds
    path = out or run.path / "allocation.html"
    content = page(
        "allocation.html.j2",
        name=run.path.resolve().name,
        data_name=Path(found.results["data"]).name,
        method=printed_name(run.config.algorithm),
        results=found.results,
        counted=counted_as(run.config.data),
        rule=rule,
        budget=f"{money(budget):,}",
        total=f"{sum(chosen.amounts.values(), Decimal(0)):,}",
        floor=floor,
        cap=cap,
        intervals=chosen.low is not None,
        verdict=verdict(found.results),
        meanings=meanings_of_amounts(found.results, gives="worth" in payouts, intervals=chosen.low is not None),
        terms=terms_in_words(found.results["algorithm"], run.rounds()),
        summary=[
            *override(overridden),
            *summary(payouts, rule),
            *(presence_lines(found.results) if rule in ("contribution", *BY_WORTH) else []),
            *(vote_lines(found.results) if rule in BY_WORTH else []),
            *in_doubt(found.doubt),
        ],
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
        "low": _amount(chosen.low, site),
        "high": _amount(chosen.high, site),
        "by_rule": {name: f"{payout.amounts[site]:,}" for name, payout in payouts.items()},
        "change": {name: f"{payout.amounts[site] - amount:+,}" for name, payout in payouts.items()},
    }


def _amount(ends: Mapping[str, Decimal | None] | None, site: str) -> str:
    amount = ends[site] if ends else None
    return "no interval" if amount is None else f"{amount:,}"


def override(overridden: Sequence[str]) -> list[str]:
    """A sentence with the warnings that --yes overrode."""
    return [f"Warning, overridden by --yes: {'; '.join(overridden)}."] if overridden else []


def summary(payouts: Mapping[str, Payout], rule: str) -> list[str]:
    """Which site gets most, what is uncertain, and which sites the choice of the rule affects most."""
    chosen = payouts[rule].amounts
    first = max(chosen, key=lambda site: chosen[site])
    sentences = [f"{first} gets the largest amount: {chosen[first]:,}."]
    if widths := _widths(payouts[rule]):
        widest = max(widths, key=lambda site: widths[site][1] - widths[site][0])
        low, high = widths[widest]
        sentences.append(f"The amount of {widest} has the widest interval: {low:,} to {high:,}.")
        if without := [site for site in chosen if site not in widths]:
            sentences.append(f"Sites without an interval: {', '.join(without)}.")
    against = "samples" if rule != "samples" else "contribution"
    changes = {site: payouts[against].amounts[site] - amount for site, amount in chosen.items()}
    gains, loses = max(changes, key=lambda site: changes[site]), min(changes, key=lambda site: changes[site])
    if changes[gains] > 0:
        sentences.append(
            f"By the rule {against} instead, {gains} would get {changes[gains]:,} more and {loses} "
            f"{-changes[loses]:,} less."
        )
    return sentences


def _widths(payout: Payout) -> dict[str, tuple[Decimal, Decimal]]:
    """The intervals of those sites that have one."""
    ends = {site: (low, (payout.high or {}).get(site)) for site, low in (payout.low or {}).items()}
    return {site: (low, high) for site, (low, high) in ends.items() if low is not None and high is not None}
