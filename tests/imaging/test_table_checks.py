"""Tables of others: what a lenient reader takes for something else is named, with file and line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fcpower_bids.errors import UsageError
from fcpower_bids.imaging.atlas_files import read_atlas_table
from fcpower_bids.imaging.table_checks import table_fault
from tests.running import run_app


def put(path: Path, line: int, column: str, value: str) -> None:
    lines = path.read_text().split("\n")
    cells = lines[line - 1].split("\t")
    cells[lines[0].split("\t").index(column)] = value
    path.write_text("\n".join([*lines[: line - 1], "\t".join(cells), *lines[line:]]))


def trailing_tabs(path: Path) -> None:
    header, *rows = path.read_text().splitlines()
    path.write_text("\n".join([header, *(row + "\t" for row in rows)]) + "\n")


def doubled(path: Path) -> None:
    lines = path.read_text().splitlines()
    path.write_text("\n".join(line + "\t" + line.split("\t")[0] for line in lines) + "\n")


FAULTS = {
    trailing_tabs: " fields in line 2 where its header has ",
    doubled: " twice: remove or rename",
    lambda path: put(path, 7, "framewise_displacement", "-0.5"): "-0.5 as framewise_displacement in line 7",
    lambda path: put(path, 9, "trans_x", "1e200"): "1e+200 as trans_x in line 9",
}


def test_every_fault_of_a_confounds_table_is_named_and_nothing_is_computed(exact_demo, tmp_path):
    bids = shutil.copytree(exact_demo[0], tmp_path / "in")
    tables = sorted(bids.rglob("*desc-confounds_timeseries.tsv"))
    assert len(tables) >= len(FAULTS)
    for table, damage in zip(tables, FAULTS, strict=False):
        damage(table)
    found = run_app(bids, tmp_path / "out", "--atlas", "builtin")
    assert found.code == 5
    for table, words in zip(tables, FAULTS.values(), strict=False):
        reason = found.reason(table.name.partition("_run-")[0])
        assert str(table) in reason
        assert words in reason
    assert not found.files("*_relmat.tsv")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a\tb\n1\t2\n".encode("utf-16"), "is encoded as UTF-16"),
        ("a\tb\n1\t2\n".encode("utf-32"), "is encoded as UTF-32"),
        ("a\tb\n1\t2\n".encode("utf-16-le"), "holds null bytes"),
        ("a\tb\n\xe4\t2\n".encode("latin-1"), "not encoded as UTF-8 (byte 4)"),
        (b"a\tb\n1\n", "1 fields in line 2 where its header has 2"),
        (b"a\tb\r\n1\t2\r\n\r\n", None),
        (b"\xef\xbb\xbfa\tb\n1\t2", None),
    ],
)
def test_encodings_and_ends_of_lines(tmp_path, content, words):
    path = tmp_path / "x.tsv"
    path.write_bytes(content)
    fault = table_fault(path)
    assert (fault is None) == (words is None)
    assert words is None or words in fault


def test_an_atlas_table_whose_rows_are_longer_than_its_header_is_refused(tmp_path):
    path = tmp_path / "atlas.tsv"
    path.write_text("index\tname\n1\tleft\t\n2\tright\t\n")
    with pytest.raises(UsageError, match=r"atlas\.tsv has 3 fields in line 2 where its header has 2: correct it"):
        read_atlas_table(path)
