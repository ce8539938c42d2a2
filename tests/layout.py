"""How Chromium lays a page out at several widths: what is cut, what is too small, what covers what."""

import json
import re
from html import escape, unescape
from pathlib import Path

from support import open_page

PHONE, TABLET, SCREEN, SHEET = 390, 820, 1280, 688
"""Widths of a page in pixels; the last one is a sheet of A4 between its margins."""
SMALLEST_LETTER = 9

MEASURE = """
const round = number => Math.round(10 * number) / 10;
const said = element => `${element.tagName.toLowerCase()} "${element.textContent.trim().slice(0, 40)}"`;
const shown = element => element.getClientRects().length > 0;
const hasText = element => [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());

function letters(element) {
  const size = parseFloat(element.ownerDocument.defaultView.getComputedStyle(element).fontSize);
  const turn = element.getScreenCTM ? element.getScreenCTM() : null;
  return turn ? size * Math.hypot(turn.a, turn.b) : size;
}

function overlap(one, other) {
  const width = Math.min(one.right, other.right) - Math.max(one.left, other.left);
  const height = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
  if (width <= 0 || height <= 0) return 0;
  return width * height / Math.min(one.width * one.height, other.width * other.height);
}

function measure(frame) {
  const page = frame.contentDocument, view = frame.contentWindow, width = frame.clientWidth, problems = [];
  if (frame.dataset.print) {
    view.dispatchEvent(new view.Event("beforeprint"));
    for (const style of page.querySelectorAll("head style"))
      style.textContent = style.textContent.replace("@media print", "@media all");
  }
  const whole = page.documentElement.scrollWidth;
  if (whole > width) problems.push(`the page is ${whole} wide`);
  for (const box of page.querySelectorAll(".scroll"))
    if (shown(box) && box.scrollWidth > box.clientWidth) problems.push(`cut columns: ${said(box)}`);
  for (const element of page.body.querySelectorAll("*")) {
    if (!hasText(element) || !shown(element) || element.closest("script, style")) continue;
    const box = element.getBoundingClientRect(), size = letters(element), figure = element.closest("svg");
    if (size < SMALLEST) problems.push(`letters of ${round(size)}: ${said(element)}`);
    if (figure) {
      const all = figure.getBoundingClientRect();
      if (box.left < all.left - 1 || box.right > all.right + 1) problems.push(`cut in its figure: ${said(element)}`);
    } else if (box.left < -0.5 || box.right > width + 0.5) problems.push(`beyond the edge: ${said(element)}`);
  }
  for (const figure of page.querySelectorAll("svg")) {
    if (!shown(figure)) continue;
    const texts = [...figure.querySelectorAll("text")].map(text => [said(text), text.getBoundingClientRect()]);
    texts.forEach(([one, box], i) => texts.slice(i + 1).forEach(([other, second]) => {
      if (overlap(box, second) > 0.25) problems.push(`${one} covers ${other}`);
    }));
  }
  const row = page.querySelector(".scroll tbody tr"), cells = row ? [...row.cells] : [];
  const beside = cells.length > 1 && cells[1].getBoundingClientRect().left >= cells[0].getBoundingClientRect().right - 1
    && cells[1].getBoundingClientRect().top < cells[0].getBoundingClientRect().bottom;
  return {
    problems,
    second: beside ? cells[1].dataset.label : null,
    figures: [...page.querySelectorAll("svg")].filter(shown).length,
    stacked: page.querySelectorAll(".stacked").length,
  };
}

addEventListener("load", () => {
  const found = [...document.querySelectorAll("iframe")].map(measure);
  document.body.replaceChildren();
  document.body.textContent = JSON.stringify(found);
});
"""


def layouts(chromium: str, page: str, folder: Path) -> dict[str, dict]:
    """What Chromium measures of a page at each width, and on a sheet of paper.

    Each width is a frame, to which the page's media queries refer. On the sheet, the page is told that it will be
    printed, and then its rules for print hold.
    """
    widths = {"phone": PHONE, "tablet": TABLET, "screen": SCREEN, "sheet": SHEET}
    frames = [
        f'<iframe style="width: {width}px; height: 900px; border: 0" {"data-print=1" * (name == "sheet")} '
        f'srcdoc="{escape(page)}"></iframe>'
        for name, width in widths.items()
    ]
    script = MEASURE.replace("SMALLEST", str(SMALLEST_LETTER))
    harness = folder / "harness.html"
    harness.write_text(f"<!doctype html><body>{''.join(frames)}<script>{script}</script></body>", "utf-8")
    shown, _ = open_page(chromium, harness, folder)
    assert "CONSOLE" not in shown.stderr, shown.stderr
    found = json.loads(unescape(re.search(r"<body>(.*)</body>", shown.stdout, re.S)[1]))
    return dict(zip(widths, found, strict=True))


def problems(found: dict[str, dict]) -> dict[str, list[str]]:
    """What is wrong at which width; empty if nothing is."""
    return {name: one["problems"] for name, one in found.items() if one["problems"]}
