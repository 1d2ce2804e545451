"""The page of a cohort: its words, its first figures, what it leaves out, and that it says it in a real browser."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from fcpower_bids.outputs.tables import read_table, write_json, write_table
from fcpower_bids.reports.cohort.chapters import fold_parcels
from fcpower_bids.reports.cohort.findings import (
    FOUND,
    NOT_FOUND,
    NOT_TESTED,
    Finding,
    answer,
    describe_finding,
    describe_identification,
    find_targets,
    smallest_correlation,
)
from fcpower_bids.reports.cohort.page import first_figures, judge_cohort, make_sections, write_group_report
from fcpower_bids.reports.cohort.tables import GroupTables, read_long, show_p
from fcpower_bids.reports.page import listed, show_number
from fcpower_bids.schema import TABLES
from fcpower_bids.settings import Settings
from tests.page_figures import check_in_browser
from tests.reports.group_outputs import make_cohort, write_group
from tests.running import FOOT

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
    verdict = judge_cohort(outputs[1])
    assert verdict.headline.startswith("planted can be predicted better than chance. Nothing predicts null and group ")
    assert len(verdict.headline.split()) <= 20
    assert any("r: without a scan " in said and "; FC^0.35 adds +" in said for said in verdict.findings[0][1])
    assert verdict.level == "caution"
    assert any(text.startswith("Only 40 people") for text in verdict.cautions)


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


@pytest.mark.parametrize("ranked_by", ["fold_mean", "pooled_mean"])
def test_the_score_that_leads_is_the_one_the_table_names(outputs, tmp_path, ranked_by):
    settings = copy_of(outputs, tmp_path, "prediction", "prediction_summary", "comparisons")
    path = settings.output_dir / "group" / "prediction_summary.tsv"
    summary = read_table(path)
    names = list(dict.fromkeys(summary["representation"]))
    assert names[:2] == ["fc", "fc_power"]
    for column, scores in (("r_fold_mean", (0.9, 0.2, 0.1)), ("r_pooled_mean", (0.1, 0.3, 0.2))):
        summary[column] = summary["representation"].map(dict(zip(names, scores, strict=True)))
    write_table(path, summary.assign(ranked_by=ranked_by))
    verdict = judge_cohort(GroupTables(settings))
    row = verdict.overview.rows[0]
    shown = {"fold_mean": ["0.90", "0.20", "0.10"], "pooled_mean": ["0.10", "0.30", "0.20"]}[ranked_by]
    assert [cell.text for cell in row[2:5]] == shown
    assert [cell.best for cell in row[2:5]].index(True) == (ranked_by == "pooled_mean")
    assert f"with {'FC,' if ranked_by == 'fold_mean' else 'FC^0.35,'}" in verdict.findings[0][1][0]


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


def test_what_has_no_score_has_no_verdict_and_no_power(outputs, tmp_path):
    settings = copy_of(outputs, tmp_path, "prediction", "prediction_summary", "comparisons")
    paths = [settings.output_dir / "group" / f"{name}.tsv" for name in ("prediction_summary", "comparisons")]
    summary, comparisons = map(read_table, paths)
    scored = summary.assign(n_scored=2)
    write_table(paths[0], scored)
    write_table(paths[1], comparisons.assign(mean_difference=0.0, ci_low=0.0, ci_high=0.0, p_two_sided=1.0))
    planted = judge_cohort(GroupTables(settings)).findings[0][1]
    assert planted[1].startswith("Over 2 of 10 small folds: mean r ")
    (difference,) = (text for text in planted if text.startswith("No evidence that"))
    assert "threshold" not in difference
    assert difference.endswith("p = 1.000).")
    scores = [name for name in summary if name.startswith(("r_", "auc_", "p_", "score_"))]
    planted_rows = summary["target"] == "planted"
    scored.loc[planted_rows, scores] = np.nan
    write_table(paths[0], scored)
    verdict = judge_cohort(GroupTables(settings))
    assert "For planted no score is defined." in verdict.headline
    assert verdict.overview.rows[0][5].text == "no score is defined"
    assert verdict.findings[0][1][0].startswith("No score is defined (constant")
    assert "not tested" not in str(verdict)


def test_the_site_alone_is_said_where_it_has_a_score(outputs):
    row = {"representation": "fc", "r_pooled_mean": 0.1, "score_needed": 0.3, "p_max": 0.5, "n_permutations": 39}
    for score, said in ((np.nan, "nothing beyond the site was shown"), (0.2, "; the site ('site') alone gives 0.20")):
        site = {"Columns": ["site"], "Score": score}
        finding = Finding("score", "r", pd.DataFrame([row]), "r_pooled_mean", NOT_FOUND, 0.5, site=site)
        assert answer(finding, outputs[1]).endswith(said)


def test_people_who_differ_are_counted_and_not_their_searches(outputs, tmp_path):
    settings = copy_of(outputs, tmp_path, "identification", "identification_scans", "identification_comparisons")
    paths = [GroupTables(settings).path(f"identification_{name}") for name in ("scans", "comparisons")]
    scans = read_table(paths[0])
    comparisons = read_table(paths[1]).assign(p_people=0.25, only_representation=8, only_reference=0)
    three = scans["participant_id"].isin(sorted(set(scans["participant_id"]))[:3]) & (scans["representation"] == "fc")
    write_table(paths[0], scans.assign(credit=(~three).astype(float)))
    write_table(paths[1], comparisons)
    said = describe_identification(GroupTables(settings))
    assert any(text.endswith("; 6 people at least must differ for a p below 0.05.") for text in said)


def test_a_table_that_went_is_named(outputs, tmp_path):
    settings = copy_of(outputs, tmp_path, "prediction", "prediction_summary")
    entry = {"key": "x", "files": {"prediction.tsv": "x", "prediction_summary.tsv": "x", "comparisons.tsv": "x"}}
    write_json(settings.output_dir / "group" / "analyses.json", {"prediction": entry})
    verdict = judge_cohort(GroupTables(settings))
    assert verdict.cautions[0].startswith("comparisons.tsv: no longer in the folder")


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


def test_no_cell_of_a_table_reads_nan(page):
    text = page.read_text()
    assert "Gain over trivial predictors" in text
    assert not re.findall(r".{60}>nan<", text)


def test_no_tables_at_all_is_said(tmp_path):
    settings = Settings(tmp_path / "bids", tmp_path / "out", "group")
    settings.output_dir.mkdir()
    assert judge_cohort(GroupTables(settings)).level == "stop"
    assert "There are no results of the group level yet." in write_group_report(settings)[0].read_text()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("prediction", ""),
        ("identification", "something\telse\n1\t2\n"),
        ("excluded", "participant_id\tsession\n"),
    ],
)
def test_a_broken_table_does_not_take_the_page_with_it(outputs, tmp_path, name, content):
    settings = copy_of(outputs, tmp_path, name, "prediction_summary", "identification", "qcfc", "alpha_optimum")
    GroupTables(settings).path(name).write_text(content)
    text = write_group_report(settings)[0].read_text()
    assert re.search(rf"{name}\.tsv (has no column|cannot be read).*What it would show is left out", text)
    assert str(settings.output_dir) not in text
    assert "identifies" in text


@pytest.mark.parametrize("name", ["null", "predictions", "prediction"])
def test_a_broken_sidecar_is_named_and_costs_no_verdict(outputs, tmp_path, name):
    settings = copy_of(outputs, tmp_path, name, "prediction", "prediction_summary", "comparisons", "identification")
    path = settings.output_dir / "group" / f"{name}.json"
    path.write_text(path.read_text()[: path.stat().st_size // 2])
    page, lines = write_group_report(settings)
    problem = f"{name}.json cannot be read as JSON. Run the group level again. What it would show is left out."
    assert problem in page.read_text()
    assert lines[0].startswith("planted: r ")
    verdict = judge_cohort(GroupTables(settings))
    assert verdict.headline.startswith("planted can be predicted better than chance.")


def test_a_target_that_some_lack_is_not_told_of_everybody(outputs, tmp_path):
    settings = copy_of(outputs, tmp_path, "prediction", "prediction_summary")
    tables = GroupTables(settings)
    frame = read_table(tables.path("prediction"))
    (everybody,) = set(frame["n_train"] + frame["n_test"])
    assert dict(judge_cohort(tables).facts)["Prediction"] == f"{everybody} people"
    lacking, tested = 3 * (frame["target"] == "null"), frame["fold"] == 0  # the same three in every repeat
    fewer = {"n_test": frame["n_test"] - lacking * tested, "n_train": frame["n_train"] - lacking * ~tested}
    write_table(tables.path("prediction"), frame.assign(**fewer))
    facts = dict(judge_cohort(GroupTables(settings)).facts)
    assert facts["Prediction"] == f"{everybody - 3} to {everybody} people"


def test_a_share_that_chance_gives_is_no_identification(outputs, tmp_path):
    settings = copy_of(outputs, tmp_path, "identification", "qcfc_summary", "qcfc")
    tables = GroupTables(settings)
    frame = read_table(tables.path("identification"))
    write_table(tables.path("identification"), frame.assign(p_permutation=0.4))
    assert judge_cohort(tables).headline.startswith("No person is identified better than by chance (at most ")
    for few, word in (({"n_permutations": 9}, "permutations"), ({"n_people": 3}, "people")):
        write_table(tables.path("identification"), frame.assign(p_permutation=0.1, **few))
        said = judge_cohort(GroupTables(settings)).headline
        assert said.startswith(f"The {word} are too few to decide on identification (at most ")
    write_table(tables.path("identification"), frame.assign(p_permutation=0.4))
    frame = read_table(tables.path("qcfc_summary"))
    write_table(tables.path("qcfc_summary"), frame.assign(distance_rho=-0.0001))
    text = write_group_report(settings)[0].read_text()
    assert ">0.000<" in text.partition('id="motion"')[2]
    assert "-0.000<" not in text


def test_every_panel_and_table_names_its_data(outputs, sections):
    root = outputs[0].output_dir
    for section in sections:
        for part in (*section.panels, *section.grids):
            if part.title not in ("",):
                assert part.sources, part.title
            assert all((root / address).is_file() for _, address in part.sources)


def test_a_large_cohort_has_a_page_of_the_usual_size(outputs, page, monkeypatch):
    """How many rows are not shown is said."""
    usual = page.read_text(encoding="utf-8")
    assert "rows; the tables behind" not in usual
    monkeypatch.setattr("fcpower_bids.reports.cohort.tables.MOST_ROWS", 5)
    text = write_group_report(outputs[0])[0].read_text(encoding="utf-8")
    page.write_text(usual, encoding="utf-8")
    part = text[text.index('id="prediction"') : text.index('id="identification"')]
    n = len(read_table(outputs[1].path("prediction_summary")))
    assert f"The first 5 of {n} rows; the tables behind this page have the others too." in part


def test_numbers_in_sentences():
    assert [show_p(p) for p in (0.0001, 0.0344, 1.0, np.nan)] == ["< 0.001", "0.034", "1.000", "n/a"]
    assert listed("abc", 4) == "a, b and c"
    assert listed("abcdef", 2) == "a, b and 4 more"
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


def test_the_same_tables_give_the_same_page(outputs, page):
    before = FOOT.sub(b"", page.read_bytes())
    assert FOOT.sub(b"", write_group_report(outputs[0])[0].read_bytes()) == before


def test_the_foot_says_when_and_in_which_container(outputs, tmp_path, monkeypatch):
    settings = copy_of(outputs, tmp_path, "excluded")
    monkeypatch.setenv("FCPOWER_CONTAINER", "fcpower@sha256:<0>")
    days = [time.strftime("%Y-%m-%d")]
    text = write_group_report(settings)[0].read_text(encoding="utf-8")
    days.append(time.strftime("%Y-%m-%d"))  # midnight may have been between
    assert re.search("Made on (.*?) by fcpower_bids", text)[1] in days
    assert "in the container <bdi>fcpower@sha256:&lt;0&gt;</bdi>" in text
    monkeypatch.delenv("FCPOWER_CONTAINER")
    assert "in the container" not in write_group_report(settings)[0].read_text(encoding="utf-8")
    monkeypatch.setenv("APPTAINER_CONTAINER", "/home/me/fcpower_bids.sif")
    assert "in the container <bdi>fcpower_bids.sif</bdi>" in write_group_report(settings)[0].read_text(encoding="utf-8")


# In a real browser


def test_the_first_lines_are_short_and_a_link_unfolds_a_part(browser, page):
    browser.open(page)
    folded = "[...document.querySelectorAll('details.part')].filter((part) => part.open).map((part) => part.id)"
    assert browser.evaluate(folded) == []
    assert browser.evaluate("document.querySelector('main').innerText.split(/\\s+/).length") <= 700  # three targets
    assert browser.evaluate("document.querySelector('#verdict .panels').getBoundingClientRect().top") < 800
    browser.evaluate("document.documentElement.style.scrollBehavior = 'auto'")
    browser.evaluate("document.querySelector('nav a[href=\"#motion\"]').click()")
    browser.evaluate("new Promise((done) => setTimeout(done, 50))")
    assert browser.evaluate(folded) == ["motion"]
    assert abs(browser.evaluate("document.getElementById('motion').getBoundingClientRect().top")) < 900


def test_the_page_is_whole_and_its_tables_sort(opened, page):
    assert len(check_in_browser(opened, page, 9)[1]) > 35
    table = "document.querySelector('#prediction .sortable')"
    column = f"[...{table}.tBodies[0].rows].map((row) => Number(row.cells[4].dataset.value))"
    opened.evaluate(f"{table}.tHead.rows[0].cells[4].querySelector('button').click()")
    values = opened.evaluate(column)
    assert values == sorted(values)
    assert len(set(values)) > 3
    opened.evaluate(f"{table}.tHead.rows[0].cells[4].querySelector('button').click()")
    assert opened.evaluate(column) == values[::-1] or opened.evaluate(column)[0] == values[-1]


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


def test_every_score_is_said_and_marked(figures):
    tables, panels = figures
    summary = tables.rows("prediction_summary")
    binary = summary["auc_pooled_mean"].notna()
    for label, column, rows in (("r", "r_pooled_mean", summary[~binary]), ("AUC", "auc_pooled_mean", summary[binary])):
        panel = panels[f"Prediction ({label})"]
        for row in rows.to_dict("records"):
            said = f"{tables.title(row['representation'])} {show_number(row[column])}"
            assert said in panel.alt.split(f"{row['target']}: ")[1].split(";")[0]
        marks = [one for one in parts(panel, "circle") + parts(panel, "path") if not one.get("stroke")]
        assert len([one for one in marks if (one.get("d") or "Z").endswith("Z")]) == len(rows)
        best = rows.groupby("representation")[column].mean().idxmax()
        for said in panel.alt.partition(", by target. ")[2].split("; "):
            assert said.partition(": ")[2].startswith(f"{tables.title(best)} "), "the best comes first"


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


def test_a_long_name_leaves_its_representation_and_no_line_is_explained_that_is_not_there(outputs, tmp_path):
    settings = copy_of(outputs, tmp_path, "prediction", "prediction_summary")
    path = settings.output_dir / "group" / "prediction_summary.tsv"
    summary = read_table(path)
    summary["target"] = summary["target"].replace("planted", "a name that is longer than a row has room for")
    write_table(path, summary.assign(score_needed=np.nan, p_max_targets=0.5))
    tables = GroupTables(settings)
    panel = first_figures(find_targets(tables), tables)[0]
    rows = ["".join(one.itertext()).partition("…, ") for one in parts(panel, "text")]
    named = {name[:4] for target, _, name in rows if target.startswith("a name that is lon")}
    assert named == {"FC", "FC0.", "embe"}  # the exponent is set higher
    assert panel.text == "Dashed: guessing."


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


RARE, SELDOM = "1.1 % of the scans lack it, and what a scan lacks is not filled in", "30.0 % of the scans lack it"


def test_parcels_of_one_reason_share_a_row_and_nobody_else_does():
    parcels = [f"P{number}: {RARE}" for number in range(9)] + [f"Q{number}: {SELDOM}" for number in range(4)]
    others = ["sub-01: no scan", "missing: age", "missing: age", "missing: age", "missing: age", "missing: age"]
    excluded = pd.DataFrame(
        {
            "participant_id": ["n/a"] * 13 + ["sub-01", *(f"sub-{number}" for number in range(2, 7))],
            "session": "n/a",
            "what": ["parcel"] * 13 + ["person"] + ["value"] * 5,
            "reason": [*parcels, *others],
        }
    ).iloc[[0, 13, *range(1, 13), *range(14, 19)]]
    told = fold_parcels(excluded)
    assert told["reason"].tolist() == [f"P0, P1, P2 and 6 more, each: {RARE}", others[0], *parcels[9:], *others[1:]]
    assert told["participant_id"].tolist()[-5:] == [f"sub-{number}" for number in range(2, 7)]
    without = excluded[excluded["what"] != "parcel"]
    pd.testing.assert_frame_equal(fold_parcels(without), without)
