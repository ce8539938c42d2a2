"""What the terminal shows at a run's end: a row a site, what to look at, and what can't be told apart."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import JustifyMethod
from rich.table import Table

from fedce.present.terminal import BAR_WIDTH, bar, column_width, safe_text
from fedce.words import cell_text

MOST_ROWS = 30
"""More sites are in the report alone."""


def results_table(results: Mapping[str, Any], width: int) -> Table:
    """One row a site: what it has, what the model does for it, what it contributed."""
    title = f"{results['algorithm']} on {Path(results['data']).name}, {results['rounds']} rounds"
    table = Table(title=safe_text(title), title_justify="left")
    shares = list(results["contributions"].items())
    if len(shares) > MOST_ROWS:
        table.caption = f"the {MOST_ROWS} largest contributions of {len(shares)}; the others are in the report"
        shares = sorted(shares, key=lambda item: -item[1])[:MOST_ROWS]
    rows = [
        (
            site,
            str(results["images"][site]),
            # A site that was absent at the end has a share and no Dice.
            cell_text(results["dice"].get(site), 3) + _dice_interval(results, site),
            cell_text(results["dice_without"].get(site), 3),
            f"{100 * share:5.1f} % " + _interval(results, site),
        )
        for site, share in shares
    ]
    names = ("site", "images", "Dice", "Dice\nwithout", "contribution")
    # In a narrow terminal the bar gives way, then a long name goes on below itself; numbers stay whole.
    columns = zip(*rows, strict=True)
    taken = sum(column_width(column, *name.split()) for name, column in zip(names, columns, strict=True)) + 1
    longest_bar = max(0, min(BAR_WIDTH, width - taken))
    for i, name in enumerate(names):
        justify: JustifyMethod = "right" if name in names[1:-1] else "left"
        table.add_column(name, justify=justify, no_wrap=i > 0, overflow="fold")
    largest = max(results["contributions"].values())
    for (site, *cells, contribution), (_, share) in zip(rows, shares, strict=True):
        table.add_row(safe_text(site), *cells, contribution + bar(share / largest, longest_bar))
    return table


def flag_lines(results: Mapping[str, Any]) -> list[str]:
    """What a reader should look at, a line a site in the table's order; too long for a column."""
    flags = results["flags"]
    lines = [f"{site}: {'; '.join(flags[site])}" for site in results["contributions"] if flags.get(site)]
    more = [f"{len(lines) - MOST_ROWS} more sites have flags; they are in the report"] if len(lines) > MOST_ROWS else []
    return lines[:MOST_ROWS] + more


def _interval(results: Mapping[str, Any], site: str) -> str:
    """The 95 % interval, where there is one."""
    found = results["intervals"]
    if not found:
        return ""
    low, high = found["low"].get(site), found["high"].get(site)
    # Why there is none stands in its place.
    none = f"({_n_cases(results, 'validation_cases', site) or 'no interval'})"
    return f"{none if low is None or high is None else f'({100 * low:.1f}-{100 * high:.1f})':<12} "


def _dice_interval(results: Mapping[str, Any], site: str) -> str:
    """The 95 % interval of a Dice over the test cases, or their number, where they are too few."""
    # Runs of earlier versions have neither.
    if found := results.get("dice_interval", {}).get(site):
        low, high = (f"{end:.2f}".removeprefix("0") for end in found)
        return f" ({low}-{high})"
    n = _n_cases(results, "test_cases", site)
    return f" ({n})" if n and site in results["dice"] else ""


def _n_cases(results: Mapping[str, Any], key: str, site: str) -> str:
    n = results.get(key, {}).get(site, 0)
    return "" if not n else "1 case" if n == 1 else f"{n} cases"


def interval_lines(results: Mapping[str, Any]) -> list[str]:
    """Who can't be told apart, and why there are no intervals where there are none."""
    from fedce.scoring import MIN_CASES

    lines = [*results["intervals"]["sentences"]] if results["intervals"] else []
    if reason := results.get("no_intervals"):
        lines.append(f"The contributions have no intervals: {reason}.")
    counts = [n for key in ("validation_cases", "test_cases") for n in results.get(key, {}).values()]
    if any(0 < n < MIN_CASES for n in counts):
        lines.append(f"Below {MIN_CASES} cases there is no interval; brackets then hold the number of cases.")
    return lines
