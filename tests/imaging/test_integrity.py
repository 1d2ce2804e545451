"""Damage that decoders pass over, and tables that lenient readers misread, are named with the remedy."""

from __future__ import annotations

import gzip
import os
import shutil
import struct
from pathlib import Path

import nibabel
import numpy as np
import pytest

from fcpower_bids.imaging.integrity import header_fault
from fcpower_bids.imaging.table_checks import table_fault
from tests.running import PLAIN, run_app


def inflate(path: Path) -> bytearray:
    return bytearray(gzip.decompress(path.read_bytes()))


def deflate(path: Path, content: bytes) -> None:
    path.write_bytes(gzip.compress(bytes(content), 1))


def wrong_checksum(path: Path) -> None:
    """One bit of the stored checksum; every voxel can still be read."""
    content = bytearray(path.read_bytes())
    content[-8] ^= 1
    path.write_bytes(content)


def more_bytes(path: Path) -> None:
    deflate(path, inflate(path) + b"\0" * 16)


def data_within_the_header(path: Path) -> None:
    content = inflate(path)
    content[108:112] = struct.pack("<f", 0.0)  # vox_offset
    deflate(path, content)


def no_orientation(path: Path) -> None:
    content = inflate(path)
    content[252:256] = bytes(4)  # qform_code, sform_code
    deflate(path, content)


FAULTS = {
    wrong_checksum: "damaged",
    more_bytes: "header declares",
    data_within_the_header: "within the header",
    no_orientation: "does not say where its voxels are",
}


def test_every_fault_is_named_with_its_file(exact_demo, tmp_path):
    bids = shutil.copytree(exact_demo[0], tmp_path / "in")
    files = sorted(bids.rglob("*desc-brain_mask.nii.gz"))
    assert len(files) >= len(FAULTS)
    for file, damage in zip(files, FAULTS, strict=False):
        damage(file)
    found = run_app(bids, tmp_path / "out", "--atlas", "builtin", *PLAIN)
    for file, words in zip(files, FAULTS.values(), strict=False):
        reason = found.reason(file.name.partition("_run-")[0])
        assert str(file) in reason
        assert words in reason
        assert "again" in reason
    assert set(found.states().values()) == {"failed"}
    assert found.code == 5
    assert not found.files("*_relmat.tsv")


def test_a_damaged_atlas_is_refused(exact_demo, tmp_path):
    from fcpower_bids.imaging.atlas import builtin_atlas

    atlas = builtin_atlas("MNI152NLin2009cAsym", tmp_path / "cache")
    image = tmp_path / "tpl-MNI152NLin2009cAsym_atlas-mine_dseg.nii.gz"
    deflate(image, nibabel.Nifti1Image.from_filename(atlas.image).to_bytes())
    wrong_checksum(image)
    found = run_app(exact_demo[0], tmp_path / "out", "--atlas", image)
    assert found.code == 2
    assert f"{image} is truncated or damaged" in found.err
    assert not found.files("*_relmat.tsv")


def test_a_file_that_is_not_compressed_is_measured(tmp_path):
    path = tmp_path / "x.nii"
    nibabel.save(nibabel.Nifti1Image(np.ones((3, 3, 3), np.uint8), np.eye(4)), path)
    assert header_fault(path, nibabel.load(path)) is None
    with path.open("ab") as stream:
        stream.write(b"more")
    assert "has 383 bytes where its header declares 379" in header_fault(path, nibabel.load(path))


def test_another_content_of_the_same_size_and_time_is_another_fingerprint(tmp_path):
    from fcpower_bids.outputs.status import file_state

    path = tmp_path / "x.nii.gz"
    states = set()
    for content in (b"a" * 100, b"b" * 100):
        path.write_bytes(gzip.compress(content, mtime=0))
        os.utime(path, (0, 0))
        states.add((file_state(path), path.stat().st_size))
    assert len(states) == 2
    assert len({size for _, size in states}) == 1


def put_cell(path: Path, line: int, column: str, value: str) -> None:
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


OF_TABLES = {
    trailing_tabs: " fields in line 2 where its header has ",
    doubled: " twice: remove or rename",
    lambda path: put_cell(path, 7, "framewise_displacement", "-0.5"): "-0.5 as framewise_displacement in line 7",
    lambda path: put_cell(path, 9, "trans_x", "1e200"): "1e+200 as trans_x in line 9",
}


def test_every_fault_of_a_confounds_table_is_named_and_nothing_is_computed(exact_demo, tmp_path):
    bids = shutil.copytree(exact_demo[0], tmp_path / "in")
    tables = sorted(bids.rglob("*desc-confounds_timeseries.tsv"))
    assert len(tables) >= len(OF_TABLES)
    for table, damage in zip(tables, OF_TABLES, strict=False):
        damage(table)
    found = run_app(bids, tmp_path / "out", "--atlas", "builtin")
    assert found.code == 5
    for table, words in zip(tables, OF_TABLES.values(), strict=False):
        reason = found.reason(table.name.partition("_run-")[0])
        assert str(table) in reason
        assert words in reason
    assert not found.files("*_relmat.tsv")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a\tb\n1\t2\n".encode("utf-16"), "is encoded as UTF-16"),
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
