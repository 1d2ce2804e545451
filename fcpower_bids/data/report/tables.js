"use strict";
// Sort by a value, a number or text; what is missing comes last, whatever the order.
function sortBy(list, value, up) {
  const empty = (one) => one === "" || one === "n/a";
  list.sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (empty(x) || empty(y)) return empty(x) - empty(y);
    const numbers = !Number.isNaN(Number(x)) && !Number.isNaN(Number(y));
    return (up ? 1 : -1) * (numbers ? x - y : String(x).localeCompare(y, "en", { numeric: true }));
  });
}
// Mark the column that its table is sorted by; a second click turns the order round. Returns whether it goes up.
function turnRound(header) {
  const up = header.getAttribute("aria-sort") !== "ascending";
  for (const other of header.parentElement.cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", up ? "ascending" : "descending");
  return up;
}
