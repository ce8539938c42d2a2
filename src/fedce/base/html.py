"""Values as a notebook shows them: a title, a table and some sentences as HTML, without any script."""

from collections.abc import Sequence
from html import escape

from fedce.base.words import printable


def safe_html(text: object) -> str:
    """Text that somebody else may have written, safe inside HTML.

    >>> safe_html("<b>north</b>")
    '&lt;b&gt;north&lt;/b&gt;'
    """
    return escape(printable(str(text), kept="\n"))


def table_html(
    title: str,
    header: Sequence[str],
    rows: Sequence[Sequence[object]],
    sentences: Sequence[str] = (),
    n_keys: int = 1,
) -> str:
    """A titled table with sentences below; the first `n_keys` columns name the row and stand at the left.

    >>> table_html("Dice", ["site", "mean"], [["north", 0.8]]).count("<td")
    2
    """
    align = ["left" if i < n_keys else "right" for i in range(len(header))]
    names = "".join(
        f'<th style="text-align:{side}">{safe_html(name)}</th>' for side, name in zip(align, header, strict=True)
    )
    lines = "".join(
        "<tr>"
        + "".join(
            f'<td style="text-align:{side}">{safe_html(cell)}</td>' for side, cell in zip(align, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    table = f"<table><thead><tr>{names}</tr></thead><tbody>{lines}</tbody></table>"
    return f"<div><p><b>{safe_html(title)}</b></p>{table}{sentences_html(sentences)}</div>"


def sentences_html(sentences: Sequence[str]) -> str:
    """A paragraph for each sentence.

    >>> sentences_html(["a < b"])
    '<p>a &lt; b</p>'
    """
    return "".join(f"<p>{safe_html(sentence)}</p>" for sentence in sentences)


def percent(share: float | None) -> str:
    """A share in a cell; a dash if it is not known.

    >>> percent(0.8123), percent(None)
    ('81.2 %', '-')
    """
    return "-" if share is None else f"{100 * share:.1f} %"
