"""Every p, q and interval of the schema has a simulation under the null, or says where it is judged."""

from __future__ import annotations

import pytest

from benchmarks.nulls import ELSEWHERE, KINDS, MEASURED, SAME, analyse, rejections
from fcpower_bids.analyses import ANALYSES, declared_tables

OF_INTERVALS = {"ci_high": "ci_low"}
"""An upper limit is judged with its lower one."""


def judged_columns() -> list[tuple[str, str]]:
    """Columns of kind p, false discovery rates and limits of intervals of all tables of the group level."""
    tables = {spec.name: spec for name in ANALYSES for spec in declared_tables(name)}
    return [
        (name, key)
        for name, spec in tables.items()
        for key, column in spec.columns.items()
        if column.kind == "p" or key in ("q", "ci_low", "ci_high")
    ]


def uncovered(columns: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Those that no simulation covers."""
    known = {(name, key) for name, keys in MEASURED.items() for key in keys} | set(ELSEWHERE)
    own = [(name, OF_INTERVALS.get(key, key)) for name, key in columns]
    found = [not {(name, key), (SAME.get(name, name), key)} & known for name, key in own]
    return [column for column, lacking in zip(columns, found, strict=True) if lacking]


def test_every_p_q_and_interval_is_covered_by_a_simulation():
    columns = judged_columns()
    assert len(columns) > 80
    assert uncovered(columns) == []
    assert uncovered([*columns, ("edges", "p_new")]) == [("edges", "p_new")]


@pytest.mark.parametrize("kind", ["plain", "site sizes"])
def test_the_simulation_counts_every_column_that_it_names(kind):
    counted = {(name, key) for name, key, _ in rejections(analyse(kind, 0), kind)}
    named = {(name, key) for name, keys in MEASURED.items() for key in keys}
    # scores within sites need sites, and the t of QC-FC holds without them
    absent = {("qcfc", "p") if "site_column" in KINDS[kind] else ("prediction_sites", "ci_low")}
    assert named - counted == absent
