"""The flags that a ledger holds as words, for people, read back as values."""

from fedce.core.recorded import Flag
from fedce.guard.border import SEEN_AT_THE_BORDER
from fedce.guard.signs import FLAGS, alias_of, twin_of

KNOWN_FLAGS = {flag.text: flag for flag in (*FLAGS, *SEEN_AT_THE_BORDER)}


def flag_of(text: str) -> Flag:
    """The flag with these words; words that this version does not know make a flag of kind "unknown".

    >>> flag_of("zero update").kind
    'zero'
    """
    if text in KNOWN_FLAGS:
        return KNOWN_FLAGS[text]
    for naming in (twin_of, alias_of):
        if text.startswith(words := naming("").words):
            return naming(text.removeprefix(words).strip())
    return Flag("unknown", text)
