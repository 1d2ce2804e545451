"use strict";
(function () {
  const hex = document.body.dataset.colours;
  const COLOURS = Array.from({ length: 256 }, (_, i) => parseInt(hex.slice(6 * i, 6 * i + 6), 16));
  const MISSING = -32768, GREY = 0x9a9a9a, BAND = [84, 200], FONT = "11px system-ui, sans-serif";

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

  // Matrices: the lower half with its diagonal, two bytes a value, drawn on a canvas.
  function unpack(text) {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const view = new DataView(bytes.buffer);
    return Int16Array.from({ length: bytes.length / 2 }, (_, i) => view.getInt16(2 * i, true));
  }
  function at(values, i, j) {
    return i >= j ? values[(i * (i + 1)) / 2 + j] : values[(j * (j + 1)) / 2 + i];
  }
  function shown(matrix, i, j) {
    const value = at(matrix.values, i, j);
    return value === MISSING ? "n/a" : (value / 10 ** matrix.digits).toFixed(matrix.digits);
  }
  function paint(matrix, size, limit) {
    const image = new ImageData(size, size);
    const whole = limit * 10 ** matrix.digits || 1;
    for (let i = 0; i < size; i++) {
      for (let j = 0; j < size; j++) {
        const value = at(matrix.values, i, j);
        const step = Math.max(0, Math.min(255, Math.round(127.5 * (1 + value / whole))));
        const colour = value === MISSING ? GREY : COLOURS[step];
        image.data.set([colour >> 16, (colour >> 8) & 255, colour & 255, 255], 4 * (i * size + j));
      }
    }
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = size;
    canvas.getContext("2d").putImageData(image, 0, 0);
    return canvas;
  }
  function fit(context, text, room) {
    if (context.measureText(text).width <= room) return text;
    let length = text.length;
    while (length > 1 && context.measureText(text.slice(0, length) + "…").width > room) length--;
    return text.slice(0, length) + "…";
  }

  function setUp(group) {
    const given = JSON.parse(group.querySelector("script").textContent);
    const size = given.names.length;
    const figures = [...group.querySelectorAll("figure")];
    const output = group.querySelector("output");
    const together = group.querySelector(".scale input");
    let band = 0; // for names, as wide as they are
    const matrices = given.matrices.map((matrix) => ({ ...matrix, values: unpack(matrix.data) }));
    const shared = Math.max(...matrices.map((matrix) => matrix.limit));
    let cell = null;

    function limit(matrix) { return together && together.checked ? shared : matrix.limit; }
    function draw() {
      matrices.forEach((matrix, number) => {
        const figure = figures[number], canvas = figure.querySelector("canvas");
        const width = Math.max(200, Math.min(figure.clientWidth || 480, 540));
        const context = canvas.getContext("2d"), scale = window.devicePixelRatio || 1;
        context.font = FONT;
        const wanted = Math.max(0, ...given.networks.map(([name]) => context.measureText(name).width + 8));
        band = wanted ? Math.max(BAND[0], Math.min(BAND[1], width / 3, Math.ceil(wanted))) : 0;
        const side = width - band;
        canvas.style.width = width + "px";
        canvas.style.height = side + "px";
        canvas.width = Math.round(width * scale);
        canvas.height = Math.round(side * scale);
        context.scale(scale, scale);
        context.imageSmoothingEnabled = size > side * scale;
        if (!matrix.painted || matrix.paintedTo !== limit(matrix)) {
          matrix.painted = paint(matrix, size, limit(matrix));
          matrix.paintedTo = limit(matrix);
        }
        context.drawImage(matrix.painted, band, 0, side, side);
        networks(context, side);
        if (cell) cross(context, side);
        legend(figure, limit(matrix));
      });
    }
    function networks(context, side) {
      const step = side / size;
      context.font = FONT;
      context.textAlign = "right";
      context.textBaseline = "middle";
      context.lineWidth = 0.7;
      context.strokeStyle = "#000";
      context.fillStyle = getComputedStyle(document.body).color;
      let free = 0;
      for (const [name, start, stop] of given.networks) {
        context.strokeRect(band + start * step, start * step, (stop - start) * step, (stop - start) * step);
        const middle = ((start + stop) / 2) * step;
        if (middle - 6 < free) continue;
        context.fillText(fit(context, name, band - 8), band - 6, Math.min(side - 6, Math.max(6, middle)));
        free = middle + 6;
      }
      context.strokeRect(band, 0, side, side);
    }
    function cross(context, side) {
      const step = side / size, [i, j] = cell;
      context.lineWidth = 1;
      context.strokeStyle = "rgba(0, 0, 0, 0.75)";
      if (step < 4) { // cells too small to be framed: one line through each
        context.strokeRect(band, (i + 0.5) * step, side, 0);
        context.strokeRect(band + (j + 0.5) * step, 0, 0, side);
        return;
      }
      context.strokeRect(band, i * step, side, step);
      context.strokeRect(band + j * step, 0, step, side);
    }
    function legend(figure, most) {
      const bar = figure.querySelector(".legend"), context = bar.getContext("2d");
      COLOURS.forEach((colour, i) => {
        context.fillStyle = "#" + colour.toString(16).padStart(6, "0");
        context.fillRect(i, 0, 1, 10);
      });
      const [low, high] = figure.querySelectorAll(".bar span");
      low.textContent = "≤ −" + most.toPrecision(2);
      high.textContent = "≥ " + most.toPrecision(2);
    }
    function tell(text, bold) {
      const part = document.createElement(bold ? "strong" : "bdi");
      part.textContent = text;
      output.append(part);
    }
    function say() {
      const [i, j] = cell;
      output.replaceChildren();
      output.className = "told";
      tell(given.names[i]);
      output.append(" × ");
      tell(given.names[j]);
      matrices.forEach((matrix) => {
        output.append(matrices.indexOf(matrix) ? " · " : " : ");
        tell(matrix.title);
        output.append(" ");
        tell(shown(matrix, i, j), true);
      });
    }
    function move(i, j) {
      cell = [Math.max(0, Math.min(size - 1, i)), Math.max(0, Math.min(size - 1, j))];
      say();
      draw();
    }
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    figures.forEach((figure) => {
      const canvas = figure.querySelector("canvas");
      function point(event) {
        const box = canvas.getBoundingClientRect();
        const step = (box.width - band) / size;
        const j = Math.floor((event.clientX - box.left - band) / step), i = Math.floor((event.clientY - box.top) / step);
        if (j >= 0 && j < size && i >= 0 && i < size && !(cell && cell[0] === i && cell[1] === j)) move(i, j);
      }
      canvas.addEventListener("pointermove", point);
      canvas.addEventListener("pointerdown", point);
      canvas.addEventListener("keydown", (event) => {
        const by = steps[event.key];
        if (!by) return;
        event.preventDefault();
        const far = event.shiftKey ? 10 : 1;
        move(...(cell ? [cell[0] + far * by[0], cell[1] + far * by[1]] : [0, 0]));
      });
    });
    if (together) together.addEventListener("change", draw);
    for (let part = group.closest("details"); part; part = part.parentElement.closest("details")) part.addEventListener("toggle", draw);
    window.addEventListener("resize", draw);
    draw();
  }
  document.querySelectorAll(".matrices").forEach(setUp);

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
