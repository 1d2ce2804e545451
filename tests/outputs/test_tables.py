"""Tables are lossless, deterministic and never half-written."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs import tables
from fcpower_bids.schema import Column, TableSpec


@settings(deadline=None, derandomize=True, max_examples=50)
@given(arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=6), elements=st.floats(allow_infinity=False)))
def test_matrix_round_trip_is_lossless(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("matrix") / "m.tsv"
    names = [f"p{i}" for i in range(values.shape[1])]
    tables.write_matrix(path, values, names)
    back, columns = tables.read_matrix(path)
    assert columns == names
    np.testing.assert_array_equal(back, values)


def written(values, names):
    with tempfile.TemporaryDirectory() as folder:
        return tables.write_matrix(Path(folder, "m.tsv"), values, names).read_text()


@settings(deadline=None, derandomize=True, max_examples=50)
@given(
    arrays(np.float64, st.integers(1, 6).map(lambda n: (n, n)), elements=st.sampled_from([0.0, -0.0, np.nan, 0.1, 2]))
)
def test_a_symmetric_matrix_is_written_as_its_rows_are(values):
    lower = np.tril_indices(len(values), -1)
    values[lower] = values.T[lower]
    names = [f"p{i}" for i in range(len(values))]
    rows = ["\t".join(tables._decimal(value) for value in row) for row in values.tolist()]
    assert written(values, names) == "\n".join(["\t".join(names), *rows, ""])
    values[0, -1] = 3.0  # no longer symmetric
    assert written(values, names).split("\n")[1].endswith("3")


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


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"\xff\xfe\x00bad", b"a\tb\n1\ttrue\n", b"a\tb\n1\t2\n3\n", b"a\tb\n1\t\n", b"a\tb\n\n1\t2\n"),
    ],
)
def test_a_table_that_is_not_numeric_is_named(tmp_path, content):
    path = tmp_path / "bad.tsv"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=r"bad\.tsv"):
        tables.read_matrix(path)


def test_a_long_table_is_written_block_by_block_and_whole_or_not_at_all(tmp_path):
    spec = TableSpec("toy", "", "A toy.", {"who": Column("who", "Person", "text"), "n": Column("n", "Number")})
    frame = pd.DataFrame({"who": ["a b", None, "c"], "n": [1.5, np.nan, 3.0]})
    expected = tables.write_declared(tmp_path / "whole.tsv", frame, spec).read_bytes()
    plain, packed = tmp_path / "x.tsv", tmp_path / "x.tsv.gz"
    for path in (plain, packed):
        tables.write_blocks(path, iter([frame[:2], frame[2:]]), spec)
    assert plain.read_bytes() == gzip.decompress(packed.read_bytes()) == expected
    before = packed.read_bytes()
    assert tables.write_blocks(packed, iter([frame]), spec).read_bytes() == before
    with pytest.raises(TypeError, match="toy"):
        tables.write_blocks(packed, iter([frame, frame.assign(more=1)]), spec)
    assert packed.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"whole.tsv", "x.tsv", "x.tsv.gz"}
