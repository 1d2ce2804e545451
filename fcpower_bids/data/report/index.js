const { columns, rows, decided, others, file } = JSON.parse(document.getElementById("content").textContent);
const SIGNS = { accept: "✓", doubt: "?", reject: "✗" }, LETTERS = { a: "accept", d: "doubt", r: "reject", u: "" };
const EACH = 200, STORE = "fcpower_bids decisions " + location.pathname;
const by = (id) => document.getElementById(id);
const table = document.querySelector("table.decide"), body = table.tBodies[0];
function element(kind, about, ...inside) {
  const made = Object.assign(document.createElement(kind), about);
  made.append(...inside);
  return made;
}

// Decisions: those of the file, and over them those of this browser that were made upon the same ones.
const mine = new Map(); // by recording: that of the file, and the one made upon it
const same = (a, b) => JSON.stringify(a || null) === JSON.stringify(b || null);
const decision = (name) => (mine.get(name) || [null, decided[name]])[1] || ["", "", ""];
try {
  for (const [name, [upon, now]] of Object.entries(JSON.parse(localStorage.getItem(STORE) || "{}"))) {
    if (same(upon, decided[name]) && !same(now, upon)) mine.set(name, [upon, now]);
  }
} catch { /* a browser that keeps nothing: decisions last as long as the page */ }
function decide(line, word, reason) {
  const name = line.dataset.recording, before = decided[name];
  const now = word ? [word, reason, new Date().toISOString().slice(0, 10)] : null;
  if (same(now?.slice(0, 2), before?.slice(0, 2))) mine.delete(name); else mine.set(name, [before, now]);
  try { localStorage.setItem(STORE, JSON.stringify(Object.fromEntries(mine))); } catch { /* see above */ }
  show(line);
  tell();
}
function tell() {
  const count = (word) => rows.filter((row) => decision(row.recording)[0] === word).length;
  by("counts").textContent = `${rows.length} recordings: ${count("accept")} accepted, ${count("doubt")} in doubt, ` +
    `${count("reject")} rejected, ${count("")} open.`;
  const sentence = `Decisions that are in this browser only: ${mine.size}. Save ${file}.`;
  Object.assign(by("unsaved"), { hidden: mine.size === 0, textContent: sentence });
}

// Rows.
const pictured = rows.some((row) => row.picture);
function draw({ recording, page, picture, state, values, said }) {
  const name = recording.replace(/_space-.*/, ""), cell = (inside) => element("td", {}, inside);
  const about = { alt: `Carpet of ${name} before cleaning`, width: 72, height: 24 };
  const image = picture ? element("img", { src: "data:image/png;base64," + picture, ...about }) : "";
  const words = Object.entries(SIGNS).map(([word, sign]) =>
    element("button", { type: "button", value: word, title: word, ariaLabel: `${word} ${name}` }, sign));
  const [first = "", ...more] = said, begin = first.length < 60 ? first : first.slice(0, 56) + "…";
  const summary = element("summary", {}, begin + (more.length ? ` and ${more.length} more` : ""));
  const line = element("tr", { tabIndex: -1 },
    element("th", { scope: "row" }, element(page ? "a" : "span", { title: recording, href: page }, name)),
    ...(pictured ? [cell(image)] : []),
    element("td", { className: "state " + state.replaceAll(" ", "-") }, state),
    cell(element("div", { className: "choice" }, ...words)),
    cell(element("input", { type: "text", size: 14, ariaLabel: `Reason for ${name}` })),
    ...values.map(cell),
    cell(first ? element("details", {}, summary, ...said.map((text) => element("p", {}, text))) : ""));
  line.dataset.recording = recording;
  show(line);
  return line;
}
function show(line) {
  const [word, reason] = decision(line.dataset.recording);
  line.className = word;
  for (const button of line.querySelectorAll("button")) button.ariaPressed = button.value === word;
  line.querySelector("input").value = reason;
}

// Which rows are shown, and in which order.
let chosen = rows, first = 0, order = null;
function choose() {
  const text = by("find").value.trim().toLowerCase(), state = by("state").value, word = by("decision").value;
  const cells = ({ recording, state, values, said }) =>
    [recording, state, ...decision(recording).slice(0, 2), ...values, said.length];
  chosen = rows.filter((row) => `${row.recording} ${row.said.join(" ")}`.toLowerCase().includes(text) &&
    (!state || row.state === state) && (!word || (decision(row.recording)[0] || "none") === word));
  if (order) sortBy(chosen, (row) => cells(row)[order[0]] ?? "", order[1]);
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
  const line = event.target.closest("tr"), word = event.target.closest("button")?.value;
  const [before, reason] = decision(line.dataset.recording), back = before === word;
  if (word) decide(line, back ? "" : word, back ? "" : reason);
  else if (!event.target.closest("a, input, summary")) line.focus();
});
body.addEventListener("change", (event) => { // a reason alone is a doubt
  const line = event.target.closest("tr");
  decide(line, decision(line.dataset.recording)[0] || "doubt", event.target.value.trim());
});
body.addEventListener("keydown", (event) => {
  const line = event.target.closest("tr"), key = event.key, written = event.target.tagName === "INPUT";
  const { nextElementSibling: next, previousElementSibling: before } = line;
  const to = { j: next, Enter: next, k: before, Escape: line };
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (written ? !["Enter", "Escape"].includes(key) : event.target !== line || !(key in to || key in LETTERS)) return;
  event.preventDefault();
  if (!(key in LETTERS)) return (to[key] || line).focus(); // leaving a field keeps what it says
  decide(line, LETTERS[key], LETTERS[key] && decision(line.dataset.recording)[1]);
  if (key === "a") (next || line).focus();
  else if (key !== "u") line.querySelector("input").focus();
});

// The file: what was decided, by row of the table, and the rows of recordings that are not here.
by("save").addEventListener("click", () => {
  const clean = (text) => text.replace(/\s+/g, " ").replace(/"/g, "'").trim() || "n/a";
  const made = rows.filter((row) => decision(row.recording)[0]);
  const lines = made.map((row) => [...row.whose, row.recording, ...decision(row.recording).map(clean)]);
  const text = [columns, ...lines, ...others].map((row) => row.join("\t") + "\n").join("");
  const address = URL.createObjectURL(new Blob([text], { type: "text/tab-separated-values" }));
  element("a", { href: address, download: file }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
  by("unsaved").textContent = `Saved as a download: put ${file} into the folder of this page.`;
});
table.querySelectorAll("th button").forEach((button, column) => button.addEventListener("click", () => {
  order = [column, button.parentElement.ariaSort === "ascending"]; // as the page has just marked it
  choose();
}));
by("state").append(...[...new Set(rows.map((row) => row.state))].sort().map((text) => new Option(text)));
for (const id of ["find", "state", "decision"]) by(id).addEventListener("input", choose);
by("back").addEventListener("click", () => turn(first - EACH));
by("next").addEventListener("click", () => turn(first + EACH));
tell();
choose();
