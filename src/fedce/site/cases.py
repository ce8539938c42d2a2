"""The table of single cases, cases.csv: it is written where the cases are, and never sent."""

from collections.abc import Mapping, Sequence

from fedce.base.files import csv_text
from fedce.core.messages import CaseScores


def cases_csv(by_site: Mapping[str, Sequence[CaseScores]]) -> bytes:
    """A row for each case and class: the metrics' values, and the unit of lengths; an empty cell has no value.

    >>> cases_csv({"north": [CaseScores("p1", "disc", {"dice": 0.5, "hd95": None}, "mm")]}).decode().splitlines()
    ['site,case,class,dice,hd95,unit', 'north,p1,disc,0.5,,mm']
    """
    rows = [(site, score) for site, scores in by_site.items() for score in scores]
    metrics = list(dict.fromkeys(name for _, score in rows for name in score.values))
    units = any(score.unit for _, score in rows)
    header = ["site", "case", "class", *metrics, *(["unit"] if units else [])]
    lines = [
        [site, score.case, score.class_name, *map(score.values.get, metrics), *([score.unit] if units else [])]
        for site, score in rows
    ]
    return csv_text([header, *lines]).encode()
