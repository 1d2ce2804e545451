"""The page of a cohort: findings, figures and sections say what their tables say, in a browser too."""

from __future__ import annotations

import json
import re
import shutil
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
from tests.conftest import copy_study, once
from tests.page_figures import check_in_browser, unchecked_figures
from tests.running import run_group

EVIL = (
    "<script>window.pwned = 1</script>",
    '"><img src=x onerror="window.pwned = 1">',
    "</script><script>window.pwned = 1</script>",
    "\u202egnp.exe",
    "{{ 7 * 7 }}",
    "$\\frac{1}{0}$",
    "x" * 200,
)
QUICK = ("--folds", "3", "--repeats", "1", "--permutations", "39", "--nprocs", "1", "--quiet", "--alpha", "grid")
QUICK += ("--atlas", "builtin")
KINDS = ("--representations", "fc", "fc_power", "embedding", "--encoder", "random-init", "--analyses", "all")
IN_FILE = "scan_minutes = [1.0, 2.0]\nsample_sizes = [12]\ninner_folds = 2\n"


@pytest.fixture(scope="session")
def outputs(cohort_of_24, tmp_path_factory):
    """Settings and tables of every analysis of 24 people, in whom ``planted_score`` is there to be found."""

    def make(folder):
        copy_study(cohort_of_24, folder)
        (folder / "file.toml").write_text(IN_FILE)
        words = ("--targets", "planted_score", "null_score", "sex", *KINDS, *QUICK)
        run_group(folder / "in", folder / "out", *words, "--config-file", folder / "file.toml")

    folder, _ = once(tmp_path_factory, "pages_of_cohort", make)
    settings = Settings(folder / "in", folder / "out", "group")
    return settings, GroupTables(settings)


@pytest.fixture(scope="module")
def page(outputs):
    return write_group_report(outputs[0])[0]


def copy_of(outputs, tmp_path):
    """Settings of a copy of the tables, to be changed."""
    shutil.copytree(outputs[0].results, tmp_path / "out" / "group")
    return replace(outputs[0], output_dir=tmp_path / "out")


def test_what_is_there_is_found_and_what_is_not_is_not(outputs):
    states = {finding.target: finding.state for finding in find_targets(outputs[1])}
    assert states == {"planted_score": FOUND, "null_score": NOT_FOUND, "sex": NOT_FOUND}
    assert judge_cohort(outputs[1]).headline.startswith("planted_score: predicted better than chance.")


def test_in_folds_of_eight_the_best_representation_is_that_of_all_predictions(outputs):
    people = read_table(outputs[1].path("predictions"))
    for finding in find_targets(outputs[1]):
        own = people[people["target"] == finding.target].groupby(["representation", "repeat"])
        score = roc_auc_score if finding.score == "auc" else lambda seen, said: np.corrcoef(seen, said)[0, 1]
        pooled = own.apply(lambda part, score=score: score(part["observed"], part["predicted"])).groupby(level=0).mean()
        assert finding.summary["representation"][0] == pooled.idxmax()
        name = outputs[1].title(str(pooled.idxmax()))
        said = describe_finding(finding, outputs[1])
        assert said[0].startswith(f"{finding.label} {pooled.max():.2f} with {name}, p = ")


def test_score_p_and_score_needed_are_of_the_same_representation(outputs, tmp_path):
    settings = copy_of(outputs, tmp_path)
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


def test_a_broken_table_is_named_and_there_is_no_page(outputs, tmp_path):
    settings = copy_of(outputs, tmp_path)
    GroupTables(settings).path("identification").write_text("something\telse\n1\t2\n")
    with pytest.raises(DatasetError, match=r"^identification\.tsv has no column"):
        write_group_report(settings)
    assert not (settings.output_dir / "group.html").exists()


SVG = "{http://www.w3.org/2000/svg}"


def parts(panel, kind):
    return list(ElementTree.fromstring(panel.svg).iter(f"{SVG}{kind}"))


def test_a_line_reaches_from_guessing_to_the_score_that_is_needed(outputs):
    tables = outputs[1]
    panels = {panel.title: panel for panel in first_figures(find_targets(tables), tables)}
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


ANCHORS = ["check", "cohort", "motion", "prediction", "edges", "identification"]
ANCHORS += ["exponent", "screen", "controls", "curves", "encoders", "spectrum"]


def test_tables_that_no_note_knows_are_not_shown(outputs, tmp_path):
    """They may be of other people."""
    settings = copy_of(outputs, tmp_path)
    (settings.results / "analyses.json").unlink()
    assert [section.anchor for section in make_sections(GroupTables(settings))] == ["cohort"]


def test_every_analysis_has_its_section_and_the_screen_counts_what_its_table_says(outputs):
    sections = {section.anchor: section for section in make_sections(outputs[1])}
    assert list(sections) == ANCHORS
    screen = read_table(outputs[1].path("transform_screen"))
    own = screen[(screen["target"] == "planted_score") & screen["mean_difference"].notna()]
    clear = own["p_holm"] < 0.05
    better, worse = (int((clear & (sign * own["mean_difference"] > 0)).sum()) for sign in (1, -1))
    (said,) = (said for said in sections["screen"].sentences if said.startswith("planted_score: "))
    counted = [0 if number == "none" else int(number) for number in re.findall(r"(\w+) (?:is|are) ", said)]
    assert said.startswith(f"planted_score: of {len(own)} transforms compared with FC^0.35, ")
    assert counted == [better, worse, len(own) - better - worse]


def test_the_page_is_whole_and_its_tables_sort_by_their_numbers(browser, page):
    browser.open(page)
    browser.unfold()
    assert {f"#{anchor}" for anchor in ANCHORS} <= check_in_browser(browser, page, 8, 40)
    for number in range(browser.evaluate("document.querySelectorAll('.part .sortable').length")):
        one = f"document.querySelectorAll('.part .sortable')[{number}]"
        names = browser.evaluate(f"[...{one}.tHead.rows[0].cells].map((cell) => cell.textContent)")
        for name in {"Difference", "Mean of folds", "All predictions", "Agreement"}.intersection(names):
            place = names.index(name)
            values = f"[...{one}.tBodies[0].rows].map((row) => row.cells[{place}].dataset.value)"
            browser.evaluate(f"{one}.tHead.rows[0].cells[{place}].querySelector('button').click()")
            found = [float(value) for value in browser.evaluate(values) if value != "n/a"]
            assert found == sorted(found)
            assert len(set(found)) > 1
    browser.evaluate("document.documentElement.style.scrollBehavior = 'auto'; window.scrollTo(0, 0)")
    browser.evaluate("document.querySelector('nav a[href=\"#curves\"]').click()")
    assert abs(browser.evaluate("document.getElementById('curves').getBoundingClientRect().top")) < 60


def test_malicious_text_in_every_table_is_shown_as_text(browser, outputs, tmp_path):
    settings = copy_of(outputs, tmp_path)
    names = {"planted_score": EVIL[0], "null_score": EVIL[1], "fcpowerbuiltin": EVIL[3], "sub-0": EVIL[2]}
    names |= {"embedding:randominit": f"embedding:{EVIL[2]}", "LH_AntInf_01": EVIL[6], "Tucker-denoised": EVIL[1]}
    names |= {"The sweep needs": EVIL[4], "two parcellations": EVIL[5]}
    for path in (settings.output_dir / "group").iterdir():
        text = path.read_text(encoding="utf-8")
        for name, evil in names.items():
            text = text.replace(name, evil if path.suffix == ".tsv" else json.dumps(evil)[1:-1])
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
    for old in (r'( alt="planted_score: FC )-?0\.\d{3}', r'( alt="[^"]*?sex: prediction )-?0\.\d{3}'):
        changed.write_text(re.sub(old, r"\g<1>77.777", text, count=1), encoding="utf-8")
        assert changed.read_text(encoding="utf-8") != text
        assert len(unchecked_figures(changed)) == 1
