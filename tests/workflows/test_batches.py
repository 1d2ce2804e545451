"""Killed processes, killed runs, parallel runs: nothing finished is lost, nothing else is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from fcpower_bids.outputs.status import read_status
from fcpower_bids.store import TEMPORARY
from tests.running import LINKS, PATIENCE, Finished, contents, is_alive, run_app, start_app, wait_for

ATLAS = ("--atlas", "builtin")
VICTIM = "sub-02_ses-a_task-rest_run-1_space-MNI152NLin2009cAsym_res-2"
OTHERS = {VICTIM.replace("sub-02_ses-a", scan) for scan in ("sub-01_ses-a", "sub-01_ses-b", "sub-02_ses-b")}

ALONE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
"""Begins a command as process 1, as every job in a container is."""

needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="finds worker processes through /proc")


HELD = """
import sys, time
from pathlib import Path
from fcpower_bids.app import main
from fcpower_bids.interfaces import nodes
from fcpower_bids import parallel
from fcpower_bids.errors import RecordingError

go, victim = Path(sys.argv.pop(1)), sys.argv.pop(1)
parcellate = nodes.parcellate

def parcellate_and_wait(bold, *others):
    found = parcellate(bold, *others)
    while bold.name.startswith(victim) and not go.exists():
        time.sleep(0.01)
    return found

nodes.parcellate = parcellate_and_wait
parallel._is_forkable = lambda: True  # a server that does its own imports would not wait
sys.exit(main(sys.argv[1:]))
"""
"""The program, whose first step of the victim does not end before a file is there."""


@pytest.fixture(scope="module")
def whole(exact_demo, tmp_path_factory):
    """An undisturbed run with default settings."""
    return run_app(exact_demo[0], tmp_path_factory.mktemp("batches") / "whole", *ATLAS)


@pytest.fixture
def go(tmp_path):
    """The file for which runs wait in the first step of the victim."""
    return tmp_path / "go"


@pytest.fixture
def start(exact_demo, go):
    """Start runs that are held at the victim, the third recording of four; none of them outlives its test."""
    started = []

    def begin(output: Path, *options: object, **more: object) -> subprocess.Popen[str]:
        started.append(start_app(exact_demo[0], output, *ATLAS, *options, program=("-c", HELD, go, VICTIM), **more))
        return started[-1]

    yield begin
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def files_of(found: Finished) -> dict[str, bytes]:
    return contents(found.output, "logs", "work", LINKS)


def wait_for_the_victim(output: Path) -> None:
    """Until its first step begins."""
    begun = ("running", "parcellate")
    wait_for(
        lambda: (at := read_status(output, VICTIM)) and (at.state, at.stage) == begun, "the beginning of the victim"
    )


def workers(process: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


@needs_proc
def test_a_worker_that_is_killed_costs_its_recording_only(exact_demo, whole, start, tmp_path):
    """As the kernel does when memory runs out."""
    process = start(tmp_path / "out", "--nprocs", 2)
    wait_for_the_victim(tmp_path / "out")
    os.kill(read_status(tmp_path / "out", VICTIM).process, signal.SIGKILL)
    out, err = process.communicate(timeout=PATIENCE)
    found = Finished(process.returncode, err, out, tmp_path / "out")
    assert found.code == 4, err
    assert found.states() == {**dict.fromkeys(OTHERS, "done"), VICTIM: "failed"}
    assert found.status()["stage"][VICTIM] == "parcellate"
    assert "killed from outside" in found.reason(VICTIM)
    assert f"failed: {VICTIM}" in err
    assert "Traceback" not in err
    again = run_app(exact_demo[0], tmp_path / "out", *ATLAS, code=0)
    assert "3 of them finished before" in again.err
    assert files_of(again) == files_of(whole)


@needs_proc
def test_kill_9_ends_the_workers_and_loses_nothing_that_was_finished(exact_demo, whole, start, tmp_path):
    output = tmp_path / "out"
    process = start(output, "--nprocs", 1)
    wait_for_the_victim(output)
    left = workers(process.pid)
    assert left
    process.kill()
    process.communicate(timeout=PATIENCE)
    wait_for(lambda: not any(map(is_alive, left)), "the end of the workers")
    assert read_status(output, VICTIM).state == "running"
    before = times_of(output)
    assert len(before) > 30
    again = run_app(exact_demo[0], output, *ATLAS, code=0)
    assert "2 of them finished before" in again.err
    after = times_of(output)
    assert {path: after[path] for path in before} == before
    assert files_of(again) == files_of(whole)
    assert set(again.states().values()) == {"done"}


def times_of(output: Path) -> dict[Path, int]:
    """Modification times of all results and statuses but the victim's."""
    found = [*output.glob("sub-*/**/*.*"), *output.glob("logs/status/*.json")]
    return {path: path.stat().st_mtime_ns for path in found if path.is_file() and not path.name.startswith(VICTIM[:12])}


def test_runs_of_the_same_people_share_the_work_and_go_on_when_one_is_killed(whole, start, go, tmp_path):
    """On one machine, or (with the right to make PID namespaces) each as process 1 of its own container.

    They have one index: pains 14 and 16.
    """
    options = ("--bids-database-dir", tmp_path / "index", "--nprocs", 1)
    asked = subprocess.run(["sh", "-c", "unshare --pid --fork --mount-proc true"], capture_output=True, check=False)
    output, before = tmp_path / "out", () if asked.returncode else ALONE
    killed = start(output, *options, before=before)
    wait_for_the_victim(output)
    os.killpg(killed.pid, signal.SIGSTOP)
    second = start(output, *options, before=before)
    assert any(f"{VICTIM}: another run is at work on it" in line for line in iter(second.stderr.readline, ""))
    os.killpg(killed.pid, signal.SIGKILL)
    go.touch()
    _, said = second.communicate(timeout=PATIENCE)
    assert second.returncode == 0, said
    together = Finished(0, "", "", output)
    assert files_of(together) == files_of(whole)
    assert set(together.states().values()) == {"done"}
    assert not (output / "logs" / "locks").exists()
    assert not [path for path in output.rglob(".*") if TEMPORARY.fullmatch(path.name)]
