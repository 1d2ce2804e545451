
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
