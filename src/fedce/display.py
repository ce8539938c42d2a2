"""What the terminal shows: a live line while a run goes on, a table at its end."""

import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from statistics import median
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from fedce.words import duration

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
    from fedce.studies import Table as StudyTable
    from fedce.value import Truth, Valuation

BAR_WIDTH = 10
MOST_ROWS = 30
"""Of the table at a run's end."""


class _Terminal:
    """Progress and notices on stderr, so that stdout stays clean for results."""

    def __init__(self, quiet: bool) -> None:
        self.console = Console(stderr=True, quiet=quiet, highlight=False)
        self.stdout = Console(quiet=quiet, highlight=False)

    def notice(self, message: str) -> None:
        self.console.print(Text(f"... {message}", "dim"), soft_wrap=True)


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
            Text(
                f"{config.algorithm.name} on {config.data.source}: {len(members)} sites ({counts} images), "
                f"{config.n_rounds} rounds, seed {config.seed}"
            ),
            soft_wrap=True,
        )
        self.task = self.progress.add_task("", total=config.n_rounds, completed=first_round)
        self.first_round = first_round
        self.started = monotonic()
        self.progress.start()

    def round(self, done: "RoundSeen") -> None:
        n_done = done.round_no + 1
        task = self.progress.tasks[0]
        rate = (monotonic() - self.started) / (n_done - self.first_round)
        left = rate * ((task.total or n_done) - n_done)
        shares = " ".join(f"{100 * share:.0f}" for share in done.shares.values())
        line = f"Dice {done.mean_score:.3f}  shares % {shares}  {duration(left)} left"
        self.progress.update(self.task, completed=n_done, description=line, refresh=True)
        if not self.console.is_terminal and (n_done % max(1, int(task.total or 1) // 10) == 0):
            self.console.print(f"round {n_done}/{task.total:.0f}  {line}", soft_wrap=True)

    def finish(self, results: Mapping[str, Any]) -> None:
        self.stop()
        self.stdout.print(results_table(results))
        fairness = results["fairness"]
        self.stdout.print(
            f"mean Dice {fairness['mean']:.3f}, standard deviation over sites {fairness['std']:.3f}, "
            f"worst site {fairness['worst']:.3f}; {duration(results['seconds'])} of training"
        )
        for sentence in (results["intervals"] or {"sentences": []})["sentences"]:
            self.stdout.print(Text(sentence))
        self.stdout.print(Text(f"report: {self.out / 'report.html'}"), soft_wrap=True)


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
            self.stdout.print(Text(result) if isinstance(result, str) else result)


class FindingsDisplay(_Terminal):
    """What the doctor finds, as it finds it."""

    STYLES: ClassVar = {"ok": "green", "warning": "yellow", "problem": "bold red"}

    def show(self, finding: "Finding") -> None:
        line = Text.assemble((f"{finding.verdict:8}", self.STYLES[finding.verdict]), f"{finding.what}: {finding.found}")
        self.stdout.print(line, soft_wrap=True)
        if finding.advice:
            self.stdout.print(Text(f"        -> {finding.advice}"), soft_wrap=True)

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
        table.add_row(Text(site), f"{worth:+.4f}", share, f"{100 * found.estimate[site]:.1f} %")
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
        table.add_column(Text(name), justify="right", no_wrap=not name.endswith(", %"), overflow="fold")
    for site, row in zip(found.sites, rows, strict=True):
        table.add_row(Text(site.name), *(row[name] for name in names))
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
        table.add_row(Text(site), *cells, f"{100 * worth:+.2f}", f"{100 * truth.shares[site]:.1f} %")
    return table


def allocation_table(payouts: "Mapping[str, Payout]", rule: str) -> None:
    """The chosen rule with intervals, and what each other rule would change."""
    chosen = payouts[rule]
    table = Table(title=f"amounts by {rule}, and what other rules would change", title_justify="left")
    table.add_column("site")
    table.add_column("share", justify="right")
    table.add_column("amount", justify="right")
    table.add_column("95 % interval", justify="right")
    others = [name for name in payouts if name != rule]
    for name in others:
        table.add_column(f"by {name}", justify="right")
    for site, amount in chosen.amounts.items():
        interval = f"{chosen.low[site]:,} to {chosen.high[site]:,}" if chosen.low and chosen.high else "-"
        changes = [f"{payouts[name].amounts[site] - amount:+,}" for name in others]
        table.add_row(Text(site), f"{100 * chosen.shares[site]:.1f} %", f"{amount:,}", interval, *changes)
    table.add_row("sum", "", f"{sum(chosen.amounts.values(), Decimal(0)):,}", "", *([""] * len(others)), style="bold")
    Console(highlight=False).print(table)


def study_tables(outcomes: "Sequence[Outcome]", width: int) -> list[RenderableType]:
    """Findings and tables, study by study; a table that is wider than the terminal goes on below itself."""
    shown: list[RenderableType] = []
    for outcome in outcomes:
        shown.append(Text(f"\n{outcome.title}", "bold"))
        shown += [Text(finding) for finding in outcome.findings]
        for found in outcome.tables:
            for part, columns in enumerate(columns_that_fit(found, width)):
                title = None if part else Text(found.title)
                table = Table(title=title, title_justify="left")
                for i in columns:
                    table.add_column(found.header[i], justify="left" if i < found.n_keys else "right")
                for line in found.cells:
                    table.add_row(*(Text(line[i]) for i in columns))
                shown.append(table)
    return shown


def columns_that_fit(table: "StudyTable", width: int) -> list[list[int]]:
    """Columns of one piece after the other; each piece begins with the columns that say what a row is about."""
    widths = [
        max(*(len(word) for word in name.split()), *(len(line[i]) for line in table.cells), 1) + len(" | ")
        for i, name in enumerate(table.header)
    ]
    keys = list(range(table.n_keys))
    pieces = [[*keys]]
    for i in range(table.n_keys, len(widths)):
        if pieces[-1] != keys and sum(widths[j] for j in [*pieces[-1], i]) >= width:
            pieces.append([*keys])
        pieces[-1].append(i)
    return pieces


def compare_tables(rows: "Sequence[Row]") -> list[Table]:
    """The comparison in two pieces that fit a terminal: Dice by site, then everything else."""
    from fedce.compare import table as cells_of

    header, cells = cells_of(rows)
    n_sites = len(rows[0].dice)
    dice, rest = range(1 + n_sites + 2), [0, *range(3 + n_sites, len(header))]
    tables = []
    for title, columns in (("Dice, %", dice), ("fairness, agreement with the truth, cost", rest)):
        table = Table(title=title, title_justify="left")
        for i in columns:
            table.add_column(header[i], justify="left" if i == 0 else "right")
        for line in cells:
            table.add_row(*(Text(line[i].split(" ± ")[0]) for i in columns))
        tables.append(table)
    return tables


def prepared_table(summary: "Summary") -> Table:
    """One row a source: what was found of what is published, and where to get what is missing."""
    table = Table(title=Text(f"prepared in {summary.out}"), title_justify="left")
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
        table.add_row(Text(site.source.site), *(str(number) for number in numbers), Text(note))
    return table


def results_table(results: Mapping[str, Any]) -> Table:
    """One row a site: what it has, what the model does for it, what it contributed."""
    title = f"{results['algorithm']} on {Path(results['data']).name}, {results['rounds']} rounds"
    table = Table(title=Text(title), title_justify="left")
    for name, justify in (("site", "left"), ("images", "right"), ("Dice", "right"), ("Dice without", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    table.add_column("contribution", no_wrap=True)
    table.add_column("flags")
    largest = max(results["contributions"].values())
    shares = list(results["contributions"].items())
    if len(shares) > MOST_ROWS:
        table.caption = f"the {MOST_ROWS} largest contributions of {len(shares)}; the others are in the report"
        shares = sorted(shares, key=lambda item: -item[1])[:MOST_ROWS]
    for site, share in shares:
        without = results["dice_without"][site]
        table.add_row(
            Text(site),
            str(results["images"][site]),
            f"{results['dice'][site]:.3f}",
            f"{without:.3f}" if without is not None else "-",
            f"{100 * share:5.1f} % " + _interval(results, site) + bar(share / largest),
            Text("; ".join(results["flags"].get(site, []))),
        )
    return table


def _interval(results: Mapping[str, Any], site: str) -> str:
    """The 95 % interval, where there is one."""
    found = results["intervals"]
    if not found:
        return ""
    low, high = found["low"].get(site, 0.0), found["high"].get(site, 0.0)
    return f"{f'({100 * low:.1f}-{100 * high:.1f})':<12} "


def bar(fraction: float) -> str:
    """A bar of text, to an eighth of a character; plain where the terminal can't show those."""
    if "utf" not in (sys.stdout.encoding or "").lower():
        return "#" * round(fraction * BAR_WIDTH)
    eighths = round(fraction * BAR_WIDTH * 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
