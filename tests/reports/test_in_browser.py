"""The page in a real browser."""

from __future__ import annotations

import json

import pytest

from tests.page_figures import check_in_browser
from tests.reports.outputs import write_outputs, write_participant_reports


@pytest.fixture
def page(browser, written):
    browser.open(written[1])
    return browser


def test_the_page_is_whole_and_every_control_is_reached_by_the_keyboard(page, written):
    inside, files = check_in_browser(page, written[1], 10, 20)
    assert min(len(inside), len(files)) > 8
    reachable = page.evaluate(
        "[...document.querySelectorAll('button, summary, input, a')].every((one) => one.tabIndex >= 0)"
    )
    assert reachable
    page.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.evaluate("document.documentElement.style.scrollBehavior = 'auto'; window.scrollTo(0, 0)")
    page.evaluate("document.querySelector('nav a[href=\"#methods\"]').click()")
    assert abs(page.evaluate("document.getElementById('methods').getBoundingClientRect().top")) < 850
    assert page.evaluate("window.scrollY") > 1000


EVIL = (
    "<script>window.pwned = 1</script>",
    '"><img src=x onerror="window.pwned = 1">',
    "</script><script>window.pwned = 1</script>",
    "'); window.pwned = 1; ('",
    "\u202egnp.exe",
    "{{ 7 * 7 }}",
    "$\\frac{1}{0}$",
    "x" * 200,
)


def test_malicious_names_are_shown_as_text(browser, tmp_path):
    names = (*EVIL, *(f"region {i}" for i in range(16)))
    networks = (EVIL[0], EVIL[4], EVIL[7])
    settings = write_outputs(tmp_path, n_runs=1, names=names, networks=networks, min_coverage=0.9, strategy="24P")
    sidecar = next(settings.output_dir.rglob("*stat-coverage_bold.json"))
    facts = json.loads(sidecar.read_text())
    facts["UncoveredNodes"] = list(EVIL)
    facts["Atlas"]["Source"] = EVIL[1]
    sidecar.write_text(json.dumps(facts))
    (page,) = write_participant_reports(settings, ["01"])
    browser.open(page)
    assert browser.messages == []
    assert len(browser.requests) == 1 + sum(url.startswith("data:") for url in browser.requests)
    assert browser.evaluate("window.pwned === undefined")
    text = browser.evaluate("document.body.textContent")
    assert all(evil in text for evil in EVIL)
    assert browser.evaluate("document.querySelectorAll('img[src=x]').length") == 0
    assert browser.evaluate("document.scripts.length") == 1
    assert browser.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


DARK = {"name": "prefers-color-scheme", "value": "dark"}
CORNERS = """(async () => Promise.all([...document.querySelectorAll(".panel > img")].map(async (image) => {
  const canvas = document.createElement("canvas"), pen = canvas.getContext("2d");
  [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
  pen.drawImage(image, 0, 0);
  return [...pen.getImageData(1, 1, 1, 1).data].slice(0, 3);
})))()"""


def test_drawings_follow_the_page_into_the_dark(browser, written):
    browser.open(written[1])
    assert all(min(one) > 250 for one in browser.evaluate(CORNERS))
    try:
        browser.call("Emulation.setEmulatedMedia", features=[DARK])
        browser.open(written[1])
        assert all(max(one) < 40 for one in browser.evaluate(CORNERS))
    finally:
        browser.call("Emulation.setEmulatedMedia", features=[])
