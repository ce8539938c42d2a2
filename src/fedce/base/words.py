"""Numbers in words, the same in the terminal and on pages."""


def printable(text: str, kept: str = "") -> str:
    """Text that somebody else may have written, as it may be shown: what a terminal would act on is escaped."""
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
    """A table's cell; a dash where there is nothing."""
    return "-" if cell is None else cell if isinstance(cell, str) else f"{cell:.{digits}f}"
