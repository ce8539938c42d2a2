"""The terminal: results on stdout, progress and notices on stderr, and tables that stay whole in a narrow window."""

import sys
from collections.abc import Sequence
from textwrap import fill
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from rich.cells import cell_len
from rich.console import Console, JustifyMethod, RenderableType
from rich.progress import Progress, ProgressColumn
from rich.table import Table
from rich.text import Text

from fedce.base.words import printable

BAR_WIDTH = 10
BETWEEN = " | "
"""The separator of two columns."""


def safe_text(text: str, style: str = "") -> Text:
    """Text that sites may have written, made harmless: it holds no control codes for the terminal."""
    return Text(printable(text, kept="\n"), style)


class Terminal:
    """Progress and notices on stderr, so that stdout stays clean for results."""

    def __init__(self, quiet: bool, *columns: ProgressColumn) -> None:
        self.console = Console(stderr=True, quiet=quiet, highlight=False)
        self.stdout = Console(quiet=quiet, highlight=False)
        # Processes are forked while the bar is shown; a thread that redraws would make that unsafe.
        self.bar = Progress(*columns, console=self.console, transient=True, auto_refresh=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the progress bar, if it is shown."""
        if self.bar.live.is_started:
            self.bar.stop()

    def notice(self, message: str) -> None:
        self.console.print(Text(f"... {printable(message)}", "dim"), soft_wrap=True)

    def show(self, *results: RenderableType) -> None:
        """Print results; those that are text are made safe."""
        self.stop()
        for result in results:
            if isinstance(result, str):
                # A path that is broken over lines can't be copied.
                is_broken = any(len(word) > self.stdout.width for word in result.split())
                self.stdout.print(safe_text(result), soft_wrap=is_broken)
            else:
                self.stdout.print(result)


class Wide(Protocol):
    """A table of text that may be wider than the terminal."""

    @property
    def header(self) -> Sequence[str]: ...
    @property
    def cells(self) -> Sequence[Sequence[str]]: ...
    @property
    def n_keys(self) -> int: ...


class Cells(NamedTuple):
    """A table of text."""

    header: Sequence[str]
    cells: Sequence[Sequence[str]]
    n_keys: int = 1
    """Number of first columns that name the row."""


def tables_that_fit(found: Wide, width: int, title: str) -> list[Table]:
    """A table that is wider than the terminal is cut into several tables, with every number whole."""
    columns = _columns(found)
    tables: list[Table] = []
    for piece in columns_that_fit(found, width):
        table = Table(title=None if tables else safe_text(title), title_justify="left")
        is_roomy = sum(column_width(columns[i], found.header[i]) for i in piece) < width
        for i in piece:
            header, room = found.header[i], column_width(columns[i], *found.header[i].split()) - len(BETWEEN)
            # Headers are wrapped here between words: rich would wrap them only if it may also cut numbers.
            shown = header if is_roomy else fill(header, room, break_long_words=False, break_on_hyphens=False)
            is_key, is_text = i < found.n_keys, room > width // 2
            justify: JustifyMethod = "left" if is_key else "right"
            table.add_column(safe_text(shown), justify=justify, no_wrap=not (is_key or is_text), overflow="fold")
        for line in found.cells:
            table.add_row(*(safe_text(line[i]) for i in piece))
        tables.append(table)
    return tables


def columns_that_fit(table: Wide, width: int) -> list[list[int]]:
    """The columns of each part; every part begins with the columns that name the row."""
    widths = [column_width(column, *name.split()) for name, column in zip(table.header, _columns(table), strict=True)]
    keys = list(range(table.n_keys))
    pieces = [[*keys]]
    for i in range(table.n_keys, len(widths)):
        if pieces[-1] != keys and sum(widths[j] for j in [*pieces[-1], i]) >= width:
            pieces.append([*keys])
        pieces[-1].append(i)
    return pieces


def _columns(table: Wide) -> list[list[str]]:
    return [[line[i] for line in table.cells] for i in range(len(table.header))]


def column_width(cells: Sequence[str], *header: str) -> int:
    """The width of a column with its separator; `header` are the lines of its name."""
    return max(cell_len(text) for text in (*header, *cells, " ")) + len(BETWEEN)


def bar(fraction: float, width: int = BAR_WIDTH) -> str:
    """A bar of text, to an eighth of a character; plain characters if the terminal can't show eighths."""
    if "utf" not in (sys.stdout.encoding or "").lower():
        return "#" * round(fraction * width)
    eighths = round(fraction * width * 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
