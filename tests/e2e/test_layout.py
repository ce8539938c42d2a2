"""Pages on a phone, a tablet, a screen and a sheet of paper: nothing is cut, and no letter is too small to read."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedce.data.drawn import write_site
from fedce.pictures.examples import DPI, POINTS, Example, write_examples
from fedce.present.pages.member import write_member
from fedce.present.pages.run import write_report
from fedce.present.watch import Watch
from fedce.record.folder import RunFolder
from layout import PHONE, SMALLEST_LETTER, layouts, problems
from support import rename_site

LONG_NAMES = ("University Hospital of Northumbria", "Klinikum rechts der Isar", "Ospedale_San_Raffaele_Milano")


@pytest.fixture(scope="module")
def run(tmp_path_factory, fedce) -> RunFolder:
    """With everything that widens a page: sites that trained alone, two metrics, intervals, long names."""
    out = tmp_path_factory.mktemp("layout") / "run"
    more = ("--set", "model.channels=[4,8]", "--set", 'metrics=["hd95"]', "--set", "freerider.detect=true")
    made = fedce(
        "run", "--scale", "tiny", "--rounds", 12, "--workers", 1, "--alone", *more, "--out", out, "--json"
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    for i, name in enumerate(LONG_NAMES, 1):
        rename_site(out, f"site{i}", name)
    write_report(RunFolder.open(out))
    return RunFolder.open(out)


def report(run: RunFolder, folder: Path, fedce: Callable) -> str:
    return run.report_file.read_text("utf-8")


def live(run: RunFolder, folder: Path, fedce: Callable) -> str:
    return Watch(run).page().decode()


def member(run: RunFolder, folder: Path, fedce: Callable) -> str:
    return write_member(run, LONG_NAMES[0], folder / "member.html").read_text("utf-8")


def allocation(run: RunFolder, folder: Path, fedce: Callable) -> str:
    made = fedce("allocate", run.path, "--budget", "10000000", "--out", folder / "page.html", "--yes")
    assert made.exit_code == 0, made.output
    return (folder / "page.html").read_text("utf-8")


def several(run: RunFolder, folder: Path, fedce: Callable) -> str:
    for name in ("first", "second"):
        shutil.copytree(run.path, folder / "runs" / name)
    assert fedce("report", folder / "runs").exit_code == 0
    return (folder / "runs" / "report.html").read_text("utf-8")


def inspection(run: RunFolder, folder: Path, fedce: Callable) -> str:
    made = fedce("data", "inspect", "fundus6", "--set", "data.scale=tiny", "--out", folder / "data.html")
    assert made.exit_code == 0, made.output
    return (folder / "data.html").read_text("utf-8")


def evaluation(run: RunFolder, folder: Path, fedce: Callable) -> str:
    new = write_site("fundus6", "site3", folder / LONG_NAMES[0], 8)
    made = fedce("evaluate", run.path, new, "--out", folder / "out")
    assert made.exit_code == 0, made.output
    return (folder / "out" / "evaluation.html").read_text("utf-8")


SECOND = {report: "Gives", live: "Gives", allocation: "Share, %"}
"""The second column where it must be a share."""


@pytest.mark.parametrize(
    "page", [report, live, member, allocation, several, inspection, evaluation], ids=lambda page: page.__name__
)
def test_nothing_is_cut_at_any_width(page, run: RunFolder, tmp_path: Path, fedce, chromium: str):
    found = layouts(chromium, page(run, tmp_path, fedce), tmp_path)
    assert problems(found) == {}
    if page in SECOND:
        assert {one["second"] for one in found.values()} == {SECOND[page]}
    if page is report:
        assert found["phone"]["stacked"] > found["screen"]["stacked"], "where a table is too wide, it is row by row"
        assert found["sheet"]["stacked"] > 0, "paper does not scroll"
    # Each figure is drawn twice in the page, and shown once at every width.
    assert len({one["figures"] for one in found.values()}) == 1


def test_titles_in_the_picture_of_examples_can_be_read_on_a_phone(tmp_path: Path):
    """They are part of a picture, which the page shrinks to its width."""
    grey = np.full((48, 48, 3), 128, np.uint8)
    write_examples(tmp_path / "examples.png", {f"site{i}": Example("a.png", grey, 0.5) for i in range(8)})
    with Image.open(tmp_path / "examples.png") as picture:
        inches = picture.width / DPI
    margins = 2 * 16
    assert POINTS / 72 * (PHONE - margins) / inches >= SMALLEST_LETTER


def test_what_is_too_wide_or_too_small_is_found(tmp_path: Path, chromium: str):
    """The measurements themselves: a page with one mistake of each kind."""
    page = """<!doctype html><style>body { margin: 0 }</style>
    <p style="width: 900px">wide</p><p style="font-size: 8px">small</p>
    <div class="scroll" style="overflow-x: auto"><table style="width: 1000px"><tr><td>cut</td></tr></table></div>
    <svg width="100" height="50"><text x="10" y="20">one</text><text x="12" y="20">two</text></svg>
    <svg width="50" height="50"><text x="40" y="20">outside</text></svg>"""
    found = problems(layouts(chromium, page, tmp_path))
    kinds = {name: {problem.split(":")[0].split(' "')[0] for problem in said} for name, said in found.items()}
    assert kinds["phone"] == {
        "the page is 900 wide",
        "beyond the edge",
        "letters of 8",
        "cut columns",
        "text",
        "cut in its figure",
    }
    assert kinds["screen"] == {"letters of 8", "text", "cut in its figure"}
