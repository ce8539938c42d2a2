// Click or press Enter on a heading to sort by that column; numbers by value, words by letter.
for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    if (!heading.textContent.trim()) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const up = heading.getAttribute("aria-sort") !== "ascending";
      headings.forEach(other => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = row => {
        const text = row.cells[column].textContent.trim().replaceAll(",", "");
        const number = parseFloat(text);
        return Number.isNaN(number) ? text : number;
      };
      const order = (a, b) =>
        typeof a === "number" && typeof b === "number" ? a - b
          : typeof a === typeof b ? a.localeCompare(b) : typeof a === "number" ? -1 : 1;
      const body = table.tBodies[0];
      const rows = [...body.rows].sort((a, b) => (up ? 1 : -1) * order(key(a), key(b)));
      body.append(...rows);
    });
  });
}
