"""Python's search for garbage, which looks again and again through the million objects of torch and MONAI.

They stay until the process ends. To look through them while they are imported, and once more at the end, was a third of
a short command.
"""

import atexit
import gc

_usual: tuple[int, int, int] | None = None


def search_rarely_until_imported() -> None:
    """For a program of fedce, when it starts. A process that only uses fedce searches as it likes."""
    global _usual
    _usual = gc.get_threshold()
    gc.set_threshold(100_000, 50, 100)
    atexit.register(gc.freeze)


def imported() -> None:
    """All large libraries are there: search as usual from now on, but never among what was imported."""
    global _usual
    if _usual is not None:
        gc.freeze()
        gc.set_threshold(*_usual)
        _usual = None
