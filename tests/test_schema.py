"""A table is declared once: another name in its declaration reaches file, sidecar, page and documentation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.analyses import ANALYSES, declared_tables
from fcpower_bids.analyses.identification.fingerprinting import IDENTIFICATION
from fcpower_bids.measures import MEASURES
from fcpower_bids.outputs.group import write_group_tables
from fcpower_bids.outputs.tables import read_declared, read_json, write_declared
from fcpower_bids.records import Table
from fcpower_bids.reports.cohort.sections.identification import identification_section
from fcpower_bids.reports.cohort.tables import COHORT_TABLES, GroupTables
from fcpower_bids.schema import Column, TableSpec, join_columns
from fcpower_bids.settings import Settings
from tests.reports.group_outputs import SETTINGS, make_cohort

SPEC = TableSpec("toy", "A toy.", join_columns(Column.text("who", "Person"), Column.number("n", "Number")), ("who",))


def shown(tables):
    """Heading and cells of every column of the table of identification."""
    (section,) = identification_section(tables)
    grid = next(one for one in section.grids if one.title == "All pairs of sessions")
    return {heading: [row[i].text for row in grid.rows] for i, heading in enumerate(grid.header)}, section.sentences


def test_a_column_is_renamed_by_one_edit(monkeypatch, tmp_path):
    settings = Settings(tmp_path, tmp_path / "out", "group")
    settings = replace(settings, **{**SETTINGS, "representations": ("fc", "fc_power")})
    tables = ANALYSES["fingerprinting"](make_cohort(n_people=8), settings)
    folder = settings.output_dir / "group"
    write_group_tables(folder, tables, settings)
    before, said = shown(GroupTables(settings))
    values = pd.read_csv(folder / "identification.tsv", sep="\t")["accuracy"]

    one = replace(IDENTIFICATION.columns["accuracy"], name="hits", meaning="Share that is found", heading="Hits")
    monkeypatch.setitem(IDENTIFICATION.columns, "accuracy", one)
    write_group_tables(folder, tables, settings)
    frame, about = pd.read_csv(folder / "identification.tsv", sep="\t"), read_json(folder / "identification.json")
    assert "accuracy" not in frame
    assert "accuracy" not in about
    assert frame["hits"].tolist() == values.tolist()
    assert about["hits"]["Description"] == "Share that is found"
    after, said_after = shown(GroupTables(settings))
    assert after.pop("Hits") == before.pop("Accuracy")
    assert (after, said_after) == (before, said)


def test_a_column_of_a_measure_is_renamed_by_one_edit(monkeypatch, tmp_path):
    measure = MEASURES["coverage"]
    frame = pd.DataFrame({"Node": ["a", "b"], "coverage": [0.25, 1.0]})
    monkeypatch.setitem(measure.columns, "coverage", replace(measure.columns["coverage"], name="seen"))
    path = write_declared(tmp_path / "coverage.tsv", frame, measure.table)
    assert path.read_text() == "Node\tseen\na\t0.25\nb\t1\n"
    assert list(measure.table.describe()) == ["Node", "seen"]
    pd.testing.assert_frame_equal(read_declared(path, measure.table), frame)


def test_a_column_that_nobody_has_declared_is_a_slip_of_ours():
    for columns in (["who", "n", "more"], ["who"]):
        with pytest.raises(TypeError, match="toy"):
            Table(pd.DataFrame(np.zeros((1, len(columns))), columns=columns), SPEC)
    with pytest.raises(KeyError, match="nobody"):
        replace(SPEC, keys=("nobody",))


def test_no_table_is_declared_twice_and_everything_is_described():
    tables = [
        *COHORT_TABLES,
        *(each.table for each in MEASURES.values()),
        *(table for name in ANALYSES for table in declared_tables(name)),
    ]
    names = [table.name for table in tables]
    assert len(set(names)) == len(names) > 40
    for table in tables:
        assert [key for key, one in table.columns.items() if key != one.key or len(one.meaning) < 3] == []
        assert len({one.written for one in table.columns.values()}) == len(table.columns)
