"""The further analyses on the page of a cohort: words and pictures are those of the tables, in a browser too."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from fcpower_bids.outputs.tables import read_table, write_table
from fcpower_bids.reports.cohort.page import make_sections, write_group_report
from fcpower_bids.reports.cohort.tables import GroupTables
from fcpower_bids.schema import TABLES
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


def grid(sections, anchor, title):
    return next(one for one in sections[anchor].grids if one.title == title)


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


def test_scores_that_are_not_defined_leave_an_empty_panel(outputs, tmp_path):
    """Of sites that are held out, a class that goes with the site has no score in any fold."""
    group = tmp_path / "group"
    group.mkdir()
    for name in ("learning_curves", "spectral_controls", "alpha_optimum", "alpha"):
        path = outputs[1].path(name)
        scores = [key for key in ("r", "auc", "fold_mean", "score") if key in TABLES[name].columns]
        numbers = [key for key in scores if not TABLES[name].columns[key].is_text]
        write_table(group / path.name, read_table(path).assign(**dict.fromkeys(numbers, np.nan)))
        (group / path.name).with_suffix(".json").write_bytes(path.with_suffix(".json").read_bytes())
    tables = GroupTables(replace(outputs[0], output_dir=tmp_path))
    sections = {section.anchor: section for section in make_sections(tables)}
    assert not tables.failures
    assert "its score is not defined relative to" in sections["exponent"].answers[0]
    assert all("nan" not in answer for section in sections.values() for answer in section.answers)
    assert sections["controls"].panels
    assert sections["curves"].panels


def test_parcellations_are_counted_and_their_means_drawn(outputs, sections):
    gains = table(outputs, "parcellation_gains")
    own = gains[gains["target"] == "planted"]
    better = int(((own["p_holm"] < 0.05) & (own["mean_difference"] > 0)).sum())
    begin = f"planted: FC^0.35 against FC under 2 parcellations: {better or 'none'} "
    assert sections["sweep"].sentences[0].startswith(begin)
    means = grid(sections, "sweep", "Scores by parcellation, means over folds")
    sweep = table(outputs, "parcellation_sweep")
    key = (sweep["target"] == "planted") & (sweep["atlas"] == "atlas-toy_scale-6") & (sweep["representation"] == "fc")
    (row,) = [row for row in means.rows if [row[i].text for i in (0, 1, 4)] == ["planted", "toy 6", "FC"]]
    assert row[means.header.index("r")].value == pytest.approx(sweep[key]["r"].mean())


def test_encoders_are_ranked_and_compared_as_in_their_tables(outputs, sections):
    scores, pairs = table(outputs, "encoders"), table(outputs, "encoder_comparisons")
    own = scores[scores["target"] == "planted"]
    best = str(own.loc[own["pooled"].idxmax(), "representation"])
    said = sections["encoders"].sentences[0]
    assert f"that of {outputs[1].title(best)} ({own['pooled'].max():.3f})" in said
    among = pairs[(pairs["target"] == "planted") & ((pairs["representation"] == best) | (pairs["reference"] == best))]
    for _, row in among.iterrows():
        other = row["reference"] if row["representation"] == best else row["representation"]
        listed = said.split("not distinguishable from")[-1] if "not distinguishable" in said else ""
        assert (outputs[1].title(str(other)) in listed) == (not row["p_holm"] < 0.05)


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
