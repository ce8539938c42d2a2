"""What the terminal shows: a live line while a run goes on, a table at its end."""

import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from statistics import median
from textwrap import fill
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

from rich.cells import cell_len
from rich.console import Console, JustifyMethod, RenderableType
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from fedce.words import cell_text, duration, printable

if TYPE_CHECKING:
    from fedce.allocation import Payout
    from fedce.compare import Row
    from fedce.config import Config
    from fedce.data.inspection import Inspection, SiteFacts
    from fedce.data.prepare import Summary
    from fedce.doctor import Finding
    from fedce.experiment import RoundSeen
    from fedce.jobs import Progress as JobsProgress
    from fedce.jobs import Store
    from fedce.messages import Member
    from fedce.studies import Outcome
    from fedce.value import Truth, Valuation

BAR_WIDTH = 10
BETWEEN = " | "
"""Two columns."""
MOST_ROWS = 30
"""Of the table at a run's end."""


def safe_text(text: str, style: str = "") -> Text:
    """Text with names and reasons that sites may have written: nothing in it can do anything to the terminal."""
    return Text(printable(text, kept="\n"), style)


class _Terminal:
    """Progress and notices on stderr, so that stdout stays clean for results."""

    def __init__(self, quiet: bool) -> None:
        self.console = Console(stderr=True, quiet=quiet, highlight=False)
        self.stdout = Console(quiet=quiet, highlight=False)

    def notice(self, message: str) -> None:
        self.console.print(Text(f"... {printable(message)}", "dim"), soft_wrap=True)


class Display(_Terminal):
    """One run."""

    def __init__(self, quiet: bool, out: Path) -> None:
        super().__init__(quiet)
        self.out = out
        self.progress = Progress(
            TextColumn("round {task.completed:.0f}/{task.total:.0f}"),
            BarColumn(bar_width=20),
            TextColumn("{task.description}"),
            console=self.console,
            transient=True,
            # Workers are forked before the first line is drawn; a thread that redraws would make that unsafe.
            auto_refresh=False,
        )
        self.task: Any = None
        self.sites: tuple[str, ...] = ()
        self.started = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        if self.progress.live.is_started:
            self.progress.stop()

    def start(self, config: "Config", members: "Mapping[str, Member]", first_round: int) -> None:
        counts = ", ".join(f"{name} {member.n_images}" for name, member in members.items())
        self.console.print(
            safe_text(
                f"{config.algorithm.name} on {config.data.source}: {len(members)} sites ({counts} images), "
                f"{config.n_rounds} rounds, seed {config.seed}"
            ),
            soft_wrap=True,
        )
        self.sites = tuple(members)
        self.task = self.progress.add_task("", total=config.n_rounds, completed=first_round)
        self.first_round = first_round
        self.started = monotonic()
        self.progress.start()

    def round(self, done: "RoundSeen") -> None:
        n_done = done.round_no + 1
        task = self.progress.tasks[0]
        rate = (monotonic() - self.started) / (n_done - self.first_round)
        left = rate * ((task.total or n_done) - n_done)
        # In the first line's order: where sites are drawn, shares come in the order of the draws, and some later.
        sites = (*self.sites, *sorted(done.shares.keys() - set(self.sites)))  # Who joined late comes last.
        shares = " ".join(f"{100 * done.shares[site]:.0f}" if site in done.shares else "-" for site in sites)
        line = f"Dice {done.mean_score:.3f}  shares % {shares}  {duration(left)} left"
        self.progress.update(self.task, completed=n_done, description=line, refresh=True)
        if not self.console.is_terminal and (n_done % max(1, int(task.total or 1) // 10) == 0):
            self.console.print(f"round {n_done}/{task.total:.0f}  {line}", soft_wrap=True)

    def finish(self, results: Mapping[str, Any]) -> None:
        self.stop()
        self.stdout.print(results_table(results, self.stdout.width))
        for line in flag_lines(results):
            self.stdout.print(safe_text(line))
        fairness = results["fairness"]
        self.stdout.print(
            f"mean Dice {fairness['mean']:.3f}, standard deviation over sites {fairness['std']:.3f}, "
            f"worst site {fairness['worst']:.3f}; {duration(results['seconds'])} of training"
        )
        for sentence in interval_lines(results):
            self.stdout.print(safe_text(sentence))
        self.stdout.print(safe_text(f"report: {self.out / 'report.html'}"), soft_wrap=True)


class JobsDisplay(_Terminal):
    """Progress of many trainings."""

    def __init__(self, quiet: bool) -> None:
        super().__init__(quiet)
        # No thread that redraws: trainings are forked while the bar is shown.
        columns = (BarColumn(bar_width=20), TextColumn("{task.description}"))
        self.bar = Progress(*columns, console=self.console, transient=True, auto_refresh=False)
        self.started = monotonic()
        self.first: int | None = None
        self.last_tenth = -1
        self.last = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar.live.is_started:
            self.bar.stop()

    def estimate(self, store: "Store", configs: "Sequence[Config]", workers: int, ask: bool) -> None:
        """Say how much there is to do before it is done."""
        from fedce.engines.local import default_workers

        missing = store.missing(configs)
        n_rounds = sum(config.n_rounds for config in missing)
        kept = len(configs) - len(missing)
        per_round = store.seconds_a_round(configs)
        parallel = workers or default_workers(len(missing) or 1)
        time = f", about {duration(n_rounds * per_round / parallel)}" if per_round else ""
        self.notice(f"{len(configs)} trainings, {kept} of them kept; {n_rounds} rounds to do{time}")
        if ask and n_rounds and sys.stdin.isatty():
            import click

            click.confirm("go on?", abort=True, err=True)

    def progress(self, now: "JobsProgress") -> None:
        if self.first is None or now.rounds_done < self.last:
            self.first, self.started, self.last_tenth = now.rounds_done, monotonic(), -1
            for task in self.bar.task_ids:
                self.bar.remove_task(task)
            self.bar.add_task("", total=now.n_rounds)
            self.bar.start()
        self.last = now.rounds_done
        new = now.rounds_done - self.first
        left = (monotonic() - self.started) / new * (now.n_rounds - now.rounds_done) if new else None
        line = f"trainings {now.n_done}/{now.n_jobs}, rounds {now.rounds_done}/{now.n_rounds}"
        line += f", {duration(left)} left" if left is not None else ""
        self.bar.update(self.bar.tasks[0].id, completed=now.rounds_done, description=line, refresh=True)
        tenth = 10 * now.rounds_done // max(1, now.n_rounds)
        if not self.console.is_terminal and tenth != self.last_tenth:
            self.last_tenth = tenth
            self.console.print(line, soft_wrap=True)

    def show(self, *results: RenderableType) -> None:
        if self.bar.live.is_started:
            self.bar.stop()
        for result in results:
            self.stdout.print(safe_text(result) if isinstance(result, str) else result)


class FindingsDisplay(_Terminal):
    """What the doctor finds, as it finds it."""

    STYLES: ClassVar = {"ok": "green", "warning": "yellow", "problem": "bold red"}

    def show(self, finding: "Finding") -> None:
        line = Text.assemble(
            (f"{finding.verdict:8}", self.STYLES[finding.verdict]), printable(f"{finding.what}: {finding.found}")
        )
        self.stdout.print(line, soft_wrap=True)
        if finding.advice:
            self.stdout.print(safe_text(f"        -> {finding.advice}"), soft_wrap=True)

    def finish(self, ready: bool) -> None:
        self.stdout.print("ready to run" if ready else "not ready: mend the problems above", soft_wrap=True)


def value_table(found: "Valuation") -> Table:
    """The truth beside the estimate."""
    agreement = found.agreement
    title = ", ".join(f"{name} {_number(value)}" for name, value in vars(agreement).items())
    table = Table(title=f"{found.method} against contributions: {title}", title_justify="left")
    for name in ("site", "worth (Dice)", "truth, share", "contribution"):
        table.add_column(name, justify="left" if name == "site" else "right")
    for site, worth in found.values.items():
        share = f"{100 * found.shares[site]:.1f} %" + (" (clipped)" if site in found.clipped else "")
        table.add_row(safe_text(site), f"{worth:+.4f}", share, f"{100 * found.estimate[site]:.1f} %")
    return table


def inspection_table(found: "Inspection") -> Table:
    """One row a site: what it has, and how far its grey values are from the others'."""
    table = Table(
        title="train/validation/test images; marked area, median; distance of grey values", title_justify="left"
    )
    table.add_column("site")
    rows = [_inspection_cells(site, distance) for site, distance in zip(found.sites, found.mean_distances, strict=True)]
    # Eighty characters are few: no column that says nothing new.
    silent = {"cases"} if all(row["cases"] == row["images"] for row in rows) else set()
    silent |= set() if any(row["mm"] for row in rows) else {"mm"}
    names = [name for name in rows[0] if name not in silent]
    for name in names:
        # Numbers stay whole in a narrow terminal; the name of a class gives way.
        table.add_column(safe_text(name), justify="right", no_wrap=not name.endswith(", %"), overflow="fold")
    for site, row in zip(found.sites, rows, strict=True):
        table.add_row(safe_text(site.name), *(row[name] for name in names))
    return table


def _inspection_cells(site: "SiteFacts", distance: float) -> dict[str, str]:
    sizes = (f"{height}x{width}" for height, width in (site.sizes[0], site.sizes[-1]))
    spacing = (f"{pixel:.2f}" for pixel in site.spacing or ())
    return {
        "images": str(site.n_images),
        "cases": str(site.n_cases),
        "split": "/".join(str(n) for n in site.n_by_part.values()),
        "size": " ".join(dict.fromkeys(sizes)),
        "mm": " ".join(dict.fromkeys(spacing)),
        "grey": f"{site.grey.mean.mean():.0f}±{site.grey.std.mean():.0f}",
        **{f"{name}, %": f"{100 * median(areas):.1f}" for name, areas in site.areas.items()},
        "distance": f"{distance:.1f}",
    }


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3f}"


def truth_table(truth: "Truth") -> Table:
    """What the sites are worth by retraining, and how far that can be trusted."""
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


class Wide(Protocol):
    """A table of text that may be wider than the terminal."""

    @property
    def header(self) -> Sequence[str]: ...
    @property
    def cells(self) -> Sequence[Sequence[str]]: ...
    @property
    def n_keys(self) -> int: ...


class Cells(NamedTuple):
    header: Sequence[str]
    cells: Sequence[Sequence[str]]
    n_keys: int = 1
    """The first columns, which say what a row is about."""


def tables_that_fit(found: Wide, width: int, title: str) -> list[Table]:
    """A table that is wider than the terminal goes on below itself, with every number whole."""
    columns = _columns(found)
    tables: list[Table] = []
    for piece in columns_that_fit(found, width):
        table = Table(title=None if tables else safe_text(title), title_justify="left")
        is_roomy = sum(_width(columns[i], found.header[i]) for i in piece) < width
        for i in piece:
            header, room = found.header[i], _width(columns[i], *found.header[i].split()) - len(BETWEEN)
            # Broken here, between words, because rich breaks headers only where it may cut the numbers, too.
            shown = header if is_roomy else fill(header, room, break_long_words=False, break_on_hyphens=False)
            is_key, is_text = i < found.n_keys, room > width // 2
            justify: JustifyMethod = "left" if is_key else "right"
            table.add_column(safe_text(shown), justify=justify, no_wrap=not (is_key or is_text), overflow="fold")
        for line in found.cells:
            table.add_row(*(safe_text(line[i]) for i in piece))
        tables.append(table)
    return tables


def columns_that_fit(table: Wide, width: int) -> list[list[int]]:
    """Columns of one piece after the other; each piece begins with the columns that say what a row is about."""
    widths = [_width(column, *name.split()) for name, column in zip(table.header, _columns(table), strict=True)]
    keys = list(range(table.n_keys))
    pieces = [[*keys]]
    for i in range(table.n_keys, len(widths)):
        if pieces[-1] != keys and sum(widths[j] for j in [*pieces[-1], i]) >= width:
            pieces.append([*keys])
        pieces[-1].append(i)
    return pieces


def _columns(table: Wide) -> list[list[str]]:
    return [[line[i] for line in table.cells] for i in range(len(table.header))]


def _width(cells: Sequence[str], *header: str) -> int:
    """Of a column, with what divides it from the next; `header` are the lines of its name."""
    return max(cell_len(text) for text in (*header, *cells, " ")) + len(BETWEEN)


def allocation_table(payouts: "Mapping[str, Payout]", rule: str) -> None:
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
    console = Console(highlight=False)
    title = f"amounts by {rule}, and what other rules would change"
    for table in tables_that_fit(Cells(header, rows), console.width, title):
        table.rows[-1].style = "bold"
        console.print(table)


def study_tables(outcomes: "Sequence[Outcome]", width: int) -> list[RenderableType]:
    """Findings and tables, study by study."""
    shown: list[RenderableType] = []
    for outcome in outcomes:
        shown.append(safe_text(f"\n{outcome.title}", "bold"))
        shown += [safe_text(finding) for finding in outcome.findings]
        for found in outcome.tables:
            shown += tables_that_fit(found, width, found.title)
    return shown


def compare_tables(rows: "Sequence[Row]") -> list[Table]:
    """The comparison in two pieces: Dice by site, then everything else that there is."""
    from fedce.compare import table as cells_of

    header, lines = cells_of(rows)
    # Files have room for the whole name.
    header = [name.replace("Standalone", "alone") for name in header]
    cells = [[cell.split(" ± ")[0] for cell in line] for line in lines]
    n_dice = 1 + len(rows[0].dice) + 2
    rest = [0, *(i for i in range(n_dice, len(header)) if any(line[i] != "-" for line in cells))]
    tables = []
    for title, columns in (("Dice, %", range(n_dice)), ("fairness, agreement with the truth, cost", rest)):
        part = Cells([header[i] for i in columns], [[line[i] for i in columns] for line in cells])
        tables += tables_that_fit(part, Console().width, title)
    return tables


def prepared_table(summary: "Summary") -> Table:
    """One row a source: what was found of what is published, and where to get what is missing."""
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
    taken = sum(_width(column, *name.split()) for name, column in zip(names, columns, strict=True)) + 1
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


def bar(fraction: float, width: int = BAR_WIDTH) -> str:
    """A bar of text, to an eighth of a character; plain where the terminal can't show those."""
    if "utf" not in (sys.stdout.encoding or "").lower():
        return "#" * round(fraction * width)
    eighths = round(fraction * width * 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
