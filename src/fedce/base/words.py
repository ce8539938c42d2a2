"""Numbers and texts as people see them, the same in the terminal and on pages."""


def printable(text: str, kept: str = "") -> str:
    """Text that somebody else may have written, safe to show: characters that a terminal would act on are escaped."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in kept else letter.encode("unicode_escape").decode()
        for letter in text
    )


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_more = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes_more:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def cell_text(cell: str | float | None, digits: int) -> str:
    """The text of a table's cell; a dash if the cell is empty.

    >>> cell_text(-0.001, 1), cell_text(None, 1)
    ('0.0', '-')
    """
    return "-" if cell is None else cell if isinstance(cell, str) else f"{cell:z.{digits}f}"


def install_command(extra: str) -> str:
    """How to install one of fedce's extras, from the folder of its repository: fedce is in no package index.

    >>> install_command("flower")
    "pip install -c constraints.txt -e '.[flower]'"
    """
    return f"pip install -c constraints.txt -e '.[{extra}]'"
