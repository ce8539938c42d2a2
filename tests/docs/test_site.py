"""The site of the documentation: every page is in its navigation, links hold there, the reference is whole."""

import re
import sys
from pathlib import Path

import pytest

import fedce
from fedce.cli import main

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tools():
    """The two tools; they lie beside each other, as scripts do."""
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import docs_site
        import reference_pages
    finally:
        sys.path.remove(str(ROOT / "tools"))
    return docs_site, reference_pages


def test_the_navigation_begins_with_the_first_hour_and_names_every_page(tools):
    sections = tools[0].navigation()
    assert next(iter(sections)) == "Your first hour"
    assert {"How to", "Reference", "Results"} <= set(sections)
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")} - {"README.md"}
    named = [place for places in sections.values() for place in places]
    assert pages | {"reference/python.md", "reference/commands.md"} <= set(named)
    assert len(named) == len(set(named)), "a page is in one section"


@pytest.mark.parametrize(
    ("page", "link", "moved"),
    [
        ("docs/data.md", "[the plan](plan.md#rules)", "[the plan](plan.md#rules)"),
        ("docs/results/a.md", "[x](../data.md)", "[x](../data.md)"),
        ("docs/README.md", "[data.md](data.md)", "[](data.md)"),
        ("docs/README.md", "[SECURITY.md](../SECURITY.md)", "[](project/security.md)"),
        ("SECURITY.md", "[privacy](docs/privacy.md#a)", "[privacy](../privacy.md#a)"),
        ("docs/data.md", "[own_format.py](../examples/own_format.py)", "`examples/own_format.py`"),
        ("docs/data.md", "[an example](../examples/own_format.py)", "an example (`examples/own_format.py`)"),
        ("docs/data.md", "[Flower](https://flower.ai)", "[Flower](https://flower.ai)"),
        ("docs/data.md", "![p](pictures/report.png)", "![p](pictures/report.png)"),
        ("docs/data.md", "```\n[x](../SECURITY.md)\n```", "```\n[x](../SECURITY.md)\n```"),
    ],
)
def test_links_hold_in_the_site(tools, page, link, moved):
    assert tools[0].rewritten(link, page) == moved


def test_every_public_name_is_in_the_reference(tools):
    page = tools[1].python_page()
    assert re.findall(r"^## fedce\.(\w+)$", page, re.M) == [name for name in fedce.__all__ if name != "__version__"]
    assert "(\n    *,\n" in page or ",\n    *,\n" in page, "arguments by name alone are marked"
    assert "FieldInfo" not in page


def test_every_command_is_in_the_reference(tools):
    page = tools[1].commands_page()
    named = re.findall(r"^## fedce (\w+)$", page, re.M)
    assert named == sorted(main.commands)
    assert "## fedce ledger verify" in page


def test_what_a_page_would_fetch_from_elsewhere_is_found(tools, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(tools[0], "SITE", tmp_path)
    (tmp_path / "a.html").write_text(
        '<a href="https://flower.ai">a link is fine</a><script src="https://cdn.example/x.js"></script>'
        '<link rel="stylesheet" href="//fonts.example/y.css"><img src="own.png">'
    )
    (tmp_path / "b.css").write_text("@font-face { src: url(https://fonts.example/z.woff) } a { b: url(own.png) }")
    assert tools[0].loaded_from_elsewhere() == [
        ("a.html", "https://cdn.example/x.js"),
        ("a.html", "//fonts.example/y.css"),
        ("b.css", "https://fonts.example/z.woff"),
    ]
