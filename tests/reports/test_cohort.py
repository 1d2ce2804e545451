"""The page of a cohort: findings, figures and sections say what their tables say, in a browser too."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs.tables import read_table, write_table
from fcpower_bids.reports.cohort.findings import (
    FOUND,
    NOT_FOUND,
    describe_finding,
    find_targets,
)
from fcpower_bids.reports.cohort.page import first_figures, judge_cohort, make_sections, write_group_report
from fcpower_bids.reports.cohort.tables import GroupTables
from fcpower_bids.settings import Settings
from tests.page_figures import check_in_browser, unchecked_figures
from tests.reports.group_outputs import SETTINGS, make_cohort, write_further, write_group_outputs

EVIL = (
    "<script>window.pwned = 1</script>",
    '"><img src=x onerror="window.pwned = 1">',
    "</script><script>window.pwned = 1</script>",
    "\u202egnp.exe",
    "{{ 7 * 7 }}",
    "$\\frac{1}{0}$",
    "x" * 200,
)


@pytest.fixture(scope="session")
def invented(tmp_path_factory):
    """Settings of the outputs of an invented cohort in which ``planted`` is there to be found."""
    return write_group_outputs(tmp_path_factory.mktemp("group"))


@pytest.fixture(scope="module")
def page(outputs):
    return write_group_report(outputs[0])[0]


@pytest.fixture
def opened(browser, page):
    browser.open(page)
    browser.unfold()
    return browser


@pytest.fixture(scope="module")
def invented_tables(invented):
    return invented, GroupTables(invented)


def copy_some(invented_tables, tmp_path, *tables):
    """Settings of a folder with some of the tables."""
    settings = replace(invented_tables[0], output_dir=tmp_path / "out")
    (settings.output_dir / "group").mkdir(parents=True)
    for name in tables:
        for ending in (".tsv", ".json"):
            path = invented_tables[1].path(name).with_suffix(ending)
            (settings.output_dir / "group" / path.name).write_bytes(path.read_bytes())
    return settings


def test_what_is_there_is_found_and_what_is_not_is_not(invented_tables):
    states = {finding.target: finding.state for finding in find_targets(invented_tables[1])}
    assert states == {"planted": FOUND, "null": NOT_FOUND, "group": NOT_FOUND}
    assert judge_cohort(invented_tables[1]).headline.startswith("planted can be predicted better than chance.")


def test_in_folds_of_eight_the_best_representation_is_that_of_all_predictions(invented_tables):
    people = read_table(invented_tables[1].path("predictions"))
    for finding in find_targets(invented_tables[1]):
        own = people[people["target"] == finding.target].groupby(["representation", "repeat"])
        score = roc_auc_score if finding.score == "auc" else lambda seen, said: np.corrcoef(seen, said)[0, 1]
        pooled = own.apply(lambda part, score=score: score(part["observed"], part["predicted"])).groupby(level=0).mean()
        assert finding.summary["representation"][0] == pooled.idxmax()
        name = invented_tables[1].title(str(pooled.idxmax()))
        said = describe_finding(finding, invented_tables[1])
        assert said[0].startswith(f"{finding.label} {pooled.max():.2f} with {name}, p = ")


def test_score_p_and_score_needed_are_of_the_same_representation(invented_tables, tmp_path):
    settings = copy_some(invented_tables, tmp_path, "prediction", "prediction_summary", "comparisons")
    path = settings.output_dir / "group" / "prediction_summary.tsv"
    summary = read_table(path)
    names = list(dict.fromkeys(summary["representation"]))
    for column, values in (
        ("r_pooled_mean", (0.2, 0.3, 0.1)),
        ("p_max_targets", (0.025, 0.05, 0.5)),
        ("score_needed", (0.15, 0.35, 0.73)),
    ):
        summary[column] = summary["representation"].map(dict(zip(names, values, strict=True)))
    write_table(path, summary)
    verdict = judge_cohort(GroupTables(settings))
    said = verdict.findings[0][1][0]
    assert said.startswith("r 0.20 with FC, p = 0.025 (")
    assert "chance stays below 0.15 in" in said


def test_a_broken_table_is_named_and_there_is_no_page(invented_tables, tmp_path):
    settings = copy_some(invented_tables, tmp_path, "prediction", "prediction_summary", "identification", "qcfc")
    GroupTables(settings).path("identification").write_text("something\telse\n1\t2\n")
    with pytest.raises(DatasetError, match=r"^identification\.tsv has no column"):
        write_group_report(settings)
    assert not (settings.output_dir / "group.html").exists()


SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def figures(invented):
    tables = GroupTables(invented)
    return tables, {panel.title: panel for panel in first_figures(find_targets(tables), tables)}


def parts(panel, kind):
    return list(ElementTree.fromstring(panel.svg).iter(f"{SVG}{kind}"))


def test_a_line_reaches_from_guessing_to_the_score_that_is_needed(figures):
    tables, panels = figures
    panel, summary = panels["Prediction (r)"], tables.rows("prediction_summary")
    rows = summary[summary["auc_pooled_mean"].isna()]
    ends = [
        re.findall(r"[ML]([\d.]+) ", one.get("d")) for one in parts(panel, "path") if one.get("stroke-width") == "1.3"
    ]
    lengths = sorted(float(last) - float(first) for first, last in ends)
    needed = np.sort(rows["score_needed"])
    np.testing.assert_allclose(lengths, needed * lengths[-1] / needed[-1], atol=0.2)
    assert len(lengths) == len(rows) > 0
    significant = [one for one in parts(panel, "g") if one.get("fill") == "#0072B2"]
    assert len(list(significant[0])) == (rows["p_max_targets"] < 0.05).sum()


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


def test_every_analysis_has_its_section(sections):
    assert list(sections) == ANCHORS


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


# In a real browser


def test_the_page_is_whole_and_its_tables_sort_by_their_numbers(opened, page):
    assert {f"#{anchor}" for anchor in ANCHORS} <= check_in_browser(opened, page, 8, 40)[0]
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
    for old in (r'( alt="planted: FC )-?0\.\d{3}', r'( alt="[^"]*?group: prediction )-?0\.\d{3}'):
        changed.write_text(re.sub(old, r"\g<1>77.777", text, count=1), encoding="utf-8")
        assert changed.read_text(encoding="utf-8") != text
        assert len(unchecked_figures(changed)) == 1
