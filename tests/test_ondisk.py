"""Arrays on disk read as those in memory do, grow without being rewritten, and outlive a kill."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fcpower_bids import ondisk
from fcpower_bids.ondisk import GrowingRows, ScratchRows, hold_file, let_go, remove_abandoned, write_rows

N, E, PER_CHUNK = 11, 9, 4


def numbered(start, stop):
    return [(f"r{i}", {"number": i}, np.arange(E) + 100.0 * i) for i in range(start, stop)]


@pytest.fixture
def stored(tmp_path, monkeypatch):
    monkeypatch.setattr(ondisk, "CHUNK_BYTES", PER_CHUNK * E * 8)
    rows = GrowingRows(tmp_path)
    rows.clear({"of": "test"}, E)
    rows.add(numbered(0, N))
    return rows


def everything(rows):
    return np.asarray(rows.view(list(rows.rows)))


@pytest.mark.parametrize("chosen", [None, [0, 3, 4, 8]])
def test_it_is_indexed_as_an_array_is(stored, chosen):
    order = [7, 0, 10, 3, 4]
    columns = None if chosen is None else np.array(chosen)
    array = pickle.loads(pickle.dumps(stored.view([f"r{i}" for i in order], columns)))  # noqa: S301 -- ours
    expected = np.array([numbered(i, i + 1)[0][2] for i in order])[:, slice(None) if chosen is None else chosen]
    assert array.shape == expected.shape
    assert len(array) == 5
    np.testing.assert_array_equal(np.asarray(array), expected)
    np.testing.assert_array_equal(array.only([4, 1])[:], expected[[4, 1]])
    mask = np.array([True, False, False, True, True])
    for rows in (2, -1, slice(1, 4), slice(None), [3, 0], mask, slice(5, 9)):
        np.testing.assert_array_equal(array[rows], expected[rows])
        for some in (slice(1, 3), slice(2, 99), slice(3, 3), [2, 0]):
            np.testing.assert_array_equal(array[rows, some], expected[rows][..., some])


def test_one_more_row_rewrites_no_chunk_but_a_small_one(stored, tmp_path):
    before = {name: (tmp_path / name).stat().st_mtime_ns for name in stored.chunks}
    sizes = [sum(row["chunk"] == name for row in stored.rows.values()) for name in before]
    assert sizes == [4, 4, 3]
    for number in (N, N + 1, N + 2):
        GrowingRows(tmp_path).add(numbered(number, number + 1))
    now = GrowingRows(tmp_path)
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in before} == before
    assert len(now.chunks) == 5, "the first new row was alone in its chunk and moved on with the next"
    names = [f"r{i}" for i in range(N + 3)]
    np.testing.assert_array_equal(now.view(names)[:], [row for _, _, row in numbered(0, N + 3)])
    assert [now.rows[name]["number"] for name in names] == list(range(N + 3))


def test_who_reads_can_go_on_while_others_add(stored, tmp_path, monkeypatch):
    stored.add(numbered(N, N + 1))
    reading, before = stored.view([f"r{N}"]), set(tmp_path.glob("*.npy"))
    GrowingRows(tmp_path).add(numbered(N + 1, N + 2))
    np.testing.assert_array_equal(reading[:], [numbered(N, N + 1)[0][2]])
    monkeypatch.setattr(ondisk, "OUT_OF_USE_SECONDS", -1.0)
    GrowingRows(tmp_path).add(numbered(N + 2, N + 3))
    assert len(before - set(tmp_path.glob("*.npy"))) == 1, "what nobody can be reading any more is removed"
    with pytest.raises(FileNotFoundError):
        reading[:]


def test_replaced_and_forgotten_rows_give_their_room_back(stored, tmp_path, monkeypatch):
    monkeypatch.setattr(ondisk, "OUT_OF_USE_SECONDS", -1.0)
    stored.discard([f"r{i}" for i in range(3)])
    stored.add([("r3", {"number": -1}, np.zeros(E))])
    now = GrowingRows(tmp_path)
    assert list(now.rows) == [f"r{i}" for i in range(3, N)]
    assert now.rows["r3"]["number"] == -1
    assert not now.view(["r3"])[:].any()
    np.testing.assert_array_equal(now.view(["r4"])[0], numbered(4, 5)[0][2])
    assert set(now.chunks) == {path.name for path in tmp_path.glob("*.npy")}
    assert len(now.chunks) == 3


ABANDONED = """
import os, sys
from pathlib import Path
from fcpower_bids.ondisk import ScratchRows, hold_file
rows = ScratchRows(Path(sys.argv[1]), (3, 4), float)
hold_file(Path(sys.argv[1]), "shared")[1].write_bytes(b"what workers of Dask map")
os.kill(os.getpid(), 9)
"""


def test_arrays_of_killed_processes_are_removed_and_those_of_living_ones_kept(tmp_path):
    subprocess.run([sys.executable, "-c", ABANDONED, str(tmp_path)], check=False)
    living, (handle, shared) = ScratchRows(tmp_path, (3, 4), float), hold_file(tmp_path, "shared")
    shared.write_bytes(b"of a living one")
    of_elsewhere = tmp_path / "scratch-boot-0123456789abcdef"
    of_elsewhere.write_bytes(b"of another machine, whose locks may not be seen here")
    assert len(list(tmp_path.iterdir())) == 5
    remove_abandoned(tmp_path)
    assert set(tmp_path.iterdir()) == {living.files[0][0], shared, of_elsewhere}
    del living
    let_go(handle, shared)
    assert list(tmp_path.iterdir()) == [of_elsewhere]


def test_a_disk_that_is_full_is_named(tmp_path):
    rows = ScratchRows(tmp_path, (3, 4), float)
    full = Path("/dev/full")
    if not full.is_char_device():
        pytest.skip("no /dev/full here")
    rows.files = [(full, 0)]
    with pytest.raises(OSError, match=r"No space left on device: '/dev/full'"):
        rows[0] = np.ones(4)


def test_a_damaged_chunk_loses_its_rows_only(stored, tmp_path):
    chunk = tmp_path / stored.rows["r5"]["chunk"]
    chunk.write_bytes(chunk.read_bytes()[:-1])
    now = GrowingRows(tmp_path)
    assert sorted(stored.rows.keys() - now.rows.keys()) == ["r4", "r5", "r6", "r7"]
    chunk.unlink()
    now.add(numbered(4, 8))
    assert sorted(GrowingRows(tmp_path).rows) == sorted(stored.rows)
    with pytest.raises(OSError, match=r"rows-\w+.npy"):
        stored.view(["r5"])[0]


def test_a_changed_number_loses_the_rows_of_its_chunk(stored, tmp_path):
    chunk = tmp_path / stored.rows["r5"]["chunk"]
    content = bytearray(chunk.read_bytes())
    content[-9] ^= 0x80  # the sign of a number: the size is as it was
    chunk.write_bytes(content)
    assert sorted(stored.rows.keys() - GrowingRows(tmp_path).rows.keys()) == ["r4", "r5", "r6", "r7"]


KILLED = """
import os, signal, sys
from pathlib import Path
from fcpower_bids import ondisk
from tests.test_ondisk import E, PER_CHUNK, N, numbered

def rows():
    for one in numbered(N, N + 9):
        if one[0] == f"r{N + 8}":
            if sys.argv[2] == "writing":
                ondisk.write_text = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        yield one

ondisk.CHUNK_BYTES = PER_CHUNK * E * 8
ondisk.GrowingRows(Path(sys.argv[1])).add(rows())
"""


@pytest.mark.parametrize("when", ["reading", "writing"])
def test_a_kill_leaves_the_former_state_and_the_chunks_that_were_done(stored, tmp_path, when):
    before = everything(stored)
    command = [sys.executable, "-c", KILLED, str(tmp_path), when]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": os.getcwd()}, check=False)
    assert done.returncode == -signal.SIGKILL
    now = GrowingRows(tmp_path)
    assert list(now.rows) == [f"r{i}" for i in range(N + 8)], "two chunks of four were done"
    np.testing.assert_array_equal(now.view([f"r{i}" for i in range(N)])[:], before)
    now.add(numbered(N + 8, N + 9))
    np.testing.assert_array_equal(everything(GrowingRows(tmp_path)), [row for _, _, row in numbered(0, N + 9)])


@pytest.mark.parametrize("damage", ["{", "[]", '{"format": 1}', '{"format": 2, "rows": 3}'])
def test_a_damaged_index_is_no_index(stored, tmp_path, damage):
    (tmp_path / "index.json").write_text(damage)
    assert GrowingRows(tmp_path).rows == {}


def test_rows_are_written_in_one_step(tmp_path):
    def failing():
        yield np.zeros(3)
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        write_rows(tmp_path / "x.npy", (2, 3), failing())
    assert list(tmp_path.iterdir()) == []
    write_rows(tmp_path / "x.npy", (2, 3), np.eye(2, 3))
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), np.eye(2, 3))
