// A table that is wider than its page is shown row by row, each value with its column's heading. Without this script
// such a table scrolls. On paper, where nothing scrolls, the width is that of a sheet.
const PAPER = 820; // In pixels of the screen: letters on paper are smaller.

function label(root) {
  for (const table of root.querySelectorAll(".scroll table")) {
    if (!table.tHead) continue;
    const headings = [...table.tHead.rows[0].cells].map(heading => heading.textContent.trim());
    for (const row of table.querySelectorAll("tbody tr, tfoot tr"))
      [...row.cells].forEach((cell, column) => {
        if (cell.tagName === "TD") cell.dataset.label = headings[column] ?? "";
      });
  }
}

function unstack() {
  for (const table of document.querySelectorAll("table.stacked")) table.classList.remove("stacked");
}

function fit(width) {
  unstack();
  for (const box of document.querySelectorAll(".scroll"))
    for (const table of box.querySelectorAll("table")) {
      table.style.width = "1px"; // No table gets narrower than its words and numbers.
      const needed = table.offsetWidth;
      table.removeAttribute("style");
      table.classList.toggle("stacked", needed > (width ?? box.clientWidth));
    }
}

label(document);
fit();
addEventListener("resize", () => fit());
addEventListener("beforeprint", () => fit(PAPER));
addEventListener("afterprint", () => fit());
