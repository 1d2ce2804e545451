"use strict";
(function () {
  // Tables: a click on a header sorts by it, a second one turns the order round.
  function key(row, column) {
    const cell = row.cells[column];
    const text = cell.dataset.value === undefined ? cell.textContent.trim() : cell.dataset.value;
    const number = text === "" || text === "n/a" ? NaN : Number(text);
    return { text, number, empty: text === "" || text === "n/a" };
  }
  function compare(a, b) {
    if (a.empty !== b.empty) return a.empty ? 1 : -1;
    const numbers = !Number.isNaN(a.number) && !Number.isNaN(b.number);
    return numbers ? a.number - b.number : a.text.localeCompare(b.text, "en", { numeric: true });
  }
  for (const table of document.querySelectorAll("table.sortable")) {
    const headers = [...table.tHead.rows[0].cells];
    headers.forEach((header, column) => header.querySelector("button").addEventListener("click", () => {
      const up = header.getAttribute("aria-sort") !== "ascending";
      headers.forEach((other) => other.removeAttribute("aria-sort"));
      header.setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = [...table.tBodies[0].rows].map((row) => ({ row, key: key(row, column) }));
      rows.sort((a, b) => (a.key.empty || b.key.empty || up ? 1 : -1) * compare(a.key, b.key));
      table.tBodies[0].append(...rows.map((item) => item.row));
    }));
  }

  // What scrolls sideways is reached by the keyboard.
  function reach() {
    for (const box of document.querySelectorAll(".scroll")) if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  }
  reach();
  for (const part of document.querySelectorAll("details")) part.addEventListener("toggle", reach);

  // A link into a folded part unfolds it.
  function unfold() {
    const aim = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let part = aim; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
    if (aim) aim.scrollIntoView();
  }
  window.addEventListener("hashchange", unfold);
  for (const link of document.querySelectorAll("a[href^='#']")) link.addEventListener("click", () => setTimeout(unfold));
  unfold();

  // On paper nothing stays folded.
  window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => { part.open = true; }));
})();
