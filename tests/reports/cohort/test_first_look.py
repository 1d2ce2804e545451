"""The first two figures of the page: every mark, shade and word follows from the tables."""

from __future__ import annotations

import dataclasses
import re
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.reports.charts import style
from fcpower_bids.reports.cohort.findings import find_targets
from fcpower_bids.reports.cohort.page import first_figures
from fcpower_bids.reports.cohort.tables import GroupTables
from fcpower_bids.reports.page import show_number

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
        circles = [one for one in parts(panel, "circle") if one.get("r") != "2.6"]
        best = rows.groupby("representation")[column].mean().idxmax()
        assert len(circles) == (rows["representation"] == sorted(rows["representation"])[0]).sum()
        for said in panel.alt.partition(", by target. ")[2].split("; "):
            assert said.partition(": ")[2].startswith(f"{tables.title(best)} "), "the best comes first"


def test_a_row_is_shaded_up_to_the_score_that_it_needs(figures):
    tables, panels = figures
    panel, summary = panels["Prediction (r)"], tables.rows("prediction_summary")
    rows = summary[summary["auc_pooled_mean"].isna()]
    shades = [one for one in parts(panel, "rect") if one.get("fill-opacity")]
    assert len(shades) == len(rows) > 0
    # Marks are drawn on the same scale: two of them give it.
    first = rows[rows["representation"] == sorted(rows["representation"])[0]].set_index("target")
    circles = [float(one.get("cx")) for one in parts(panel, "circle") if one.get("r") != "2.6"]
    slope, start = np.polyfit(first["r_pooled_mean"], circles, 1)
    right = sorted(float(one.get("x")) + float(one.get("width")) for one in shades)
    np.testing.assert_allclose(right, sorted(start + slope * rows["score_needed"]), atol=0.4)


def test_bars_of_identification_end_at_the_accuracy(figures):
    tables, panels = figures
    rows = tables.rows("identification").sort_values("accuracy", ascending=False, kind="stable")
    panel = panels["Identification"]
    said = dict(re.findall(r"(?:, |: )([^,:]+) (\d+) %", panel.alt))
    bars = [one for one in parts(panel, "rect") if one.get("fill-opacity")]
    widths = np.array([float(one.get("width")) for one in bars])
    for title, accuracy in zip(map(tables.title, rows["representation"]), rows["accuracy"], strict=True):
        assert int(said[title]) == round(100 * accuracy)
    np.testing.assert_allclose(widths / widths.max(), rows["accuracy"] / rows["accuracy"].max(), atol=0.002)
    names = sorted(rows["representation"])
    assert [bar.get("fill") for bar in bars] == [style(names.index(name))[0] for name in rows["representation"]]


def test_without_permutations_and_sessions_no_shade_and_no_bar(figures, monkeypatch):
    tables, _ = figures
    findings = [dataclasses.replace(finding, added=None) for finding in find_targets(tables)]
    for finding in findings:
        finding.summary["score_needed"] = np.nan
    monkeypatch.setattr(type(tables), "rows", lambda *_: pd.DataFrame())
    panels = first_figures(findings, tables)
    assert [panel.title for panel in panels] == ["Prediction (r)", "Prediction (AUC)"]
    assert not [one for panel in panels for one in parts(panel, "rect") if one.get("fill-opacity")]
    assert not any("shaded" in panel.text or "cross" in panel.text for panel in panels)
