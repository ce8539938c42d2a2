"""How a command ends: a mistake gives one line and exit code 2; a stopped command says how to continue."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import FrameType
from typing import NoReturn, ParamSpec

import click

from fedce.base.errors import FedceError, ManyProblems
from fedce.base.words import printable

P = ParamSpec("P")
BROKEN_PIPE = 141
"""The exit code that a shell reports for a program ended by SIGPIPE."""


def one_line_errors(command: Callable[P, None]) -> Callable[P, None]:
    """A user's mistake is one line on stderr and exit code 2, never a traceback."""

    @wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            with _terminable():
                command(*args, **kwargs)
        except ManyProblems as error:
            _fail(str(error))
        except FedceError as error:
            _fail(" ".join(str(error).split()))
        except BrokenPipeError:  # The reader has closed the pipe, as in 'fedce ledger show RUN | head'.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(BROKEN_PIPE)
        except OSError as error:
            _fail(f"{error.filename or 'a file'}: {error.strerror or error}")
        except KeyboardInterrupt as stop:
            stopped(stop, "the same command continues from here")

    return wrapped


class Terminated(KeyboardInterrupt):
    """SIGTERM: schedulers send it, and it is the only stop that reaches a job in the background."""


def stopped(stop: KeyboardInterrupt, how: str) -> NoReturn:
    """End after Ctrl-C or SIGTERM, and say how to continue."""
    click.echo(f"\nfedce: stopped; {how}", err=True)
    sys.exit(143 if isinstance(stop, Terminated) else 130)


def _fail(message: str) -> NoReturn:
    click.echo(f"fedce: {printable(message, kept=chr(10))}", err=True)
    sys.exit(2)


@contextmanager
def _terminable() -> Iterator[None]:
    """Make SIGTERM end a command in order: everything it started ends too, and it says how to continue."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # A second signal must not interrupt the handling of the first.
        raise Terminated

    if threading.current_thread() is not threading.main_thread():  # Only the main thread can handle signals.
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
