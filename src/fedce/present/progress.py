"""The terminal's display of a run, of many trainings, or of the doctor's findings, while they go on."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rich.progress import BarColumn, TaskID, TextColumn
from rich.text import Text

from fedce.base.words import duration, printable
from fedce.present.following import JobsWords, RunWords, estimate
from fedce.present.terminal import Terminal, safe_text

if TYPE_CHECKING:
    from fedce.base.config import Config
    from fedce.core.messages import Member
    from fedce.federation.session import RoundSeen
    from fedce.questions.finding import Finding
    from fedce.questions.jobs import Progress, Store


class RunDisplay(Terminal):
    """The display of one run: a line while it goes on, and its results."""

    def __init__(self, quiet: bool, out: Path) -> None:
        rounds = TextColumn("round {task.completed:.0f}/{task.total:.0f}")
        super().__init__(quiet, rounds, BarColumn(bar_width=20), TextColumn("{task.description}"))
        self.out = out
        self.task = TaskID(0)
        self.words = RunWords()

    def start(self, config: "Config", members: "Mapping[str, Member]", first_round: int) -> None:
        self.console.print(safe_text(self.words.start(config, members, first_round)), soft_wrap=True)
        self.task = self.bar.add_task("", total=config.n_rounds, completed=first_round)
        self.bar.start()

    def round(self, done: "RoundSeen") -> None:
        n_done, n_rounds, line = self.words.round(done)
        self.bar.update(self.task, completed=n_done, description=line, refresh=True)
        if not self.console.is_terminal and (n_done % max(1, n_rounds // 10) == 0):
            self.console.print(f"round {n_done}/{n_rounds}  {line}", soft_wrap=True)

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
        self.words = JobsWords()
        self.last_tenth = -1

    def estimate(self, store: "Store", configs: "Sequence[Config]", workers: int, ask: bool) -> None:
        """Show how much there is to do before it starts."""
        n_rounds, line = estimate(store, configs, workers)
        self.notice(line)
        if ask and n_rounds and sys.stdin.isatty():
            import click

            click.confirm("go on?", abort=True, err=True)

    def progress(self, now: "Progress") -> None:
        if self.words.is_anew(now):
            self.last_tenth = -1
            for task in self.bar.task_ids:
                self.bar.remove_task(task)
            self.bar.add_task("", total=now.n_rounds)
            self.bar.start()
        n_done, n_rounds, line = self.words.progress(now)
        self.bar.update(self.bar.tasks[0].id, completed=n_done, description=line, refresh=True)
        tenth = 10 * n_done // max(1, n_rounds)
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

    def finish(self, ready: bool, what: str = "run") -> None:
        self.stdout.print(f"ready to {what}" if ready else "not ready: correct the problems above", soft_wrap=True)
