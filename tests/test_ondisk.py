"""Arrays on disk read as those in memory do, and are removed."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fcpower_bids.ondisk import ScratchRows, remove_abandoned


def test_it_is_indexed_as_an_array_is(tmp_path):
    expected = np.arange(9) + 100.0 * np.arange(5)[:, None]
    written = ScratchRows(tmp_path, expected.shape, float)
    written[:] = expected
    array = pickle.loads(pickle.dumps(written))  # noqa: S301 -- ours
    assert array.shape == expected.shape
    assert len(array) == 5
    np.testing.assert_array_equal(np.asarray(array), expected)
    np.testing.assert_array_equal(array.only([4, 1])[:], expected[[4, 1]])
    mask = np.array([True, False, False, True, True])
    for rows in (2, -1, slice(1, 4), slice(None), [3, 0], mask, slice(5, 9)):
        np.testing.assert_array_equal(array[rows], expected[rows])
        for some in (slice(1, 3), slice(2, 99), slice(3, 3), [2, 0], np.arange(9) % 3 == 0):
            np.testing.assert_array_equal(array[rows, some], expected[rows][..., some])


def test_a_file_stays_while_some_of_its_rows_are_in_use(tmp_path):
    some = ScratchRows(tmp_path, (3, 4), float).only(np.array([1]))
    assert some[:].shape == (1, 4)
    del some
    assert not list(tmp_path.iterdir())


ABANDONED = """
import os, sys
from pathlib import Path
from fcpower_bids.ondisk import ScratchRows
rows = ScratchRows(Path(sys.argv[1]), (3, 4), float)
os.kill(os.getpid(), 9)
"""


def test_arrays_of_killed_processes_are_removed_and_those_of_living_ones_kept(tmp_path):
    subprocess.run([sys.executable, "-c", ABANDONED, str(tmp_path)], check=False)
    living = ScratchRows(tmp_path, (3, 4), float)
    of_elsewhere = tmp_path / "scratch-boot-0123456789abcdef"
    of_elsewhere.write_bytes(b"of another machine, whose locks may not be seen here")
    assert len(list(tmp_path.iterdir())) == 3
    remove_abandoned(tmp_path)
    assert set(tmp_path.iterdir()) == {living.path, of_elsewhere}
    del living
    assert list(tmp_path.iterdir()) == [of_elsewhere]


def test_a_disk_that_is_full_is_named(tmp_path):
    rows = ScratchRows(tmp_path, (3, 4), float)
    full = Path("/dev/full")
    if not full.is_char_device():
        pytest.skip("no /dev/full here")
    rows.path = full
    with pytest.raises(OSError, match=r"No space left on device: '/dev/full'"):
        rows[0] = np.ones(4)
