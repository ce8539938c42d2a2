"""Progress in a notebook: one output of the cell that is written again, with notices, a bar and a line.

rich would need ipywidgets for a bar in a notebook; this needs nothing but the notebook, and stays in the saved file.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from rich.console import Console

from fedce.base.html import safe_html
from fedce.present.following import JobsWords, RunWords, Step
from fedce.present.progress import JobsDisplay, RunDisplay

if TYPE_CHECKING:
    from fedce.base.config import Config
    from fedce.core.messages import Member
    from fedce.federation.session import RoundSeen
    from fedce.questions.jobs import Progress

LEAST_SECONDS = 0.1
"""The output is written again at most this often; a browser could not follow more."""
QUIET = "opacity:0.7"
Write = Callable[[str], None]


class RunShown(Protocol):
    """A display of one run."""

    def notice(self, message: str) -> None: ...
    def start(self, config: "Config", members: "Mapping[str, Member]", first_round: int) -> None: ...
    def round(self, done: "RoundSeen") -> None: ...


class JobsShown(Protocol):
    """A display of many trainings."""

    def notice(self, message: str) -> None: ...
    def progress(self, now: "Progress") -> None: ...


def is_notebook() -> bool:
    """Whether this is the kernel of a notebook, which shows HTML."""
    return Console().is_jupyter


def run_display(out: Path) -> "AbstractContextManager[RunShown]":
    """The display of a run that fits where Python runs: in a notebook, or in a terminal."""
    return NotebookRun() if is_notebook() else RunDisplay(quiet=False, out=out)


def jobs_display(progress: bool) -> "AbstractContextManager[JobsShown]":
    """The display of many trainings that fits where Python runs; without `progress` it shows nothing."""
    return NotebookJobs() if progress and is_notebook() else JobsDisplay(quiet=not progress)


class Output:
    """The output of a cell, which can be written again."""

    def __init__(self) -> None:
        self.handle: Any = None

    def __call__(self, html: str) -> None:
        shown: Any = import_module("IPython.display")  # There is no need to have it where there is no notebook.
        if self.handle is None:
            self.handle = shown.display(shown.HTML(html), display_id=True)
        else:
            self.handle.update(shown.HTML(html))


class Notebook:
    """Notices, a bar and a line in the output of a cell.

    >>> shown = Notebook(write=print)
    >>> shown.notice("reading site north")
    <div><div style="opacity:0.7">reading site north</div></div>
    """

    def __init__(self, write: Write | None = None) -> None:
        self.write = write or Output()
        self.notices: list[str] = []
        self.headline = ""
        self.step: Step | None = None
        self.written = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.step is not None:  # The last step may not have been shown.
            self.show()

    def notice(self, message: str) -> None:
        self.notices.append(message)
        self.show()

    def go(self, step: Step) -> None:
        """Show how far it is, unless that was shown a moment ago."""
        self.step = step
        if monotonic() - self.written >= LEAST_SECONDS or step.n_done >= step.n_all:
            self.show()

    def show(self) -> None:
        self.written = monotonic()
        lines = [f'<div style="{QUIET}">{safe_html(notice)}</div>' for notice in self.notices]
        lines += [f"<div>{safe_html(self.headline)}</div>"] if self.headline else []
        if self.step is not None:
            n_done, n_all, line = self.step
            bar = f'<progress value="{n_done}" max="{n_all}"></progress>'
            lines.append(f"<div>{bar} {n_done}/{n_all} {safe_html(line)}</div>")
        self.write(f"<div>{''.join(lines)}</div>")


class NotebookRun(Notebook):
    """The progress of one run."""

    def __init__(self, write: Write | None = None) -> None:
        super().__init__(write)
        self.words = RunWords()

    def start(self, config: "Config", members: "Mapping[str, Member]", first_round: int) -> None:
        self.headline = self.words.start(config, members, first_round)
        self.step = Step(first_round, config.n_rounds, "")
        self.show()

    def round(self, done: "RoundSeen") -> None:
        self.go(self.words.round(done))


class NotebookJobs(Notebook):
    """The progress of many trainings."""

    def __init__(self, write: Write | None = None) -> None:
        super().__init__(write)
        self.words = JobsWords()

    def progress(self, now: "Progress") -> None:
        self.words.is_anew(now)
        self.go(self.words.progress(now))
