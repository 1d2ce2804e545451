"use strict";
// Sort by a value, a number or text; what is missing comes last, whatever the order.
function sortBy(list, value, up) {
  const empty = (one) => one === "" || one === "n/a";
  list.sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (empty(x) || empty(y)) return empty(x) - empty(y);
    return (up ? 1 : -1) * (x - y || String(x).localeCompare(y, "en", { numeric: true })); // words have no difference
  });
}
// Mark the column that its table is sorted by; a second click turns the order round. Returns whether it goes up.
function turnRound(header) {
  const up = header.getAttribute("aria-sort") !== "ascending";
  for (const other of header.parentElement.cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", up ? "ascending" : "descending");
  return up;
}
for (const button of document.querySelectorAll("table.sortable th button")) button.addEventListener("click", () => {
  const header = button.parentElement, body = header.closest("table").tBodies[0], rows = [...body.rows];
  const value = (row) => row.cells[header.cellIndex].dataset.value ?? row.cells[header.cellIndex].textContent.trim();
  sortBy(rows, value, turnRound(header));
  body.append(...rows);
});

// A link into a folded part unfolds it, and on paper nothing stays folded.
function unfold() {
  const aim = document.querySelector(":target");
  for (let part = aim; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
  aim?.scrollIntoView();
}
window.addEventListener("hashchange", unfold);
for (const link of document.querySelectorAll("a[href^='#']")) link.addEventListener("click", () => setTimeout(unfold));
unfold();
window.addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("details")) part.open = true;
});
