
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
for (const image of document.querySelectorAll(".panel > img")) {
  if (image.src.startsWith("data:image/svg+xml,")) answerToPointer(image, decodeURIComponent(image.src));
}
