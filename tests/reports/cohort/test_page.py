"""The page of a cohort: its words, its first figures, what it leaves out, and that it says it in a real browser."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from fcpower_bids.outputs.tables import read_table, write_table
from fcpower_bids.reports.cohort.findings import (
    FOUND,
    NOT_FOUND,
    describe_finding,
    find_targets,
    smallest_correlation,
)
from fcpower_bids.reports.cohort.page import first_figures, judge_cohort, write_group_report
from fcpower_bids.reports.cohort.tables import GroupTables

EVIL = (
    "<script>window.pwned = 1</script>",
    '"><img src=x onerror="window.pwned = 1">',
    "</script><script>window.pwned = 1</script>",
    "\u202egnp.exe",
    "{{ 7 * 7 }}",
    "$\\frac{1}{0}$",
    "x" * 200,
)


@pytest.fixture(scope="module")
def outputs(invented):
    return invented, GroupTables(invented)


def copy_of(outputs, tmp_path, *tables):
    """Settings of a folder with some of the tables."""
    settings = replace(outputs[0], output_dir=tmp_path / "out")
    (settings.output_dir / "group").mkdir(parents=True)
    for name in tables:
        for ending in (".tsv", ".json"):
            path = outputs[1].path(name).with_suffix(ending)
            (settings.output_dir / "group" / path.name).write_bytes(path.read_bytes())
    return settings


def test_what_is_there_is_found_and_what_is_not_is_not(outputs):
    states = {finding.target: finding.state for finding in find_targets(outputs[1])}
    assert states == {"planted": FOUND, "null": NOT_FOUND, "group": NOT_FOUND}
    assert judge_cohort(outputs[1]).headline.startswith("planted can be predicted better than chance.")


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
        assert said[1].startswith("Over 10 small folds: mean ")


def test_score_p_and_score_needed_are_of_the_same_representation(outputs, tmp_path):
    settings = copy_of(outputs, tmp_path, "prediction", "prediction_summary", "comparisons")
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
    assert [cell.best for cell in verdict.overview.rows[0][2:5]] == [True, False, False]


def test_a_broken_table_does_not_take_the_page_with_it(outputs, tmp_path):
    settings = copy_of(outputs, tmp_path, "prediction", "prediction_summary", "identification", "qcfc", "alpha_optimum")
    GroupTables(settings).path("identification").write_text("something\telse\n1\t2\n")
    text = write_group_report(settings)[0].read_text()
    assert re.search(r"identification\.tsv has no column.*What it would show is left out", text)
    assert str(settings.output_dir) not in text


def test_the_smallest_correlation_is_that_of_students_t():
    r, n = smallest_correlation(24), 24
    assert r * np.sqrt((n - 2) / (1 - r**2)) == pytest.approx(2.0739, abs=1e-4)


# In a real browser


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
