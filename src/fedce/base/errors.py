"""Errors caused by the input: each is one line that says what to do."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


MOST_SHOWN = 120
"""Characters of somebody's input that an error repeats."""


class FedceError(ValueError):
    """Base of all errors that a user can correct; the command line prints it as one line and exits with 2.

    >>> from fedce.base.config import parse
    >>> try:
    ...     parse({"trian": {"lr": 0.01}})
    ... except FedceError as error:
    ...     print(str(error).partition(";")[0])
    unknown key 'trian', did you mean 'train'?
    """


class ConfigError(FedceError):
    """An experiment file, option or hyper-parameter that can't be used."""


class DataError(FedceError):
    """Images or masks that can't be used."""

    def __init__(self, message: str, what: str = "") -> None:
        """`what`: how several errors of one kind are summed up in one line, such as "files can't be read"."""
        super().__init__(message)
        self.what = what


class ReplyError(FedceError):
    """A site's reply that can't be used."""


class RunError(FedceError):
    """A run folder that can't be written, read or resumed."""


class EngineError(FedceError):
    """A site's process that failed; the run stops and can be resumed."""

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message, trace)
        self.message = message
        self.trace = trace

    def __str__(self) -> str:
        return self.message


class ManyProblems(DataError):
    """Several things wrong with some data: a line for each."""

    def __init__(self, title: str, lines: Sequence[str]) -> None:
        super().__init__("\n- ".join([title, *lines]))
        self.lines = list(lines)


class Problems:
    """Problems with some data, collected by cause, so that a user can correct all of them at once."""

    SHOWN = 40

    def __init__(self) -> None:
        self._by_cause: dict[tuple[str, str], list[str]] = {}

    def add(self, line: str, where: str = "", what: str = "") -> None:
        """Add a problem; problems of one place and one cause (`what`) become one line with their number."""
        # A problem without a cause gets a line of its own.
        self._by_cause.setdefault((where, what or f"{line} {len(self)}"), []).append(line)

    @contextmanager
    def collected(self, where: str = "") -> Iterator[None]:
        """A DataError in this block is added to the problems."""
        try:
            yield
        except DataError as error:
            self.add(str(error), where, error.what)

    def __len__(self) -> int:
        return sum(len(lines) for lines in self._by_cause.values())

    @property
    def lines(self) -> list[str]:
        """One line for each cause."""
        return [
            lines[0] if len(lines) == 1 else f"{where}{': ' * bool(where)}{len(lines)} {what}; for example, {lines[0]}"
            for (where, what), lines in self._by_cause.items()
        ]

    def raise_any(self, where: str) -> None:
        lines = self.lines
        if len(lines) == 1:
            raise DataError(lines[0])
        if lines:
            hidden = len(lines) - self.SHOWN
            more = [f"and {hidden} more"] if hidden > 0 else []
            raise ManyProblems(f"{len(lines)} problems in {where}:", [*lines[: self.SHOWN], *more])


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint such as ", did you mean 'fedce'?", or nothing if no known word is near."""
    close = get_close_matches(word, list(known), n=3)
    # Among equally near words, one with just the same letters: swapped letters are the commonest slip.
    close.sort(key=lambda match: sorted(match) != sorted(word))
    return f", did you mean {close[0]!r}?" if close else ""


def first_problem(error: "ValidationError") -> str:
    """The first problem of a pydantic error as "key.subkey: what is wrong (got ...)"."""
    problem = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in problem["loc"])
    message = problem["msg"].removeprefix("Value error, ")
    message = f"{message[0].lower()}{message[1:]}"
    # The message says what is wrong with a table as a whole; to show the table would fill a page.
    got = "" if isinstance(problem["input"], dict) else f" (got {short(problem['input'])})"
    return f"{where}: {message}{got}" if where else f"{message}{got}"


def short(value: object) -> str:
    """A value as Python writes it, cut to what fits in a line."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # A number of thousands of digits, or nested too deeply.
        return f"a {type(value).__name__} that is too long to be shown"
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."
