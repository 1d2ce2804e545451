"""Who is at work on what: one of all gets a claim, and that of a dead run is free."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fcpower_bids import claims, store
from fcpower_bids.claims import Claims, claims_in
from tests.test_store import in_namespaces

HOLD = """
import sys, time
from pathlib import Path
from fcpower_bids.claims import Claims
own = Claims(Path(sys.argv[1]))
print(*sorted(own.acquire(sys.argv[2:])), flush=True)
time.sleep(600)
"""


def hold(folder, *names, before=()):
    """A process that claims names and lives on; returns it and what it got."""
    process = subprocess.Popen([*before, sys.executable, "-c", HOLD, folder, *names], stdout=subprocess.PIPE, text=True)
    return process, process.stdout.readline().split()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "claims"


def test_one_of_two_gets_it_and_the_other_after(folder):
    first, second = Claims(folder), Claims(folder)
    assert first.acquire("ab") == {"a", "b"}
    assert second.acquire("abc") == {"c"}
    assert f"process {os.getpid()}" in second.owner("a")
    assert second.owner("d") is None
    first.release(["a"])
    assert second.acquire("ab") == {"a"}
    first.close()
    second.close()
    assert not folder.exists()


def test_a_killed_run_is_taken_over_at_once(folder):
    process, got = hold(folder, "a", "b")
    own = Claims(folder)
    assert (got, own.acquire("ab")) == (["a", "b"], set())
    process.kill()
    process.wait()
    assert own.owner("a") is None
    assert own.acquire("ab") == {"a", "b"}
    assert Claims(folder).acquire("ab") == set()


BEATS = """
import os, sys, time
from pathlib import Path
from fcpower_bids import claims
claims.BEAT_SECONDS = 0.05
own = claims.Claims(Path(sys.argv[1]))
own.acquire("a")
(mark,) = (path for path in own.folder.iterdir() if path.name.startswith(own.run))
os.utime(mark, (0, 0))
until = time.monotonic() + 30
while mark.stat().st_mtime == 0 and time.monotonic() < until:
    time.sleep(0.01)
print(mark.stat().st_mtime > 0, own._heart.pid, flush=True)
os.fork() or os._exit(0)
own.close() if sys.argv[2] == "close" else os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("end", ["close", "kill"])
def test_a_process_says_that_the_run_lives_and_ends_with_it(folder, end):
    # nothing of it is a thread: Python warns where a process that has one is forked
    told = subprocess.run([sys.executable, "-W", "error", "-c", BEATS, folder, end], capture_output=True, text=True)
    lives, process = told.stdout.split()
    assert (lives, told.stderr) == ("True", "")
    until = time.monotonic() + 30
    while Path("/proc", process).exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert not Path("/proc", process).exists()


def test_a_brief_claim_starts_no_process(folder):
    with claims_in(folder, is_brief=True) as own:
        assert own.acquire("a") == {"a"}
        assert own._heart is None


@in_namespaces
def test_process_numbers_of_containers_mean_nothing(folder):
    """The holder and the asker are both process 1, each in a namespace of its own; so is the next, after its death."""
    alone = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    first, got = hold(folder, "a", before=alone)
    second, nothing = hold(folder, "a", "b", before=alone)
    assert (got, nothing) == (["a"], ["b"])
    first.kill()
    first.wait()
    first.stdout.read()  # to its end, which comes when the process in the namespace is dead as well
    third, got = hold(folder, "a", "b", before=alone)
    assert got == ["a"]
    for process in (second, third):
        process.kill()
        process.wait()


def test_a_shared_file_is_written_once(tmp_path):
    path = claims.write_shared(tmp_path, tmp_path / "logs" / "x", "text")
    before = path.stat()
    claims.write_shared(tmp_path, path, "text")
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert claims.write_shared(tmp_path, path, "other").read_text() == "other"
    assert not (tmp_path / claims.CLAIMS).exists()


@pytest.mark.parametrize("folder", ["", "logs", "logs/asked", "sourcedata/atlases/tpl-MNI152NLin6Asym"])
def test_what_the_killed_left_is_swept_and_what_is_being_written_is_not(tmp_path, folder):
    left, making = (store.beside(tmp_path / folder / name) for name in ("left.html", "making.toml"))
    left.parent.mkdir(parents=True, exist_ok=True)
    for path in (left, making):
        path.write_text("x")
    with claims.turn(tmp_path / claims.CLAIMS, "making.toml"):
        claims.sweep_shared(tmp_path)
    assert [path.exists() for path in (left, making)] == [False, True]
    with claims.turn(tmp_path / claims.CLAIMS, claims.COMBINE):
        claims.sweep_shared(tmp_path)
    assert making.exists()
    claims.sweep_shared(tmp_path)
    assert not making.exists()


def elsewhere(folder, name, silent):
    """Plant the claim of a run on another machine that was last heard of so many seconds ago."""
    folder.mkdir()
    mark = folder / "feed.run"
    mark.write_text(json.dumps({"user": "u", "host": "far", "process": 1, "boot": "other", "since": "then"}))
    (folder / f"{name}.claim").write_text("feed")
    os.utime(mark, (time.time() - silent,) * 2)


def test_another_machine_is_believed_while_it_says_that_it_lives(folder):
    elsewhere(folder, "a", claims.STALE_SECONDS / 2)
    own = Claims(folder)
    assert own.acquire("a") == set()
    assert own.owner("a") == "u@far, process 1, since then"


def test_another_machine_that_has_long_been_silent_is_taken_over_by_one(folder):
    elsewhere(folder, "a", claims.STALE_SECONDS * 2)
    runs = [Claims(folder) for _ in range(3)]
    assert sorted(len(run.acquire("a")) for run in runs) == [0, 0, 1]


def test_a_claim_that_is_just_being_written_is_held(folder):
    folder.mkdir()
    (folder / "a.claim").touch()
    own = Claims(folder)
    assert own.acquire("a") == set()
    os.utime(folder / "a.claim", (0, 0))  # its writer was killed in the middle
    assert own.acquire("a") == {"a"}


def test_who_was_taken_over_does_not_give_back_what_is_not_his(folder):
    first = Claims(folder)
    first.acquire("a")
    (folder / "a.claim").write_text("another")
    first.close()
    assert (folder / "a.claim").read_text() == "another"


def test_claims_are_given_back_after_an_error(folder):
    def fail():
        with claims_in(folder) as own:
            own.acquire("a")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert not folder.exists()


def test_what_a_killed_run_left_is_buried_and_what_a_living_one_holds_is_not(folder):
    killed, _ = hold(folder, "sub-01", "sub-02")
    killed.kill()
    killed.wait()
    living, _ = hold(folder, "sub-03")
    with claims_in(folder) as mine:
        assert mine.acquire(["sub-04"]) == {"sub-04"}
        mine.clear_stale()
        assert {path.name for path in folder.glob("*.claim")} == {"sub-03.claim", "sub-04.claim"}
        assert len(list(folder.glob("*.run"))) == 2
    living.kill()
    living.wait()


def test_the_last_of_the_others_may_remove_the_folder_at_any_moment(folder, monkeypatch):
    """It is gone between being made and being used, as when two workers write pages in turn."""
    make, removed = Path.mkdir, []

    def make_and_lose(self, *given, **options):
        make(self, *given, **options)
        if self == folder and len(removed) < 3:
            removed.append(self)
            self.rmdir()

    monkeypatch.setattr(Path, "mkdir", make_and_lose)
    with claims_in(folder) as mine:
        assert mine.acquire("a") == {"a"}
    assert len(removed) == 3
    assert not folder.exists()


def test_the_folder_may_go_while_it_is_being_made(folder, monkeypatch):
    """The system says that it is there, and the look whether it is a folder comes too late."""
    make, removed = os.mkdir, []

    def find_and_lose(path, *given, **options):
        if Path(path) == folder and len(removed) < 3:
            removed.append(path)
            raise FileExistsError(17, "File exists", str(path))
        make(path, *given, **options)

    monkeypatch.setattr(os, "mkdir", find_and_lose)
    with claims_in(folder) as mine:
        assert mine.acquire("a") == {"a"}
    assert len(removed) == 3


def test_a_file_in_the_place_of_the_folder_is_an_error(folder):
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("a file")
    with claims_in(folder) as mine, pytest.raises(FileExistsError):
        mine.acquire("a")


def test_a_claim_that_a_full_disk_cut_is_not_waited_for(tmp_path, monkeypatch):
    def full(handle, *_, **__):
        os.close(handle)
        raise OSError(errno.ENOSPC, "No space left on device")

    with claims_in(tmp_path / "claims") as claims:
        assert claims.acquire(["other"]) == {"other"}
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdopen", full)
            with pytest.raises(OSError, match="No space left"):
                claims.acquire(["mine"])
        assert claims.acquire(["mine"]) == {"mine"}
