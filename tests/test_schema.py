"""A table is declared once, in two files of data; what is written without a declaration is a slip of ours."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.analyses.catalogue import ANALYSES
from fcpower_bids.records import Table
from fcpower_bids.schema import TABLES, read_rows


def test_a_column_that_nobody_has_declared_is_a_slip_of_ours():
    for columns in (["analysis", "state", "reason", "more"], ["analysis", "state"]):
        with pytest.raises(TypeError, match="left_out"):
            Table(pd.DataFrame(np.zeros((1, len(columns))), columns=columns), TABLES["left_out"])


def test_no_table_or_column_is_declared_twice_or_for_nothing():
    rows = read_rows("columns.tsv")
    declared = [(table, row["key"]) for row in rows for table in row["tables"].split() or [""]]
    used = {(name, key) for name, table in TABLES.items() for key in table.columns}
    assert len(set(declared)) == len(declared) < len(used)
    assert {pair for pair in declared if pair[0]} <= used
    assert {row["key"] for row in rows} == {key for _, key in used}
    assert len(TABLES) == len(read_rows("tables.tsv")) > 40
    assert {table.owner for table in TABLES.values()} - set(ANALYSES) == {
        *("cohort", "participant", "measure", "predict", "pretrain")
    }
    assert all(len(row["meaning"]) > 2 and row["kind"] in ("", "text", "p", "flag") for row in rows)
    assert all(set(table.keys) <= set(table.needed) for table in TABLES.values())
