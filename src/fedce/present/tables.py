"""The terminal's tables for commands about runs and data; the table of a run's end is in `results`."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.table import Table

from fedce.present.terminal import Cells, Wide, safe_text, tables_that_fit

if TYPE_CHECKING:
    from rich.console import JustifyMethod

    from fedce.data.inspection import Inspection
    from fedce.data.prepare import Summary
    from fedce.questions.allocation import Payout
    from fedce.questions.candidate import Candidacy
    from fedce.questions.compare import Row
    from fedce.questions.value import Truth, Valuation
    from fedce.studies import Outcome


def value_table(found: "Valuation") -> Table:
    """The true values and the estimated contributions."""
    title = "\n".join(found.sentences)
    table = Table(title=title, title_justify="left")
    for name in ("site", "lost without it", "truth, share", "contribution", *(["worth.all"] if found.worth else [])):
        table.add_column(name, justify="left" if name == "site" else "right")
    for site, lost in found.values.items():
        share = f"{100 * found.shares[site]:.1f} %" + (" (clipped)" if site in found.clipped else "")
        given = [f"{100 * found.worth.get(site, 0.0):.1f} %"] if found.worth else []
        table.add_row(safe_text(site), f"{lost:+.4f}", share, f"{100 * found.estimate[site]:.1f} %", *given)
    return table


def candidate_table(found: "Candidacy") -> list[Table]:
    """What each member would gain; nothing if it can't be told."""
    if not found.by_member:
        return []
    table = Table(title=safe_text(found.how), title_justify="left")
    table.add_column("site")
    table.add_column("gain, points of Dice", justify="right")
    for site, gain in found.by_member.items():
        table.add_row(safe_text(site), f"{100 * gain:+.2f}")
    return [table]


def truth_table(truth: "Truth") -> Table:
    """The sites' values by retraining, and how reliable they are."""
    caption = None
    if truth.reliability is not None:
        caption = (
            f"Two seeds' values correlate by {truth.reliability.between_seeds:.2f}, so even a perfect estimate "
            f"would be expected to reach no more than {truth.reliability.ceiling:.2f} against their mean."
        )
    table = Table(title=f"{truth.method} by {truth.by}, points of mean Dice", title_justify="left", caption=caption)
    table.add_column("site")
    for seed in truth.by_seed:
        table.add_column(f"seed {seed}", justify="right")
    table.add_column("mean", justify="right")
    table.add_column("share", justify="right")
    for site, worth in truth.values.items():
        cells = [f"{100 * values[site]:+.2f}" for values in truth.by_seed.values()]
        table.add_row(safe_text(site), *cells, f"{100 * worth:+.2f}", f"{100 * truth.shares[site]:.1f} %")
    return table


def compare_tables(rows: "Sequence[Row]", width: int) -> list[Table]:
    """The comparison in parts: Dice by site, the other metrics by site, then all other columns."""
    from fedce.questions.compare import table as cells_of
    from fedce.questions.compare import tables_by_site

    header, lines = cells_of(rows)
    # Short names here; files have room for whole names.
    header = [name.replace("Standalone", "alone") for name in header]
    cells = [[cell.split(" ± ")[0] for cell in line] for line in lines]
    n_dice = 1 + len(rows[0].dice) + 2
    n_metrics = n_dice + len(rows[0].metrics)
    rest = [0, *(i for i in range(n_metrics, len(header)) if any(line[i] != "-" for line in cells))]
    pieces: list[tuple[Wide, str]] = [
        (Cells([header[i] for i in columns], [[line[i] for i in columns] for line in cells]), title)
        for columns, title in ((range(n_dice), "Dice, %"), (rest, "fairness, agreement with the truth, cost"))
    ]
    pieces[1:1] = [(found, found.title) for found in tables_by_site(rows)]
    return [table for part, title in pieces for table in tables_that_fit(part, width, title)]


def allocation_tables(payouts: "Mapping[str, Payout]", rule: str, width: int) -> list[Table]:
    """The chosen rule with intervals, and what each other rule would change."""
    chosen = payouts[rule]
    others = [name for name in payouts if name != rule]
    rows = []
    for site, amount in chosen.amounts.items():
        low, high = (ends[site] if ends else None for ends in (chosen.low, chosen.high))
        interval = "-" if low is None or high is None else f"{low:,} to {high:,}"
        changes = [f"{payouts[name].amounts[site] - amount:+,}" for name in others]
        rows.append([site, f"{100 * chosen.shares[site]:.1f} %", f"{amount:,}", interval, *changes])
    sums = [sum(payouts[name].amounts.values(), Decimal(0)) for name in (rule, *others)]
    rows.append(["sum", "", f"{sums[0]:,}", "", *(f"{other - sums[0]:+,}" for other in sums[1:])])
    header = ["site", "share", "amount", "95 % interval", *(f"by {name}" for name in others)]
    title = f"amounts by {rule}, and what other rules would change"
    tables = tables_that_fit(Cells(header, rows), width, title)
    for table in tables:
        table.rows[-1].style = "bold"
    return tables


def study_tables(outcomes: "Sequence[Outcome]", width: int) -> list[RenderableType]:
    """Findings and tables, study by study."""
    shown: list[RenderableType] = []
    for outcome in outcomes:
        shown.append(safe_text(f"\n{outcome.title}", "bold"))
        shown += [safe_text(finding) for finding in outcome.findings]
        for found in outcome.tables:
            shown += tables_that_fit(found, width, found.title)
    return shown


def inspection_table(found: "Inspection") -> Table:
    """A row for each site: its data, and the distance of its grey values from the other sites'."""
    from fedce.present.facts import facts_table

    table = Table(
        title=f"train/validation/test {found.counted}; marked area, median; distance of grey values",
        title_justify="left",
    )
    facts = facts_table(found, "terminal")
    for name, kind in facts.titles:
        # In a narrow terminal, the names of sites and classes are shortened; numbers stay whole.
        is_whole = kind == "number" and not name.endswith(", %")
        justify: JustifyMethod = "left" if kind == "key" else "right"
        table.add_column(safe_text(name), justify=justify, no_wrap=is_whole, overflow="fold")
    for row in facts.rows:
        table.add_row(*(safe_text(cell.text) for cell in row))
    return table


def prepared_table(summary: "Summary") -> Table:
    """A row for each source: how many published cases were found, and where to get missing ones."""
    table = Table(title=safe_text(f"prepared in {summary.out}"), title_justify="left")
    for name in ("site", "cases", "published", "images", "unmatched"):
        table.add_column(name, justify="left" if name == "site" else "right")
    table.add_column("note")
    for site in summary.sites:
        note = ""
        if site.missing:
            note = f"missing; get it from {site.source.url}"
        elif more := site.n_found - site.n_published:
            note = f"{abs(more)} {'more' if more > 0 else 'fewer'} than published"
        if site.left_out:
            note += f"{'; ' if note else ''}{len(site.left_out)} known to be broken, left out"
        numbers = (site.n_found, site.n_published, site.n_images, len(site.unmatched))
        table.add_row(safe_text(site.source.site), *(str(number) for number in numbers), safe_text(note))
    return table
