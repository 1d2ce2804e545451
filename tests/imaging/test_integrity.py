"""Damage that decoders pass over, and tables that lenient readers misread, are named with the remedy."""

from __future__ import annotations

import gzip
import os
import struct

import nibabel
import numpy as np
import pytest

from fcpower_bids.imaging.streaming import content_fault, header_fault
from fcpower_bids.schema import table_fault
from tests.running import run_app


def test_a_damaged_atlas_is_refused(exact_demo, tmp_path):
    from fcpower_bids.imaging.atlas import builtin_atlas

    atlas = builtin_atlas("MNI152NLin2009cAsym", tmp_path / "cache")
    image = tmp_path / "tpl-MNI152NLin2009cAsym_atlas-mine_dseg.nii.gz"
    content = bytearray(gzip.compress(nibabel.Nifti1Image.from_filename(atlas.image).to_bytes(), 1))
    content[-8] ^= 1  # of the stored checksum; every voxel can still be read
    image.write_bytes(content)
    found = run_app(exact_demo[0], tmp_path / "out", "--atlas", image)
    assert found.code == 2
    assert f"{image} is truncated or damaged" in found.err
    assert not found.files("*_relmat.tsv")


def test_a_compressed_file_of_a_type_that_is_too_narrow_is_found_by_its_size(tmp_path):
    content = bytearray(nibabel.Nifti1Image(np.ones((3, 3, 3), np.float32), np.eye(4)).to_bytes())
    path = tmp_path / "x.nii.gz"
    path.write_bytes(gzip.compress(content))
    assert content_fault(path, nibabel.load(path)) is None
    content[70:74] = struct.pack("<hh", 2, 8)  # datatype and bits: one byte a voxel
    path.write_bytes(gzip.compress(content))
    assert "has 460 bytes where its header declares 379" in content_fault(path, nibabel.load(path))


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
