"""One of all holds a lock, and that of a dead process is free."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from fcpower_bids import store
from fcpower_bids.store import lock

HOLD = """
import sys, time
from pathlib import Path
from fcpower_bids.store import lock
with lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def held(tmp_path):
    """A lock that another process holds, and that process."""
    path = tmp_path / "locks" / "a"
    process = subprocess.Popen([sys.executable, "-c", HOLD, path], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield path, process
    process.kill()
    process.communicate()


def test_one_of_two_gets_it_and_a_killed_holder_lets_go(held):
    path, process = held
    with lock(path, wait=False) as is_free:
        assert not is_free
    process.kill()
    process.wait()
    with lock(path, wait=False) as is_free:
        assert is_free
    assert not path.parent.exists()


def test_no_two_of_many_hold_it_at_once(tmp_path):
    inside, most, lap = [], [], range(40)

    def hold():
        for _ in lap:
            with lock(tmp_path / "locks" / "a"):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=hold) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 6 * len(lap)


def test_without_locks_of_the_file_system_work_goes_on(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(store.fcntl, "flock", refuse)
    with lock(tmp_path / "a", wait=False) as is_free:
        assert is_free


def test_a_shared_file_is_written_once(tmp_path):
    path = store.write_shared(tmp_path, tmp_path / "logs" / "x", "text")
    before = path.stat()
    store.write_shared(tmp_path, path, "text")
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert store.write_shared(tmp_path, path, "other").read_text() == "other"
    assert not (tmp_path / store.LOCKS).exists()


@pytest.mark.parametrize("folder", ["logs", "sourcedata/atlases/tpl-MNI152NLin6Asym"])
def test_what_the_killed_left_is_swept_and_what_is_being_written_is_not(tmp_path, folder):
    left, making = (store.beside(tmp_path / folder / name) for name in ("left.html", "making.toml"))
    left.parent.mkdir(parents=True, exist_ok=True)
    for path in (left, making):
        path.write_text("x")
    with lock(tmp_path / store.LOCKS / "making.toml"):
        store.sweep_shared(tmp_path)
        assert [path.exists() for path in (left, making)] == [False, True]
    store.sweep_shared(tmp_path)
    assert not making.exists()
