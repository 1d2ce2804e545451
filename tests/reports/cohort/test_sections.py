"""The further analyses on the page of a cohort: words and pictures are those of the tables, in a browser too."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from fcpower_bids.outputs.tables import read_table
from fcpower_bids.reports.cohort.page import make_sections, write_group_report
from fcpower_bids.reports.cohort.tables import GroupTables
from fcpower_bids.settings import Settings
from tests.page_figures import check_in_browser, unchecked_figures
from tests.reports.cohort.test_page import EVIL
from tests.reports.group_outputs import SETTINGS, make_cohort, write_further

ANCHORS = ["cohort", "exponent", "screen", "controls", "curves", "sweep", "encoders", "spectrum"]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Settings and tables of the further analyses of an invented cohort."""
    folder = tmp_path_factory.mktemp("further")
    settings = Settings(folder / "bids", folder / "out", "group").changed(scan_minutes=(1.0, 2.0), sample_sizes=(12,))
    settings = settings.changed(
        **SETTINGS | {"targets": ("planted", "group"), "repeats": 1, "folds": 3, "inner_folds": 2}
    )
    write_further(settings, make_cohort(n_people=24))
    return settings, GroupTables(settings)


@pytest.fixture(scope="module")
def sections(outputs):
    return {section.anchor: section for section in make_sections(outputs[1])}


def copy_of(outputs, tmp_path, *without):
    """Settings of a folder with all tables but some."""
    settings = replace(outputs[0], output_dir=tmp_path / "out")
    (settings.output_dir / "group").mkdir(parents=True)
    for path in (outputs[0].output_dir / "group").iterdir():
        if path.stem not in without:
            (settings.output_dir / "group" / path.name).write_bytes(path.read_bytes())
    return settings


def table(outputs, name):
    return read_table(outputs[1].path(name))


def test_every_analysis_has_its_section_and_no_part_failed(sections, page):
    assert list(sections) == ANCHORS
    text = page.read_text(encoding="utf-8")
    assert "could not be made" not in text


# Words and numbers


def test_the_screen_counts_what_its_table_says(outputs, sections):
    screen = table(outputs, "transform_screen")
    own = screen[(screen["target"] == "planted") & screen["mean_difference"].notna()]
    clear = own["p_holm"] < 0.05
    better, worse = (int((clear & (sign * own["mean_difference"] > 0)).sum()) for sign in (1, -1))
    (said,) = (said for said in sections["screen"].sentences if said.startswith("planted: "))
    counted = [0 if number == "none" else int(number) for number in re.findall(r"(\w+) (?:is|are) ", said)]
    assert said.startswith(f"planted: of {len(own)} transforms compared with FC^0.35, ")
    assert counted == [better, worse, len(own) - better - worse]


def test_learning_curves_end_at_the_whole_cohort(outputs, sections):
    curves = table(outputs, "learning_curves")
    own = curves[(curves["target"] == "planted") & (curves["representation"] == "fc_power")]
    means = own[own["part"] == "full"].groupby("n_people")["r"].mean()
    said = sections["curves"].sentences[0]
    assert said.startswith("planted, mean r by the number of people: ")
    assert f"FC^0.35 {means.iloc[0]:.3f} at {means.index[0]}, {means.iloc[-1]:.3f} at {means.index[-1]}" in said
    assert any("Embeddings known of the full scan only" in one for one in sections["curves"].sentences)


# In a real browser


def test_the_page_is_whole_and_its_tables_sort_by_their_numbers(opened, page):
    assert {f"#{anchor}" for anchor in ANCHORS} <= check_in_browser(opened, page, 16, 40)[0]
    for number in range(opened.evaluate("document.querySelectorAll('.part .sortable').length")):
        one = f"document.querySelectorAll('.part .sortable')[{number}]"
        names = opened.evaluate(f"[...{one}.tHead.rows[0].cells].map((cell) => cell.textContent)")
        for name in {"Difference", "Mean of folds", "All predictions", "Agreement"}.intersection(names):
            place = names.index(name)
            values = f"[...{one}.tBodies[0].rows].map((row) => row.cells[{place}].dataset.value)"
            opened.evaluate(f"{one}.tHead.rows[0].cells[{place}].querySelector('button').click()")
            found = [float(value) for value in opened.evaluate(values) if value != "n/a"]
            assert found == sorted(found)
            assert len(set(found)) > 1
    opened.evaluate("document.documentElement.style.scrollBehavior = 'auto'; window.scrollTo(0, 0)")
    opened.evaluate("document.querySelector('nav a[href=\"#sweep\"]').click()")
    assert abs(opened.evaluate("document.getElementById('sweep').getBoundingClientRect().top")) < 60


def test_malicious_text_in_every_table_is_shown_as_text(browser, outputs, tmp_path):
    settings = copy_of(outputs, tmp_path)
    names = {"planted": EVIL[0], "null": EVIL[1], "toy_scale-12": EVIL[3], "sub-0": EVIL[2], "Nobody": EVIL[4]}
    names |= {
        "embedding:toy": f"embedding:{EVIL[2]}",
        "parcel1": EVIL[6],
        "toy_scale-6": EVIL[5],
        "Tucker-denoised": EVIL[1],
    }
    for path in (settings.output_dir / "group").iterdir():
        text = path.read_text(encoding="utf-8")
        for name, evil in names.items():
            if path.suffix == ".tsv":
                text = text.replace(name, evil)
            elif name != "null":  # which is a word of JSON
                text = text.replace(name, json.dumps(evil)[1:-1])
        path.write_text(text, encoding="utf-8")
    page, _ = write_group_report(settings)
    assert "could not be made" not in page.read_text(encoding="utf-8")
    browser.open(page)
    assert browser.messages == []
    assert browser.evaluate("window.pwned === undefined")
    assert browser.evaluate("document.querySelectorAll('img[src=x], main script:not([type])').length") == 0
    assert browser.evaluate("[...document.images].every((one) => one.naturalWidth > 0 && !one.hasAttribute('onerror'))")
    text = browser.evaluate("document.body.textContent")
    assert [evil for evil in (*EVIL[:3], *EVIL[4:6]) if evil not in text] == []
    assert browser.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_every_number_of_a_figure_is_that_of_its_tables(page):
    assert unchecked_figures(page) == []
    text = page.read_text(encoding="utf-8")
    changed = page.with_name("changed.html")
    for old in (r'( alt="[^"]*?planted: raw eigenvalues )-?0\.\d{3}', r'( alt="[^"]*?group: prediction )-?0\.\d{3}'):
        changed.write_text(re.sub(old, r"\g<1>77.777", text, count=1), encoding="utf-8")
        assert changed.read_text(encoding="utf-8") != text
        assert len(unchecked_figures(changed)) == 1
