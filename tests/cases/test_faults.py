"""Faults of files and of the machine, through the command: what it says, the exit code, what is on the disk after."""

from __future__ import annotations

import io
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fcpower_bids.cli.run import main
from tests.cases.people import LABELS, run, table, write_list
from tests.running import PLAIN, contents, run_app

QUICK = ("--atlas", "builtin", *PLAIN, "--nprocs", "1")


@pytest.mark.parametrize("name", ["sub-02", "sub-02/ses-a", "sub-01/ses-b/func", "sub-02/figures", "logs"])
def test_a_link_that_leads_out_of_the_output_folder_is_refused_before_the_first_write(exact_demo, tmp_path, name):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept.txt").write_text("kept")
    link = tmp_path / "out" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    found = run_app(exact_demo[0], tmp_path / "out", *QUICK)
    assert found.code == 3
    assert name in found.err
    assert contents(elsewhere) == {"kept.txt": b"kept"}
    assert contents(tmp_path / "out", "work") == {}


def test_a_link_that_stays_inside_is_followed(exact_demo, tmp_path):
    (tmp_path / "out" / "others" / "sub-02").mkdir(parents=True)
    (tmp_path / "out" / "sub-02").symlink_to("others/sub-02")
    assert run_app(exact_demo[0], tmp_path / "out", *QUICK, "--participant-label", "02").code == 0


def test_the_group_level_does_not_write_through_a_link_either(exact_run, exact_demo, tmp_path, capsys):
    shutil.copytree(exact_run.output, tmp_path / "out", symlinks=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / "group").symlink_to(tmp_path / "elsewhere")
    assert main([str(exact_demo[0]), str(tmp_path / "out"), "group", "--nprocs", "1"]) == 3
    assert "'group' is named as a file" in capsys.readouterr().err
    assert not list((tmp_path / "elsewhere").iterdir())


def header_of(shape: tuple[int, ...], dtype: str = "<f8") -> bytes:
    """The header of an array, without what it promises."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": dtype, "fortran_order": False, "shape": shape})
    return stream.getvalue()


def zipped(path: Path, header: bytes) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("fc.npy", header + b"\0" * 64)


PROMISES = {
    "eight terabytes": (".npy", lambda path: path.write_bytes(header_of((1_000_000, 1_000_000)) + b"\0" * 64)),
    "a little more than there is": (".npy", lambda path: path.write_bytes(header_of((6, 7)) + b"\0" * 6 * 6 * 8)),
    "less than there is": (".npy", lambda path: path.write_bytes(header_of((6, 5)) + b"\0" * 6 * 6 * 8)),
    "eight terabytes in an archive": (".npz", lambda path: zipped(path, header_of((1_000_000, 1_000_000)))),
}


@pytest.mark.parametrize("kind", PROMISES)
def test_an_array_that_promises_what_it_has_not_costs_its_scan_alone(kind, tmp_path):
    ending, spoil = PROMISES[kind]
    source = write_list(tmp_path, LABELS[:5])
    rows = table(source)
    (tmp_path / "0_003_.npy").unlink()
    spoil(tmp_path / f"0_003_{ending}")
    rows["path"] = rows["path"].str.replace("0_003_.npy", f"0_003_{ending}")
    rows.to_csv(source, sep="\t", index=False)
    (tmp_path / "bids").mkdir()
    found = run(tmp_path / "bids", tmp_path / "out", "group", "-d", f"list={source}", "--check", "--min-time", "0")
    assert found.code == 0, found.err
    assert f"0_003_{ending}" in found.err
    assert table(tmp_path / "out" / "group" / "scans.tsv")["participant_id"].tolist() == [
        "sub-001",
        "sub-002",
        "sub-004",
        "sub-005",
    ]
