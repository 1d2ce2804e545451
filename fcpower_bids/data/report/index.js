(function () {
  const { figures, columns, rows, decided, others, file } = JSON.parse(document.getElementById("content").textContent);
  const SIGNS = { accept: "✓", doubt: "?", reject: "✗" }, LETTERS = { a: "accept", d: "doubt", r: "reject", u: "" };
  const EACH = 200, STORE = "fcpower_bids decisions " + location.pathname;
  const by = (id) => document.getElementById(id);
  const body = document.querySelector("table.decide").tBodies[0], heads = document.querySelector("table.decide").tHead.rows[0];
  function element(kind, text, about) {
    return Object.assign(document.createElement(kind), text === undefined ? {} : { textContent: text }, about);
  }

  // Decisions: those of the file, and over them those of this browser that were made upon the same ones.
  const saved = new Map(Object.entries(decided)), mine = new Map();
  const same = (a, b) => JSON.stringify(a || null) === JSON.stringify(b || null);
  const decision = (name) => (mine.has(name) ? mine.get(name) : saved.get(name)) || ["", "", ""];
  try {
    for (const [name, [upon, now]] of Object.entries(JSON.parse(localStorage.getItem(STORE) || "{}"))) {
      if (same(upon, saved.get(name)) && !same(now, saved.get(name))) mine.set(name, now);
    }
  } catch { /* a browser that keeps nothing: decisions last as long as the page */ }
  function decide(line, word, reason) {
    const name = line.dataset.recording, before = saved.get(name);
    const now = word ? [word, reason, new Date().toISOString().slice(0, 10)] : null;
    if (same(now?.slice(0, 2), before?.slice(0, 2))) mine.delete(name); else mine.set(name, now);
    const kept = [...mine].map(([one, made]) => [one, [saved.get(one) || null, made]]);
    try { localStorage.setItem(STORE, JSON.stringify(Object.fromEntries(kept))); } catch { /* see above */ }
    show(line);
    tell();
  }
  function tell() {
    const count = (word) => rows.filter((row) => decision(row.recording)[0] === word).length;
    by("counts").textContent = `${rows.length} recordings: ${count("accept")} accepted, ${count("doubt")} in doubt, ` +
      `${count("reject")} rejected, ${count("")} open.`;
    by("unsaved").hidden = mine.size === 0;
    by("unsaved").textContent = `Decisions that are in this browser only: ${mine.size}. Save ${file}.`;
  }

  // Rows.
  const pictured = rows.some((row) => row.picture);
  function draw(row) {
    const line = element("tr", undefined, { tabIndex: -1 }), name = row.recording.replace(/_space-.*/, "");
    line.dataset.recording = row.recording;
    const head = element("th", undefined, { scope: "row" }), cells = [head];
    head.append(element(row.page ? "a" : "span", name, { title: row.recording, ...(row.page && { href: row.page }) }));
    if (pictured) {
      cells.push(element("td", undefined, { className: "thumbnail" }));
      const about = { src: "data:image/png;base64," + row.picture, alt: `Carpet of ${name} before cleaning` };
      if (row.picture) cells[1].append(element("img", undefined, { ...about, width: 72, height: 24 }));
    }
    const choice = element("div", undefined, { className: "choice" }), cell = element("td"), why = element("td"), said = element("td");
    for (const [word, sign] of Object.entries(SIGNS)) {
      choice.append(element("button", sign, { type: "button", title: word, ariaLabel: `${word} ${name}` }));
      choice.lastChild.dataset.word = word;
    }
    cell.append(choice);
    why.append(element("input", undefined, { type: "text", size: 14, ariaLabel: `Reason for ${name}` }));
    cells.push(element("td", row.state, { className: "state " + row.state.replace(" ", "-") }), cell, why);
    cells.push(...row.values.map((value) => element("td", value)));
    if (row.said.length) {
      const part = element("details"), [first, ...more] = row.said;
      const begin = first.length < 60 ? first : first.slice(0, 56) + "…";
      part.append(element("summary", begin + (more.length ? ` and ${more.length} more` : "")));
      part.append(...row.said.map((text) => element("p", text)));
      said.append(part);
    }
    line.append(...cells, said);
    show(line);
    return line;
  }
  function show(line) {
    const now = decision(line.dataset.recording);
    line.className = now[0];
    for (const one of line.querySelectorAll("[data-word]")) one.ariaPressed = one.dataset.word === now[0];
    line.querySelector("input").value = now[1];
  }

  // Which rows are shown, and in which order.
  let chosen = rows, first = 0, order = null;
  function choose() {
    const text = by("find").value.trim().toLowerCase(), state = by("state").value, word = by("decision").value;
    chosen = rows.filter((row) => `${row.recording} ${row.said.join(" ")}`.toLowerCase().includes(text) &&
      (!state || row.state === state) && (!word || (decision(row.recording)[0] || "none") === word));
    if (order) {
      const value = (row) => {
        const now = decision(row.recording);
        return [row.recording, row.state, now[0], now[1], ...row.values, row.said.length][order[0]] ?? "";
      };
      sortBy(chosen, value, order[1]);
    }
    turn(0);
  }
  function turn(start) {
    first = Math.max(0, Math.min(start, chosen.length - 1));
    const last = Math.min(first + EACH, chosen.length);
    body.replaceChildren(...chosen.slice(first, last).map(draw));
    by("place").textContent = `${chosen.length ? first + 1 : 0} to ${last} of ${chosen.length}`;
    by("back").disabled = first === 0;
    by("next").disabled = last === chosen.length;
  }
  body.addEventListener("click", (event) => {
    const line = event.target.closest("tr"), word = event.target.closest("[data-word]")?.dataset.word;
    const now = decision(line.dataset.recording);
    if (word) decide(line, now[0] === word ? "" : word, now[0] === word ? "" : now[1]);
    else if (!event.target.closest("a, input, summary")) line.focus();
  });
  body.addEventListener("change", (event) => { // a reason alone is a doubt
    const line = event.target.closest("tr");
    decide(line, decision(line.dataset.recording)[0] || "doubt", event.target.value.trim());
  });
  body.addEventListener("keydown", (event) => {
    const line = event.target.closest("tr"), key = event.key, written = event.target.tagName === "INPUT";
    const to = { j: line.nextElementSibling, Enter: line.nextElementSibling, k: line.previousElementSibling, Escape: line };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (written ? !["Enter", "Escape"].includes(key) : event.target !== line || !(key in to || key in LETTERS)) return;
    event.preventDefault();
    if (!(key in LETTERS)) return (to[key] || line).focus(); // leaving a field keeps what it says
    decide(line, LETTERS[key], LETTERS[key] && decision(line.dataset.recording)[1]);
    if (key === "a") (to.j || line).focus();
    else if (key !== "u") line.querySelector("input").focus();
  });

  // The file: what was decided, by row of the table, and the rows of recordings that are not here.
  by("save").addEventListener("click", () => {
    const clean = (text) => text.replace(/\s+/g, " ").replace(/"/g, "'").trim() || "n/a";
    const made = rows.filter((row) => decision(row.recording)[0]).map(({ recording }) => {
      const label = (key) => (recording + "_").match(`(?:^|_)${key}-(.*?)_`)?.[1] || "n/a";
      const [word, reason, day] = decision(recording), about = { participant_id: "sub-" + label("sub"), session: label("ses") };
      Object.assign(about, { task: label("task"), run: label("run"), recording, decision: word, reason: clean(reason) });
      return columns.map((name) => ({ ...about, decided: clean(day) })[name]);
    });
    const text = [columns, ...made, ...others].map((row) => row.join("\t") + "\n").join("");
    const address = URL.createObjectURL(new Blob([text], { type: "text/tab-separated-values" }));
    element("a", "", { href: address, download: file }).click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
    by("unsaved").textContent = `Saved as a download: put ${file} into the folder of this page.`;
  });
  const headings = ["Recording", "State", "Decision", "Reason", ...figures, "Cautions"];
  headings.forEach((heading, column) => {
    const cell = element("th", undefined, { scope: "col" });
    cell.append(element("button", heading, { type: "button" }));
    cell.firstChild.addEventListener("click", () => { order = [column, turnRound(cell)]; choose(); });
    heads.append(cell);
    if (column === 0 && pictured) heads.append(element("th", "Carpet", { scope: "col" }));
  });
  by("state").append(...[...new Set(rows.map((row) => row.state))].sort().map((text) => new Option(text)));
  for (const id of ["find", "state", "decision"]) by(id).addEventListener("input", choose);
  by("back").addEventListener("click", () => turn(first - EACH));
  by("next").addEventListener("click", () => turn(first + EACH));
  tell();
  choose();
})();
