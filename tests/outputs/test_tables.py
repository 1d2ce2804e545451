"""Tables are lossless, deterministic and never half-written."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs import tables


@settings(deadline=None, derandomize=True, max_examples=50)
@given(arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=6), elements=st.floats(allow_infinity=False)))
def test_matrix_round_trip_is_lossless(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("matrix") / "m.tsv"
    names = [f"p{i}" for i in range(values.shape[1])]
    tables.write_matrix(path, values, names)
    back, columns = tables.read_matrix(path)
    assert columns == names
    np.testing.assert_array_equal(back, values)


def test_named_rows_and_missing_values(tmp_path):
    path = tables.write_matrix(tmp_path / "m.tsv", np.array([[1.0, np.nan], [np.nan, 0.1]]), ["a", "b"], ["a", "b"])
    assert path.read_text() == "Node\ta\tb\na\t1\tn/a\nb\tn/a\t0.1\n"
    back, columns = tables.read_matrix(path)
    assert columns == ["a", "b"]
    assert np.isnan(back[0, 1])


def test_json_has_no_nan_and_no_numpy(tmp_path):
    path = tables.write_json(
        tmp_path / "x.json", {"a": np.nan, "b": np.arange(2), "c": (np.float64(0.5), np.bool_(True))}
    )
    assert json.loads(path.read_text()) == {"a": None, "b": [0, 1], "c": [0.5, True]}


def test_mixed_table_escapes_tabs_and_keeps_identifiers(tmp_path):
    frame = pd.DataFrame({"participant_id": ["sub-01"], "note": ["a\tb\nc"], "x": [0.1], "y": [None], "ok": [True]})
    path = tables.write_table(tmp_path / "x.tsv", frame)
    assert path.read_text() == "participant_id\tnote\tx\ty\tok\nsub-01\ta b c\t0.1\tn/a\ttrue\n"
    back = tables.read_table(path)
    assert back["x"][0] == 0.1
    assert back["participant_id"][0] == "sub-01"


@pytest.mark.parametrize("content", [b"a\tb\nx\ty\n", b"", b"\xff\xfe\x00bad"])
def test_a_table_that_is_not_numeric_is_named(tmp_path, content):
    path = tmp_path / "bad.tsv"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=r"bad\.tsv"):
        tables.read_matrix(path)


@pytest.mark.parametrize("content", ["[1]", "{", ""])
def test_json_that_is_not_an_object_is_named(tmp_path, content):
    path = tmp_path / "bad.json"
    path.write_text(content)
    with pytest.raises(DatasetError, match=r"bad\.json"):
        tables.read_json(path)


def test_a_table_without_columns_comes_back(tmp_path):
    values, names = tables.read_matrix(tables.write_matrix(tmp_path / "x_design.tsv", np.empty((3, 0)), []))
    assert (values.shape, names) == ((3, 0), [])
