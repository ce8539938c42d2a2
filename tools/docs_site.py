"""Builds the documentation as a site in build/docs, from docs/ as it is read on a forge; a broken link is an error.

The navigation is the list in docs/README.md. Pages of the repository that lie outside docs/ are taken in, links to
other files become their names, and the reference of Python names and commands is written from the code.
"""

import re
import shutil
import sys
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

from reference_pages import commands_page, python_page

ROOT = Path(__file__).parent.parent
SOURCE, SITE = ROOT / "build" / "docs-source", ROOT / "build" / "docs"
OUTSIDE = {
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "benchmarks/RESULTS.md": "project/benchmarks.md",
    "examples/README.md": "project/examples.md",
}
"""Pages outside docs/, and their places in the site."""
INDEX = "docs/README.md"
GENERATED = {"reference/python.md": python_page, "reference/commands.md": commands_page}
REFERENCE = "Reference"
"""The section of the navigation that the generated pages belong to."""
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
FENCE = re.compile(r"(^```.*?^```[ \t]*$)", re.M | re.S)
CONF = """
project = "fedce"
html_title = "fedce"
extensions = ["myst_parser"]
html_theme = "furo"
myst_heading_anchors = 4
html_copy_source = False
html_use_index = False
html_show_copyright = False
html_show_sphinx = False
exclude_patterns = []
# Shell sessions and output are not code that a lexer knows.
suppress_warnings = ["misc.highlighting_failure"]
"""


def main() -> int:
    from sphinx.cmd.build import build_main

    assemble()
    shutil.rmtree(SITE, ignore_errors=True)
    # -W: a warning, such as a link that leads nowhere or a page that no list names, fails the build.
    strict = ["-q", "-W", "--keep-going", "-b", "html", "-d", str(SOURCE / ".doctrees")]
    if failed := build_main([*strict, str(SOURCE), str(SITE)]):
        return failed
    for page, address in loaded_from_elsewhere():
        print(f"{page} loads {address}; the site must work without a network", file=sys.stderr)
        failed = 1
    print(f"written to {SITE.relative_to(ROOT) / 'index.html'}")
    return failed


def loaded_from_elsewhere() -> list[tuple[str, str]]:
    """Scripts, styles, fonts and pictures that a page would fetch from another machine."""
    fetched = re.compile(
        r"""(?:<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=|url\()["']?((?:https?:)?//[^"' )>]+)"""
    )
    files = [*SITE.rglob("*.html"), *SITE.rglob("*.css")]
    return [(file.name, address) for file in files for address in fetched.findall(file.read_text("utf-8"))]


def assemble() -> None:
    """Write everything that the site is built from."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.copytree(ROOT / "docs", SOURCE, ignore=shutil.ignore_patterns("*.md"))
    pages = [*(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")), *OUTSIDE]
    for page in pages:
        text = rewritten((ROOT / page).read_text("utf-8"), page)
        write(place_of(page), f"{text}\n{toctrees(navigation())}" if page == INDEX else text)
    for place, content in GENERATED.items():
        write(place, content())
    (SOURCE / "conf.py").write_text(CONF, "utf-8")


def write(place: str, text: str) -> None:
    (SOURCE / place).parent.mkdir(parents=True, exist_ok=True)
    (SOURCE / place).write_text(text, "utf-8")


def place_of(page: str) -> str:
    """The place in the site of a page of the repository."""
    if page == INDEX:
        return "index.md"
    return OUTSIDE.get(page) or str(PurePosixPath(page).relative_to("docs"))


def navigation() -> dict[str, list[str]]:
    """The sections of docs/README.md, each with the places of the pages that it names."""
    sections: dict[str, list[str]] = {}
    for line in (ROOT / INDEX).read_text("utf-8").splitlines():
        if heading := re.fullmatch(r"\*\*(.+)\*\*", line.strip()):
            sections[heading[1]] = []
        for _, _, target in LINK.findall(line):
            page = normpath(f"docs/{target.partition('#')[0]}")
            if page.endswith(".md") and "://" not in target:
                sections[next(reversed(sections))].append(place_of(page))
    sections.setdefault(REFERENCE, []).extend(GENERATED)
    return sections


def toctrees(sections: dict[str, list[str]]) -> str:
    """The navigation for Sphinx; hidden, because the page itself lists the pages with what they are about."""
    return "\n".join(
        "\n".join(["```{toctree}", ":hidden:", f":caption: {title}", "", *dict.fromkeys(places), "```", ""])
        for title, places in sections.items()
    )


def rewritten(text: str, page: str) -> str:
    """The page with links that hold in the site; code is left as it is."""

    def moved(link: re.Match[str]) -> str:
        image, words, target = link.groups()
        path, hash_sign, anchor = target.partition("#")
        if "://" in target or not path:
            return link[0]
        there = normpath(str(PurePosixPath(page).parent / path))
        if there.startswith("docs/") or there in OUTSIDE:
            place = place_of(there)
            # A file's name says less than the page's title, which stands where a link has no words.
            words = "" if not image and words.endswith(".md") else words
            return f"{image}[{words}]({relpath(place, str(PurePosixPath(place_of(page)).parent))}{hash_sign}{anchor})"
        name = words.strip("`")
        return f"`{there}`" if name in (there, PurePosixPath(there).name) else f"{words} (`{there}`)"

    return "".join(part if part.startswith("```") else LINK.sub(moved, part) for part in FENCE.split(text))


if __name__ == "__main__":
    sys.exit(main())
