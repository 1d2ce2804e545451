"use strict";
(function () {
  const { figures, columns, rows, decided, others, file } = JSON.parse(document.getElementById("content").textContent);
  const WORDS = ["accept", "doubt", "reject"], SIGNS = { accept: "✓", doubt: "?", reject: "✗" }, LETTERS = { a: 0, d: 1, r: 2 };
  const EACH = 200, OUTLYING = 3.5;
  const STORE = "fcpower_bids decisions " + location.pathname;
  const by = (id) => document.getElementById(id);
  const table = document.querySelector("table.decide"), body = table.tBodies[0];

  // Decisions: those of the file, and over them those of this browser that were made upon the same ones.
  const saved = new Map(Object.entries(decided));
  const same = (a, b) => JSON.stringify(a || null) === JSON.stringify(b || null);
  const own = new Map();
  try {
    for (const [name, [upon, now]] of Object.entries(JSON.parse(localStorage.getItem(STORE) || "{}"))) {
      if (same(upon, saved.get(name)) && !same(now, saved.get(name))) own.set(name, now);
    }
  } catch { /* a browser that keeps nothing: decisions last as long as the page */ }
  const decision = (name) => (own.has(name) ? own.get(name) : saved.get(name)) || null;

  function keep() {
    const kept = Object.fromEntries([...own].map(([name, now]) => [name, [saved.get(name) || null, now]]));
    try { localStorage.setItem(STORE, JSON.stringify(kept)); } catch { /* see above */ }
    tell();
  }
  function decide(name, word, reason) {
    const day = new Date().toISOString().slice(0, 10);
    const now = word ? [word, reason, day] : null, before = saved.get(name) || null;
    const unchanged = now && before && now[0] === before[0] && now[1] === before[1];
    if (unchanged || (!now && !before)) own.delete(name); else own.set(name, now);
    keep();
  }
  function tell() {
    const counts = { accept: 0, doubt: 0, reject: 0 };
    for (const row of rows) { const one = decision(row.recording); if (one) counts[one[0]] += 1; }
    const open = rows.length - counts.accept - counts.doubt - counts.reject;
    by("counts").textContent = `${rows.length} recordings: ${counts.accept} accepted, ${counts.doubt} in doubt, ` +
      `${counts.reject} rejected, ${open} open.`;
    by("unsaved").hidden = own.size === 0;
    by("unsaved").textContent = own.size === 1 ? `One decision is in this browser only: save ${file}.`
      : `${own.size} decisions are in this browser only: save ${file}.`;
    const reasons = new Set(rows.map((row) => (decision(row.recording) || ["", ""])[1]).filter(Boolean));
    by("reasons").replaceChildren(...[...reasons].slice(0, 50).map((text) => new Option(text)));
  }

  // What stands out, by the rule of the cohort's page.
  function median(values) {
    const sorted = [...values].sort((a, b) => a - b), middle = sorted.length >> 1;
    return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  }
  figures.forEach(([, , bad], number) => {
    const known = rows.map((row) => row.values[number]).filter((value) => value !== null);
    if (known.length < 5) return;
    const centre = median(known), away = known.map((value) => Math.abs(value - centre));
    const spread = 1.4826 * median(away) || (1.2533 * away.reduce((sum, one) => sum + one, 0)) / away.length;
    for (const row of rows) {
      const value = row.values[number];
      if (spread && value !== null && (bad * (value - centre)) / spread > OUTLYING) (row.marks ||= new Set()).add(number);
    }
  });

  // Which rows are shown, and in which order.
  let shown = rows, first = 0, order = null;
  const headings = ["Recording", "State", "Decision", "Reason", ...figures.map(([heading]) => heading), "Cautions"];
  const AHEAD = 4;
  function value(row, column) {
    if (column === 0) return row.recording;
    if (column === 1) return row.state;
    if (column === 2 || column === 3) return (decision(row.recording) || [])[column - 2] || null;
    return column < AHEAD + figures.length ? row.values[column - AHEAD] : row.said.length;
  }
  function compare(a, b) {
    return typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
  }
  function choose() {
    const text = by("find").value.trim().toLowerCase(), state = by("state").value, word = by("decision").value;
    shown = rows.filter((row) => {
      const now = (decision(row.recording) || ["none"])[0];
      return (!text || row.recording.toLowerCase().includes(text) || row.said.join(" ").toLowerCase().includes(text)) &&
        (!state || row.state === state) && (!word || now === word) && (!by("marked").checked || row.marks || row.said.length);
    });
    if (order) {
      const [column, up] = order;
      shown = shown.map((row) => [value(row, column), row]).sort(([a], [b]) => {
        if (a === null || b === null) return (a === null) - (b === null);
        return (up ? 1 : -1) * compare(a, b);
      }).map(([, row]) => row);
    }
    draw(0);
  }

  function element(kind, text, about) {
    const made = document.createElement(kind);
    if (text !== undefined) made.textContent = text;
    return Object.assign(made, about);
  }
  const pictured = rows.some((row) => row.picture);
  function picture(row) {
    const cell = element("td", row.picture ? undefined : "none", { className: "thumbnail" });
    const alt = `Carpet of ${short(row.recording)} before cleaning`;
    if (row.picture) cell.append(element("img", undefined, { src: "data:image/png;base64," + row.picture, alt, width: 72, height: 24 }));
    return cell;
  }
  const short = (name) => name.replace(/_space-.*/, "");
  function line(row) {
    const made = document.createElement("tr");
    made.tabIndex = -1;
    made.dataset.recording = row.recording;
    const head = element("th");
    head.scope = "row";
    const tag = row.page ? "a" : "span";
    head.append(element(tag, short(row.recording), { title: row.recording, ...(row.page && { href: row.page }) }));
    made.append(head);
    if (pictured) made.append(picture(row));
    made.append(element("td", row.state, { className: "state " + row.state.replace(" ", "-") }));
    const choice = element("td"), group = element("div", undefined, { className: "choice" });
    for (const word of WORDS) {
      const button = element("button", SIGNS[word], { type: "button", title: word });
      button.setAttribute("aria-label", `${word} ${short(row.recording)}`);
      button.dataset.word = word;
      group.append(button);
    }
    choice.append(group);
    const reason = element("td"), input = element("input", undefined, { type: "text", size: 14 });
    input.setAttribute("aria-label", `Reason for ${short(row.recording)}`);
    input.setAttribute("list", "reasons");
    reason.append(input);
    made.append(choice, reason);
    figures.forEach(([, digits], number) => {
      const figure = row.values[number], text = figure === null ? "n/a" : figure.toFixed(digits);
      made.append(element("td", text, row.marks && row.marks.has(number) ? { className: "outlier" } : {}));
    });
    made.append(cautions(row.said));
    show(made);
    return made;
  }
  function cautions(said) {
    const cell = element("td");
    if (said.length === 1 && said[0].length < 60) cell.textContent = said[0];
    else if (said.length) {
      const part = element("details");
      part.append(element("summary", said[0].length < 60 ? `${said[0]} and ${said.length - 1} more` : `${said[0].slice(0, 56)}…`));
      part.append(...said.map((text) => element("p", text)));
      cell.append(part);
    }
    return cell;
  }
  function show(made) {
    const [word, reason] = decision(made.dataset.recording) || ["", ""];
    made.className = word;
    for (const button of made.querySelectorAll("[data-word]")) button.setAttribute("aria-pressed", String(button.dataset.word === word));
    const input = made.querySelector("input");
    if (input !== document.activeElement) input.value = reason;
  }
  function draw(from) {
    first = Math.max(0, Math.min(from, shown.length - 1));
    body.replaceChildren(...shown.slice(first, first + EACH).map(line));
    if (body.rows.length) body.rows[0].tabIndex = 0;
    by("place").textContent = shown.length ? `${first + 1} to ${Math.min(first + EACH, shown.length)} of ${shown.length}` : "none";
    by("back").disabled = first === 0;
    by("next").disabled = first + EACH >= shown.length;
  }
  function go(made) {
    for (const other of body.querySelectorAll("tr[tabindex='0']")) other.tabIndex = -1;
    made.tabIndex = 0;
    made.focus();
  }
  function step(made, by) {
    const next = by > 0 ? made.nextElementSibling : made.previousElementSibling;
    if (next) return go(next);
    const place = first + [...body.rows].indexOf(made) + by;
    if (place < 0 || place >= shown.length) return go(made);
    draw(by > 0 ? place : Math.max(0, place - EACH + 1));
    go(by > 0 ? body.rows[0] : body.rows[body.rows.length - 1]);
  }
  function set(made, word) {
    const before = decision(made.dataset.recording), input = made.querySelector("input");
    decide(made.dataset.recording, word, word ? input.value.trim() || (before && before[0] === word ? before[1] : "") : "");
    if (!word) input.value = "";
    show(made);
  }

  body.addEventListener("click", (event) => {
    const made = event.target.closest("tr"), button = event.target.closest("[data-word]");
    if (!made) return;
    if (button) set(made, button.getAttribute("aria-pressed") === "true" ? "" : button.dataset.word);
    else if (!event.target.closest("a, input, summary")) go(made);
  });
  body.addEventListener("change", (event) => {
    const made = event.target.closest("tr"), now = decision(made.dataset.recording);
    decide(made.dataset.recording, now ? now[0] : "doubt", event.target.value.trim()); // a reason alone is a doubt
    show(made);
  });
  body.addEventListener("keydown", (event) => {
    const made = event.target.closest("tr"), key = event.key;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.tagName === "INPUT") {
      if (key !== "Enter" && key !== "Escape") return;
      event.preventDefault();
      go(made); // leaving the field saves it
      if (key === "Enter") step(made, 1);
      return;
    }
    if (event.target !== made) return;
    if (key === "j" || key === "ArrowDown") step(made, 1);
    else if (key === "k" || key === "ArrowUp") step(made, -1);
    else if (key in LETTERS) {
      set(made, WORDS[LETTERS[key]]);
      if (key === "a") step(made, 1); else made.querySelector("input").focus();
    } else if (key === "u") set(made, "");
    else if (key === "o" || key === "Enter") made.querySelector("a").click();
    else if (key === "s") save();
    else return;
    event.preventDefault();
  });

  // The file: what was decided, by row of the table.
  const clean = (text) => text.replace(/\s+/g, " ").replace(/"/g, "'").trim() || "n/a";
  function label(name, key) {
    const found = name.split("_").find((part) => part.startsWith(key + "-"));
    return found ? found.slice(key.length + 1) : "n/a";
  }
  function lines() {
    const made = [columns.join("\t")];
    for (const { recording } of rows) {
      const now = decision(recording);
      if (!now) continue;
      const cells = {
        participant_id: "sub-" + label(recording, "sub"), session: label(recording, "ses"), task: label(recording, "task"),
        run: label(recording, "run"), recording, decision: now[0], reason: clean(now[1]), decided: clean(now[2]),
      };
      made.push(columns.map((name) => cells[name]).join("\t"));
    }
    made.push(...others.map((cells) => cells.join("\t"))); // of recordings that are not here
    return made.join("\n") + "\n";
  }
  function save() {
    const address = URL.createObjectURL(new Blob([lines()], { type: "text/tab-separated-values" }));
    const link = element("a", "", { href: address, download: file });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
    by("unsaved").textContent = `Saved as a download: put ${file} into the folder of this page.`;
  }
  function read(text) {
    const [head, ...parts] = text.replace(/^\ufeff/, "").split(/\r?\n/).filter(Boolean).map((part) => part.split("\t"));
    const at = (cells, name) => (cells[head.indexOf(name)] || "n/a").replace(/^n\/a$/, "");
    if (!head || !head.includes("recording") || !head.includes("decision")) {
      by("unsaved").hidden = false;
      by("unsaved").textContent = `This is no ${file} that was saved here: it lacks the columns recording and decision.`;
      return;
    }
    const known = new Set(rows.map((row) => row.recording));
    for (const cells of parts) {
      const name = at(cells, "recording"), word = at(cells, "decision");
      if (!known.has(name) || !WORDS.includes(word)) continue;
      const now = [word, at(cells, "reason"), at(cells, "decided")];
      if (same(now, saved.get(name))) own.delete(name); else own.set(name, now);
    }
    keep();
    choose();
  }
  by("save").addEventListener("click", save);
  by("open").addEventListener("change", (event) => { const [one] = event.target.files; if (one) one.text().then(read); });

  headings.forEach((heading, column) => {
    const cell = element("th"), button = element("button", heading, { type: "button" });
    cell.scope = "col";
    cell.append(button);
    button.addEventListener("click", () => {
      order = [column, !(order && order[0] === column && order[1])];
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", order[1] ? "ascending" : "descending");
      choose();
    });
    table.tHead.rows[0].append(cell);
    if (column === 0 && pictured) table.tHead.rows[0].append(element("th", "Carpet", { scope: "col" }));
  });
  by("state").append(...[...new Set(rows.map((row) => row.state))].sort().map((text) => new Option(text)));
  for (const id of ["find", "state", "decision", "marked"]) by(id).addEventListener("input", choose);
  by("back").addEventListener("click", () => draw(first - EACH));
  by("next").addEventListener("click", () => draw(first + EACH));
  tell();
  choose();
})();
