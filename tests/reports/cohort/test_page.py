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
    NOT_TESTED,
    describe_finding,
    find_targets,
    smallest_correlation,
)
from fcpower_bids.reports.cohort.page import first_figures, judge_cohort, make_sections, write_group_report
from fcpower_bids.reports.cohort.tables import GroupTables, read_long
from fcpower_bids.schema import TABLES
from fcpower_bids.settings import Settings
from tests.reports.group_outputs import make_cohort, write_group

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


@pytest.fixture(scope="module")
def sections(outputs):
    return make_sections(outputs[1])


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


def test_the_comparison_that_counts_is_that_of_the_power_with_fc(outputs):
    table = read_table(outputs[1].path("comparisons")).set_index(["target", "representation", "reference"])
    for finding in find_targets(outputs[1]):
        row = table.loc[(finding.target, "fc_power", "fc")]
        said = describe_finding(finding, outputs[1])[3]
        assert f"{row['mean_difference']:+.2f}, 95 % CI {row['ci_low']:+.2f} to {row['ci_high']:+.2f}" in said
        assert said.startswith("No evidence") == (row["p_two_sided"] >= 0.05)


def test_without_permutations_nothing_is_claimed(tmp_path):
    settings = write_choices(tmp_path, targets=("planted",), permutations=0)
    write_group(settings, replace(make_cohort(n_people=20), series=()), ("prediction",))
    tables = GroupTables(settings)
    (finding,) = find_targets(tables)
    assert finding.state == NOT_TESTED
    assert "not tested against chance" in judge_cohort(tables).headline
    assert "no permutations were run" in describe_finding(finding, tables)[0]


def test_a_broken_table_does_not_take_the_page_with_it(outputs, tmp_path):
    settings = copy_of(outputs, tmp_path, "prediction", "prediction_summary", "identification", "qcfc", "alpha_optimum")
    GroupTables(settings).path("identification").write_text("something\telse\n1\t2\n")
    text = write_group_report(settings)[0].read_text()
    assert re.search(r"identification\.tsv has no column.*What it would show is left out", text)
    assert str(settings.output_dir) not in text


def test_a_broken_sidecar_is_named_and_costs_no_verdict(outputs, tmp_path):
    settings = copy_of(outputs, tmp_path, "prediction", "prediction_summary", "comparisons", "predictions")
    path = settings.output_dir / "group" / "prediction.json"
    path.write_text(path.read_text()[: path.stat().st_size // 2])
    page, lines = write_group_report(settings)
    assert "prediction.json cannot be read as JSON. Run the group level again." in page.read_text()
    assert lines[0].startswith("planted: r ")


def test_a_share_that_chance_gives_is_no_identification(outputs, tmp_path):
    settings = copy_of(outputs, tmp_path, "identification")
    tables = GroupTables(settings)
    frame = read_table(tables.path("identification"))
    write_table(tables.path("identification"), frame.assign(p_permutation=0.4))
    assert judge_cohort(tables).headline.startswith("No person is identified better than by chance (at most ")
    write_table(tables.path("identification"), frame.assign(p_permutation=0.1, n_people=3))
    assert judge_cohort(GroupTables(settings)).headline.startswith("The people are too few to decide on identification")


def test_every_panel_and_table_names_its_data(outputs, sections):
    root = outputs[0].output_dir
    for section in sections:
        for part in (*section.panels, *section.grids):
            if part.title not in ("",):
                assert part.sources, part.title
            assert all((root / address).is_file() for _, address in part.sources)


def test_the_smallest_correlation_is_that_of_students_t():
    r, n = smallest_correlation(24), 24
    assert r * np.sqrt((n - 2) / (1 - r**2)) == pytest.approx(2.0739, abs=1e-4)


def test_names_that_look_like_numbers_stay_names(tmp_path):
    path = tmp_path / "predictions.tsv"
    path.write_text('participant_id\ttarget\tpredicted\n007\t01\t0.10\n"x\tn/a\tn/a\n')
    columns = {key: TABLES["predictions"].columns[key] for key in ("participant_id", "target", "predicted")}
    table = read_long(path, replace(TABLES["predictions"], columns=columns))
    assert table["participant_id"].tolist() == ["007", '"x']
    assert table["target"][0] == "01"
    assert np.isnan(table["predicted"][1])


# In a real browser


def write_choices(folder, **choices):
    chosen = {"representations": ("fc", "fc_power", "embedding"), "repeats": 1, "folds": 3, "inner_folds": 2}
    return Settings(folder / "<b>bids", folder / "out", "group").changed(**chosen, quiet=True, **choices)


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


def test_marks_of_identification_lie_at_the_accuracy(figures):
    tables, panels = figures
    rows = tables.rows("identification").sort_values("accuracy", ascending=False, kind="stable")
    panel = panels["Identification"]
    said = dict(re.findall(r"(?:, |: )([^,:]+) (\d+) %", panel.alt))
    for title, accuracy in zip(map(tables.title, rows["representation"]), rows["accuracy"], strict=True):
        assert int(said[title]) == round(100 * accuracy)
    marks = [float(one.get("cx")) for one in parts(panel, "circle")]
    slope, start = np.polyfit(rows["accuracy"], marks, 1)
    np.testing.assert_allclose(marks, start + slope * rows["accuracy"], atol=0.1)
    assert slope > 100
