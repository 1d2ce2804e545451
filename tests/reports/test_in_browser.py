"""The page in a real browser."""

from __future__ import annotations

import base64
import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from fcpower_bids.outputs.tables import read_matrix, read_table
from tests.reports.outputs import write_outputs, write_participant_reports

CELL = """(() => {
  const group = document.querySelector(".matrices"), canvas = group.querySelectorAll("figure > canvas")[%d];
  canvas.scrollIntoView({block: "center", behavior: "instant"});
  const box = canvas.getBoundingClientRect();
  return [box.left, box.top, box.width, box.height];
})()"""


def tsv(written, ending):
    settings, _ = written
    path = next(settings.output_dir.glob(f"sub-01/ses-a/func/*run-1_*{ending}"))
    return read_matrix(path)


def order(written):
    """Parcels by network; the toy's networks alternate."""
    _, names = tsv(written, "stat-pearsoncorrelation_relmat.tsv")
    return np.argsort(np.arange(len(names)) % 3, kind="stable")


@pytest.fixture
def page(browser, written):
    browser.open(written[1])
    return browser


def test_the_page_is_silent_and_asks_for_nothing_but_itself(page, written):
    assert page.messages == []
    assert [url for url in page.requests if not url.startswith("data:")] == [written[1].absolute().as_uri()]


def test_every_image_loads_and_says_what_it_shows(page):
    images = page.evaluate("[...document.images].map((one) => [one.complete, one.naturalWidth, one.alt])")
    assert len(images) >= 10
    assert all(complete and width > 100 and len(alt) > 20 for complete, width, alt in images)


def test_every_link_inside_the_page_leads_somewhere(page, written):
    links = page.evaluate("[...document.querySelectorAll('a')].map((one) => one.getAttribute('href'))")
    inside = [link for link in links if link.startswith("#")]
    assert len(inside) > 8
    assert page.evaluate(f"{json.dumps(inside)}.every((link) => document.getElementById(link.slice(1)))")
    folder = written[1].parent
    files = {link for link in links if not link.startswith("#")}
    assert len(files) > 8
    assert [link for link in files if not (folder / link).is_file()] == []


def test_navigation_scrolls_to_the_recording(page):
    page.evaluate("document.documentElement.style.scrollBehavior = 'auto'; window.scrollTo(0, 0)")
    page.evaluate("document.querySelector('nav a[href=\"#methods\"]').click()")
    assert abs(page.evaluate("document.getElementById('methods').getBoundingClientRect().top")) < 850
    assert page.evaluate("window.scrollY") > 1000


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("cell", [(0, 0), (3, 17), (20, 5)])
def test_pointing_at_a_cell_tells_the_pair_and_the_values_of_the_tables(page, written, number, cell):
    fc, names = tsv(written, "stat-pearsoncorrelation_relmat.tsv")
    power, _ = tsv(written, "desc-power0p35_relmat.tsv")
    left, top, width, height = page.evaluate(CELL % number)
    band, step = width - height, height / len(names)
    page.point(left + band + (cell[1] + 0.5) * step, top + (cell[0] + 0.5) * step)
    told = page.evaluate('document.querySelector(".matrices output").textContent')
    i, j = order(written)[list(cell)]
    assert told.startswith(f"{names[i]} × {names[j]} : ")
    assert f"FC {fc[i, j]:.4f} " in told
    assert told.endswith(f"FC^0.35 {power[i, j]:.4f}")


def test_every_matrix_says_beforehand_how_it_is_read_and_a_tap_is_enough(page, written):
    hints = page.evaluate("[...document.querySelectorAll('.matrices output')].map((one) => one.textContent)")
    assert len(hints) == page.evaluate("document.querySelectorAll('.matrices').length") > 3
    assert all(hint.startswith("Point at a cell, or tap it, to read it. With the keyboard: Tab") for hint in hints)
    left, top, width, _ = page.evaluate(CELL % 0)
    page.click(left + width - 2, top + 2)
    _, names = tsv(written, "stat-pearsoncorrelation_relmat.tsv")
    told = page.evaluate('document.querySelector(".matrices output").textContent')
    first, last = order(written)[[0, -1]]
    assert told.startswith(f"{names[first]} × {names[last]} : ")


def test_a_parcel_without_a_value_is_told_as_missing(page, written):
    fc, names = tsv(written, "stat-pearsoncorrelation_relmat.tsv")
    missing = int(np.flatnonzero(np.isnan(np.diag(fc)))[0])
    place = int(np.flatnonzero(order(written) == missing)[0])
    left, top, width, height = page.evaluate(CELL % 0)
    step = height / len(names)
    page.point(left + width - height + 0.5 * step, top + (place + 0.5) * step)
    told = page.evaluate('document.querySelector(".matrices output").textContent')
    assert told.startswith(f"{names[missing]} × ")
    assert told.endswith("FC n/a · FC^0.35 n/a")


def test_the_arrow_keys_move_over_the_cells(page, written):
    _, names = tsv(written, "stat-pearsoncorrelation_relmat.tsv")
    page.evaluate('document.querySelector(".matrices canvas").focus()')
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.press(key)
    told = page.evaluate('document.querySelector(".matrices output").textContent')
    first, second = order(written)[[1, 1]]
    assert told.startswith(f"{names[first]} × {names[second]}")


def test_matrices_are_drawn_in_colour_on_one_scale_or_their_own(page):
    count = """(() => { const canvas = document.querySelectorAll(".matrices figure > canvas")[1];
      const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
      let sum = 0; for (let i = 0; i < data.length; i += 4) sum += Math.abs(data[i] - data[i + 2]); return sum; })()"""
    limits = "[1, 3].map((place) => document.querySelectorAll('.matrices .bar span')[place].textContent)"
    alone = page.evaluate(count)
    assert len(set(page.evaluate(limits))) == 2
    page.evaluate('document.querySelector(".scale input").click()')
    assert alone > 1.2 * page.evaluate(count) > 0
    assert len(set(page.evaluate(limits))) == 1


def test_tables_sort_by_number_both_ways_with_missing_values_last(page):
    column = "[...document.querySelectorAll('.sortable tbody tr')].map((row) => row.cells[5].textContent)"
    assert page.evaluate("document.querySelectorAll('.sortable tbody tr').length") == 4
    header = "document.querySelectorAll('.sortable thead th')[5]"
    page.evaluate(f"{header}.querySelector('button').focus()")
    page.press("Enter")
    upwards = page.evaluate(column)
    assert page.evaluate(f"{header}.getAttribute('aria-sort')") == "ascending"
    page.press("Enter")
    downwards = page.evaluate(column)
    assert page.evaluate(f"{header}.getAttribute('aria-sort')") == "descending"
    known = [float(text) for text in upwards if text]
    assert known == sorted(known)
    assert len(set(known)) > 1
    assert [float(text) for text in downwards if text] == known[::-1]
    assert upwards[-1] == downwards[-1] == ""


def test_every_control_is_reached_by_the_keyboard(page):
    reachable = page.evaluate(
        "[...document.querySelectorAll('button, summary, input, a, figure > canvas')].every((one) => one.tabIndex >= 0)"
    )
    assert reachable
    page.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"


def test_a_laptop_needs_no_sideways_scrolling(page):
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_printing_unfolds_everything(page):
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("[...document.querySelectorAll('details')].every((one) => one.open)")
    assert len(page.call("Page.printToPDF", printBackground=True)["data"]) > 50_000


SHEETS = {"A4": (8.27, 11.69), "Letter": (8.5, 11)}


@pytest.mark.parametrize("paper", SHEETS)
def test_a_recording_is_one_sheet_of_paper(page, written, paper):
    width, height = SHEETS[paper]
    pdf = page.call("Page.printToPDF", printBackground=True, paperWidth=width, paperHeight=height)["data"]
    sheets = re.findall(rb"/Type /Page\b(?!s)", base64.b64decode(pdf))
    with_figures = list(written[0].output_dir.glob("sub-01/**/*_desc-fcpower_qc.tsv"))
    assert len(sheets) == len(with_figures) == 3


def test_the_figures_of_a_sheet_are_those_of_the_quality_table(page, written):
    page.call("Emulation.setEmulatedMedia", media="print")
    shown = page.evaluate(
        """[...document.querySelectorAll('.numbers')].map((one) => [one.innerText.split('\\n')[0],
        one.checkVisibility(), [...one.querySelectorAll('dl div')].map((each) => each.innerText.split('\\n'))])"""
    )
    hidden = page.evaluate(
        "['#recordings', '#methods', '#choices', 'nav', '.how']"
        ".some((one) => document.querySelector(one).checkVisibility())"
    )
    page.call("Emulation.setEmulatedMedia", media="")
    assert not hidden
    assert not page.evaluate("document.querySelector('.numbers').checkVisibility()")
    tables = sorted(written[0].output_dir.glob("sub-01/**/*_desc-fcpower_qc.tsv"))
    for path, (head, visible, figures) in zip(tables, sorted(shown), strict=True):
        row = read_table(path).iloc[0]
        assert visible
        assert head.startswith("sub-01 ses-")
        told = dict(figures)
        assert told["Minutes kept"].split(" of ")[0] == f"{row['seconds_kept'] / 60:.1f}"
        assert told["Censored"] == f"{row['censored_volumes']} of {row['volumes']}"
        assert (told["Mean FD (mm)"], told["Max FD (mm)"]) == (f"{row['mean_fd']:.3f}", f"{row['max_fd']:.3f}")
        assert told["Degrees of freedom"] == f"{row['degrees_of_freedom']:.0f}"
        assert told["Parcels without a value"] == f"{row['uncovered_parcels']} of {row['parcels']}"
        assert told["State"] == {"done": "used"}.get(row["state"], row["state"])


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
    assert browser.evaluate("document.scripts.length") == 3  # two groups of matrices and the page's own
    assert browser.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    left, top, width, height = browser.evaluate(CELL % 0)
    browser.point(left + width - 2, top + height - 2)
    assert browser.evaluate('document.querySelector(".matrices output").textContent').count(" × ") == 1


DARK = {"name": "prefers-color-scheme", "value": "dark"}
CORNERS = """(async () => Promise.all([...document.querySelectorAll(".panel > img")].map(async (image) => {
  const canvas = document.createElement("canvas"), pen = canvas.getContext("2d");
  [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
  pen.drawImage(image, 0, 0);
  return [...pen.getImageData(1, 1, 1, 1).data].slice(0, 3);
})))()"""


def test_drawings_follow_the_page_into_the_dark_and_are_saved_black_on_white(browser, written, tmp_path):
    browser.open(written[1])
    light = browser.evaluate(CORNERS)
    assert all(min(one) > 250 for one in light)
    try:
        browser.call("Emulation.setEmulatedMedia", features=[DARK])
        browser.open(written[1])
        assert all(max(one) < 40 for one in browser.evaluate(CORNERS))
        title = browser.evaluate('document.querySelector(".panel > img").parentElement.querySelector("h4").textContent')
        for number, ending in enumerate(("svg", "png")):
            browser.download(
                f'document.querySelectorAll(".panel .save")[0].querySelectorAll("button")[{number}].click()', tmp_path
            )
            (saved,) = tmp_path.glob(f"*.{ending}")
            assert title.split()[0] in saved.name
        drawing = ElementTree.parse(next(tmp_path.glob("*.svg"))).getroot()
        caption = drawing.find("{http://www.w3.org/2000/svg}desc").text
        image = browser.evaluate('document.querySelector(".panel > img").alt')
        assert title in caption
        assert image in caption
        assert ".tsv" in caption
        assert "prefers-color-scheme" not in ElementTree.tostring(drawing, encoding="unicode")
        assert Image.open(next(tmp_path.glob("*.png"))).convert("RGB").getpixel((3, 3)) == (255, 255, 255)
    finally:
        browser.call("Emulation.setEmulatedMedia", features=[])
