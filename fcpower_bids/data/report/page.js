(function () {
  for (const header of document.querySelectorAll("table.sortable th")) header.querySelector("button")?.addEventListener("click", () => {
    const body = header.closest("table").tBodies[0], rows = [...body.rows];
    const value = (row) => row.cells[header.cellIndex].dataset.value ?? row.cells[header.cellIndex].textContent.trim();
    sortBy(rows, value, turnRound(header));
    body.append(...rows);
  });

  // What scrolls sideways is reached by the keyboard.
  function reach() {
    for (const box of document.querySelectorAll(".scroll")) if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  }
  reach();
  for (const part of document.querySelectorAll("details")) part.addEventListener("toggle", reach);

  // A link into a folded part unfolds it, and on paper nothing stays folded.
  function unfold() {
    const aim = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let part = aim; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
    if (aim) aim.scrollIntoView();
  }
  window.addEventListener("hashchange", unfold);
  for (const link of document.querySelectorAll("a[href^='#']")) link.addEventListener("click", () => setTimeout(unfold));
  unfold();
  window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => { part.open = true; }));
})();
