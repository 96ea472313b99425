"""The few lines of script of `report.html`: the table of clips sorted and filtered, details opened for paper."""

SCRIPT = """
"use strict";
for (const table of document.querySelectorAll("table.clips")) {
  const body = table.tBodies[0];
  const value = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
  };
  const order = (a, b) => {
    if (typeof a === typeof b) return typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
    return typeof a === "number" ? -1 : 1;
  };
  for (const button of table.tHead.querySelectorAll("button")) {
    button.addEventListener("click", () => {
      const head = button.closest("th");
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.querySelectorAll("th")) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const column = head.cellIndex;
      const rows = Array.from(body.rows, row => [value(row, column), row]);
      rows.sort((a, b) => (down ? -1 : 1) * order(a[0], b[0]));
      body.append(...rows.map(pair => pair[1]));
    });
  }
  const form = table.closest("section").querySelector("form");
  const filter = () => {
    const text = form.elements.text.value.toLowerCase();
    const run = form.elements.run.value;
    const flagged = form.elements.flagged.checked;
    let shown = 0;
    for (const row of body.rows) {
      const cells = row.cells;
      const said = (cells[1].textContent + " " + cells[cells.length - 1].textContent).toLowerCase();
      row.hidden = !said.includes(text) || (run && cells[0].textContent !== run)
        || (flagged && row.dataset.flagged !== "1");
      shown += !row.hidden;
    }
    form.querySelector("output").textContent = shown + " of " + body.rows.length + " rows";
  };
  form.addEventListener("input", filter);
  form.addEventListener("submit", event => event.preventDefault());
  form.hidden = false;
  filter();
}
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(part => part.open = true));
"""
