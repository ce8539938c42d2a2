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
from fedce.questions.evaluate import PAGE, Shown
from fedce.questions.evaluated import AtSite, Evaluated


def evaluation_tables(found: Evaluated, width: int) -> list[Table]:
    header, rows = found.table
    return tables_that_fit(Cells(header, rows, n_keys=header.index("cases")), width, found.title)


def write_evaluation(found: Evaluated, shown: Sequence[Shown], out: Path) -> Path:
    """Write the page; without `shown` it holds no image of a patient."""
    from fedce.pictures import plots

    header, rows = found.table
    names = [site.name for site in found.sites]
    dice = {site.name: _dice_of_cases(site) for site in found.sites}
    content = page(
        "evaluation.html.j2",
        title=f"{found.run} on {found.folder}",
        found=found,
        model=found.which,
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


def _sentences(found: Evaluated) -> list[str]:
    told = []
    for site in found.sites:
        dice = site.metrics["dice"]
        ends = f" (95 % interval {dice.interval[0]:.3f} to {dice.interval[1]:.3f})" if dice.interval else ""
        cases = "1 case" if site.n_cases == 1 else f"{site.n_cases} cases"
        told.append(f"{site.name}: mean Dice {dice.mean:.3f}{ends} over {cases}.")
    return told


def _dice_of_cases(site: AtSite) -> list[float]:
    by_case: dict[str, list[float]] = {}
    for one in site.cases:
        by_case.setdefault(one.case, []).append(one.values["dice"] or 0.0)
    return [sum(values) / len(values) for values in by_case.values()]


def _embedded(one: Shown) -> str:
    buffer = BytesIO()
    Image.fromarray(compared(one.image, one.truth, one.found)).save(buffer, format="PNG", optimize=True)
    return f"data:image/png;base64,{b64encode(buffer.getvalue()).decode()}"
