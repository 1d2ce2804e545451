// Every piece of code has a region with a button to copy it: each gets a name of its own, and the keyboard scrolls code
// and wide tables, which the theme allows only after they have been seen.
const label = () => {
  document.querySelectorAll("nav.md-code__nav").forEach((nav, number) => {
    const name = `Code ${number + 1}`;
    if (nav.getAttribute("aria-label") !== name) nav.setAttribute("aria-label", name);
  });
  document.querySelectorAll(".highlight code, .md-typeset__scrollwrap").forEach((part) => {
    if (!part.hasAttribute("tabindex")) part.setAttribute("tabindex", "0");
  });
};
new MutationObserver(label).observe(document.body, { childList: true, subtree: true, attributeFilter: ["tabindex"] });
label();
