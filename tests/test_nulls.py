"""Every p, q and interval of the schema has a simulation under the null, or says where it is judged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from scipy.stats import binom

from benchmarks.nulls import ELSEWHERE, KINDS, MEASURED, SAME, analyse, rejections
from fcpower_bids.schema import TABLES

ROOT = Path(__file__).parent.parent


def uncovered(columns: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Those that no simulation covers."""
    known = {(name, key) for name, keys in MEASURED.items() for key in keys} | set(ELSEWHERE)
    own = [(name, key.replace("high", "low")) for name, key in columns]
    found = [not {(name, key), (SAME.get(name, name), key)} & known for name, key in own]
    return [column for column, lacking in zip(columns, found, strict=True) if lacking]


def test_every_p_q_and_interval_is_covered_by_a_simulation():
    """Columns of kind p, false discovery rates and limits of intervals of all tables."""
    columns = [
        (name, key)
        for name, spec in TABLES.items()
        for key, column in spec.columns.items()
        if column.kind == "p" or key == "q" or {"low", "high"} & set(key.split("_"))
    ]
    assert len(columns) > 70
    assert uncovered(columns) == []
    for unknown in (("edges", "p_new"), ("prediction", "new_high")):
        assert uncovered([*columns, unknown]) == [unknown]


def test_columns_that_are_judged_elsewhere_name_a_program_or_a_test_that_is_there():
    for where in ELSEWHERE.values():
        for path in re.findall(r"tests/\S+\.py", where):
            assert (ROOT / path).is_file(), where


def test_the_documentation_has_a_rate_for_every_column_and_kind_and_the_limit_it_says():
    text = (ROOT / "docs" / "measurements.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (`[\w`, ]+`) \|(.+)\|$", text, re.M)
    named = [(name, key) for name, keys, _ in rows for key in re.findall(r"\w+", keys)]
    assert sorted(named) == sorted((name, key) for name, keys in MEASURED.items() for key in keys)
    assert {len(cells.split("|")) for *_, cells in rows} == {len(KINDS)}
    cells = [cell.strip() for *_, line in rows for cell in line.split("|") if cell.strip()]
    assert all(("*" in cell) == (float(cell.strip("*")) > 0.08) for cell in cells)
    assert binom.ppf([0.025, 0.975], 200, 0.05).tolist() == [4, 16]


@pytest.mark.parametrize("kind", ["plain", "site sizes"])
def test_the_simulation_counts_every_column_that_it_names(kind):
    counted = {(name, key) for name, key, _ in rejections(analyse(kind, 0), kind)}
    named = {(name, key) for name, keys in MEASURED.items() for key in keys}
    # the t of QC-FC holds without sites
    assert named - counted == ({("qcfc", "p")} if "site_column" in KINDS[kind] else set())
