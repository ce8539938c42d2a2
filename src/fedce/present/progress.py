"""The terminal's display of a run, of many trainings, or of the doctor's findings, while they go on."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar

from rich.progress import BarColumn, TaskID, TextColumn
from rich.text import Text

from fedce.base.words import duration, printable
from fedce.present.terminal import Terminal, safe_text

if TYPE_CHECKING:
    from fedce.base.config import Config
    from fedce.core.messages import Member
    from fedce.federation.session import RoundSeen
    from fedce.questions.doctor import Finding
    from fedce.questions.jobs import Progress, Store


class RunDisplay(Terminal):
    """The display of one run: a line while it goes on, and its results."""

    def __init__(self, quiet: bool, out: Path) -> None:
        rounds = TextColumn("round {task.completed:.0f}/{task.total:.0f}")
        super().__init__(quiet, rounds, BarColumn(bar_width=20), TextColumn("{task.description}"))
        self.out = out
        self.task = TaskID(0)
        self.sites: tuple[str, ...] = ()
        self.first_round = 0
        self.started = 0.0

    def start(self, config: "Config", members: "Mapping[str, Member]", first_round: int) -> None:
        # Not at the top: it imports numpy, and the first notice must not wait for that.
        from fedce.algorithms.titles import printed_name
        from fedce.data.shape import counted_as

        counts = ", ".join(f"{name} {member.n_images}" for name, member in members.items())
        self.console.print(
            safe_text(
                f"{printed_name(config.algorithm)} on {config.data.source}: {len(members)} sites "
                f"({counts} {counted_as(config.data)}), {config.n_rounds} rounds, seed {config.seed}"
            ),
            soft_wrap=True,
        )
        self.sites = tuple(members)
        self.task = self.bar.add_task("", total=config.n_rounds, completed=first_round)
        self.first_round = first_round
        self.started = monotonic()
        self.bar.start()

    def round(self, done: "RoundSeen") -> None:
        n_done = done.round_no + 1
        task = self.bar.tasks[0]
        rate = (monotonic() - self.started) / (n_done - self.first_round)
        left = rate * ((task.total or n_done) - n_done)
        # In the order of the first line: if sites are drawn, shares come in the order of the draws.
        sites = (*self.sites, *sorted(done.shares.keys() - set(self.sites)))  # Sites that joined late come last.
        shares = " ".join(f"{100 * done.shares[site]:.0f}" if site in done.shares else "-" for site in sites)
        line = f"Dice {done.mean_score:.3f}  shares % {shares}  {duration(left)} left"
        self.bar.update(self.task, completed=n_done, description=line, refresh=True)
        if not self.console.is_terminal and (n_done % max(1, int(task.total or 1) // 10) == 0):
            self.console.print(f"round {n_done}/{task.total:.0f}  {line}", soft_wrap=True)

    def finish(self, results: Mapping[str, Any], config: "Config") -> None:
        from fedce.algorithms.titles import printed_name
        from fedce.data.shape import counted_as
        from fedce.present.columns import COUNTED
        from fedce.present.results import flag_lines, interval_lines, metrics_tables, results_table, shares_tables

        width = self.stdout.width
        counted = {**results, COUNTED: counted_as(config.data)}
        self.show(results_table(counted, width, printed_name(config.algorithm)), *shares_tables(results, width))
        self.show(*metrics_tables(results, width), *flag_lines(results))
        fairness = results["fairness"]
        self.stdout.print(
            f"mean Dice {fairness['mean']:.3f}, standard deviation over sites {fairness['std']:.3f}, "
            f"worst site {fairness['worst']:.3f}; {duration(results['seconds'])} of training"
        )
        self.show(*interval_lines(results))
        self.stdout.print(safe_text(f"report: {self.out / 'report.html'}"), soft_wrap=True)


class JobsDisplay(Terminal):
    """Progress of many trainings."""

    def __init__(self, quiet: bool) -> None:
        super().__init__(quiet, BarColumn(bar_width=20), TextColumn("{task.description}"))
        self.started = monotonic()
        self.first: int | None = None
        self.last_tenth = -1
        self.last = 0

    def estimate(self, store: "Store", configs: "Sequence[Config]", workers: int, ask: bool) -> None:
        """Show how much there is to do before it starts."""
        from fedce.engines.local import default_workers

        missing = store.missing(configs)
        n_rounds = sum(config.n_rounds for config in missing)
        kept = len(configs) - len(missing)
        per_round = store.seconds_a_round(configs)
        parallel = workers or default_workers(len(missing) or 1)
        time = f", about {duration(n_rounds * per_round / parallel)}" if per_round else ""
        self.notice(f"{len(configs)} trainings, {kept} of them already done; {n_rounds} rounds to do{time}")
        if ask and n_rounds and sys.stdin.isatty():
            import click

            click.confirm("go on?", abort=True, err=True)

    def progress(self, now: "Progress") -> None:
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


class FindingsDisplay(Terminal):
    """The doctor's findings, one after another."""

    STYLES: ClassVar = {"ok": "green", "warning": "yellow", "problem": "bold red"}

    def tell(self, finding: "Finding") -> None:
        line = Text.assemble(
            (f"{finding.verdict:8}", self.STYLES[finding.verdict]), printable(f"{finding.what}: {finding.found}")
        )
        self.stdout.print(line, soft_wrap=True)
        if finding.advice:
            self.stdout.print(safe_text(f"        -> {finding.advice}"), soft_wrap=True)

    def finish(self, ready: bool) -> None:
        self.stdout.print("ready to run" if ready else "not ready: correct the problems above", soft_wrap=True)
