
// Buttons that copy the text of another part of the page; where the browser forbids that, the text is selected.
document.querySelectorAll("button.copy").forEach((button) => button.addEventListener("click", async () => {
  const part = document.getElementById(button.dataset.copies);
  const label = button.textContent;
  try {
    await navigator.clipboard.writeText(part.innerText.trim());
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = label; }, 2000);
  } catch {
    getSelection().selectAllChildren(part);
  }
}));

// Every drawing can be saved, with its heading, how to read it, and the names of its tables.
function saveAs(name, address) {
  const link = document.createElement("a");
  link.download = name;
  link.href = address;
  link.click();
}
function linesOf(pen, text, width) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = `${lines.at(-1)} ${word}`.trim();
    if (pen.measureText(longer).width > width && lines.at(-1)) lines.push(word);
    else lines[lines.length - 1] = longer;
  }
  return lines;
}
function savePicture(name, image, caption) {
  const scale = 3, edge = 12, height = 16, canvas = document.createElement("canvas"), pen = canvas.getContext("2d");
  const wide = image.naturalWidth, tall = image.naturalHeight, font = "11px sans-serif";
  pen.font = font;
  const lines = linesOf(pen, caption, wide - 2 * edge);
  canvas.width = scale * wide;
  canvas.height = scale * (tall + height * lines.length + edge);
  pen.scale(scale, scale);
  pen.fillStyle = "#fff";
  pen.fillRect(0, 0, wide, canvas.height);
  pen.drawImage(image, 0, 0, wide, tall);
  pen.fillStyle = "#000";
  pen.font = font;
  lines.forEach((line, number) => pen.fillText(line, edge, tall + height * (number + 1)));
  saveAs(`${name}.png`, canvas.toDataURL("image/png"));
}
// A drawing in an image gets no pointer, so its titled rectangles are found by place.
const ROW = /<rect x="([^"]+)" y="([^"]+)" width="([^"]+)" height="([^"]+)"[^>]*><title>([^<]*)<\/title>/g;
function answerToPointer(image, text) {
  const [, wide, tall] = (text.match(/viewBox="0 0 ([\d.]+) ([\d.]+)"/) || []).map(Number);
  const rows = [...text.matchAll(ROW)].map((found) => [...found.slice(1, 5).map(Number), found[5]]);
  const holds = (left, top) => ([x, y, width, height]) => left >= x && left <= x + width && top >= y && top <= y + height;
  if (rows.length) image.addEventListener("pointermove", (event) => {
    const at = holds((event.offsetX * wide) / image.clientWidth, (event.offsetY * tall) / image.clientHeight);
    const said = rows.find(at)?.[4] ?? "";
    image.title = said.replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");
  });
}
document.querySelectorAll(".panel > img").forEach((image) => {
  if (image.src.startsWith("data:image/svg+xml,")) answerToPointer(image, decodeURIComponent(image.src));
  const panel = image.parentElement;
  const part = (which) => (panel.querySelector(which)?.textContent || "").trim();
  const title = part("h3, h4, summary"), caption = [`${title}.`, part(".how"), image.alt, part(".source")].filter(Boolean).join(" ");
  const name = `${document.title.split(" ·")[0]} ${title}`.replace(/[^\w.-]+/g, "_");
  // Saved drawings are black on white, whatever the page looks like.
  const light = image.src.replace(/%3Cstyle%3E.*?%3C\/style%3E/, "");
  const row = document.createElement("p");
  row.className = "save";
  row.append("Save as ");
  const kinds = {
    SVG: () => {
      const words = document.createElement("desc");
      words.textContent = caption;
      const text = decodeURIComponent(light.slice(light.indexOf(",") + 1)).replace(">", `>${words.outerHTML}`);
      saveAs(`${name}.svg`, `data:image/svg+xml,${encodeURIComponent(text)}`);
    },
    PNG: () => {
      const copy = new Image();
      copy.onload = () => savePicture(name, copy, caption);
      copy.src = light;
    },
  };
  for (const [kind, save] of Object.entries(kinds)) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = kind;
    button.setAttribute("aria-label", `Save "${title}" as ${kind}`);
    button.addEventListener("click", save);
    row.append(button, " ");
  }
  image.after(row);
});
