"""An evaluation as a table for the terminal, and as one self-contained HTML page."""

from base64 import b64encode
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

from PIL import Image
from rich.table import Table

from fedce.base.files import write_bytes
from fedce.data.overlays import compared
from fedce.present.pages import page
from fedce.present.terminal import Cells, tables_that_fit
from fedce.questions.evaluate import PAGE, AtSite, Evaluated, OfClass, OfMetric, Shown

ALL = "mean"
"""The row that stands for the mean over classes."""


def evaluation_tables(found: Evaluated, width: int) -> list[Table]:
    header, rows = _table(found)
    return tables_that_fit(Cells(header, rows, n_keys=header.index("cases")), width, _title(found))


def write_evaluation(found: Evaluated, shown: Sequence[Shown], out: Path) -> Path:
    """Write the page; without `shown` it holds no image of a patient."""
    from fedce.pictures import plots

    header, rows = _table(found)
    names = [site.name for site in found.sites]
    dice = {site.name: _dice_of_cases(site) for site in found.sites}
    content = page(
        "evaluation.html.j2",
        title=f"{found.run} on {found.folder}",
        found=found,
        model=_model(found),
        summary=[*_sentences(found), *(f"{note}." for note in found.notes)],
        header=header,
        n_keys=header.index("cases"),
        rows=rows,
        cases=plots.case_scores(dice),
        examples=[(name, [(one, _embedded(one)) for one in shown if one.site == name]) for name in names],
        has_examples=bool(shown),
    )
    write_bytes(out / PAGE, content)
    return out / PAGE


def _title(found: Evaluated) -> str:
    return f"{_model(found)} of {found.run} on {found.folder}; 95 % intervals over cases"


def _model(found: Evaluated) -> str:
    kind = {"common": "the common model", "best": "the common model of the best round"}
    adapted = ", norm statistics estimated from each site's images," if found.adapted else ""
    return f"{kind.get(found.model, f'the model of {found.model}')}{adapted}"


def _sentences(found: Evaluated) -> list[str]:
    told = []
    for site in found.sites:
        dice = site.metrics["dice"]
        ends = f" (95 % interval {dice.interval[0]:.3f} to {dice.interval[1]:.3f})" if dice.interval else ""
        cases = "1 case" if site.n_cases == 1 else f"{site.n_cases} cases"
        told.append(f"{site.name}: mean Dice {dice.mean:.3f}{ends} over {cases}.")
    return told


def _table(found: Evaluated) -> tuple[list[str], list[list[str]]]:
    units = {name: {site.metrics[name].unit for site in found.sites} for name in found.headings}
    named = ["site", "class"] if len(found.classes) > 1 else ["site"]
    header = [*named, "cases", *(heading.line(units[name]) for name, heading in found.headings.items())]
    return header, [row for site in found.sites for row in _rows(site, found)]


def _rows(site: AtSite, found: Evaluated) -> list[list[str]]:
    """A row for each class and, if there are several, one for their mean."""
    classes = [
        (name, {key: metric.by_class.get(name) for key, metric in site.metrics.items()}) for name in found.classes
    ]
    rows: list[tuple[str, dict[str, OfClass | None] | dict[str, OfMetric]]] = [*classes]
    if len(classes) > 1:
        rows.append((ALL, dict(site.metrics)))
    return [
        [
            site.name,
            *([name] if len(rows) > 1 else []),
            str(site.n_cases),
            *(_text(cells[key], found, key) for key in found.headings),
        ]
        for name, cells in rows
    ]


def _text(value: OfClass | OfMetric | None, found: Evaluated, name: str) -> str:
    if value is None:  # The site does not label this class.
        return "-"
    heading = found.headings[name]
    text = heading.text(value.mean)
    if value.interval:
        text += f" ({heading.text(value.interval[0])}-{heading.text(value.interval[1])})"
    if isinstance(value, OfClass) and value.undefined:
        text += f" {value.undefined} undef."
    return text


def _dice_of_cases(site: AtSite) -> list[float]:
    by_case: dict[str, list[float]] = {}
    for one in site.cases:
        by_case.setdefault(one.case, []).append(one.values["dice"] or 0.0)
    return [sum(values) / len(values) for values in by_case.values()]


def _embedded(one: Shown) -> str:
    buffer = BytesIO()
    Image.fromarray(compared(one.image, one.truth, one.found)).save(buffer, format="PNG", optimize=True)
    return f"data:image/png;base64,{b64encode(buffer.getvalue()).decode()}"
