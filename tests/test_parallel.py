"""Whoever does the work, the results are the same; a lost worker costs its task, and never a result."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from functools import partial

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from fcpower_bids import parallel
from fcpower_bids.errors import Unfit
from fcpower_bids.parallel import WorkersLost, executing, map_tasks
from fcpower_bids.settings import Run
from tests.command import main

KINDS = ("serial", "processes", "dask")


@pytest.fixture(scope="module", params=KINDS)
def executor(request, tmp_path_factory):
    """Each kind, with two workers of its own, whatever the work is worth; what is bound is lost with a single one."""
    folder = tmp_path_factory.mktemp("executors")
    with pytest.MonkeyPatch.context() as patch, ExitStack() as opened:
        patch.setattr(parallel, "WORTH", 0.0)
        settings = Run(nprocs=1 if request.param == "serial" else 2)
        if request.param == "dask":
            distributed = pytest.importorskip("distributed", reason="Dask is not installed (extra 'cluster')")
            cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
            settings = Run(executor=opened.enter_context(cluster).scheduler_address)
        opened.enter_context(executing(settings, folder))
        yield request.param


def count_threads(item):
    return max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")


def test_a_task_has_one_thread_of_blas_whoever_does_it(executor):
    """On more the last bits of its numbers would depend."""
    with threadpool_limits(2):
        assert list(map_tasks(count_threads, range(4))) == [1] * 4


def multiply(matrix, number):
    return float((matrix @ matrix).sum() * number)


def die_once(flag, matrix, number):
    """End the first worker that is given the third item, as the kernel does when memory runs out."""
    if number == 2 and not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return multiply(matrix, number)


def die(number):
    os.kill(os.getpid(), signal.SIGKILL)


def refuse(number):
    raise Unfit(f"Item {number} cannot be.")


def test_results_come_in_order_and_equal_to_the_bit(executor, tmp_path):
    matrix = np.random.default_rng(0).standard_normal((400, 400))
    np.save(tmp_path / "matrix.npy", matrix)
    on_disk = np.load(tmp_path / "matrix.npy", mmap_mode="r")
    expected = [multiply(matrix, number) for number in range(12)]
    for given in (matrix, on_disk, np.asfortranarray(matrix)):
        assert list(map_tasks(partial(multiply, given), range(12))) == expected
    offset = 3.0
    assert list(map_tasks(lambda number: number + offset, [1, 2])) == [4.0, 5.0]
    assert list(map_tasks(partial(multiply, matrix), [])) == []


def test_an_error_made_for_people_stays_one(executor):
    with pytest.raises(Unfit, match="cannot be"):
        list(map_tasks(refuse, [0, 1]))


def test_a_lost_worker_costs_its_task_and_no_result(executor, tmp_path):
    if executor == "serial":
        pytest.skip("this process is not to be killed")
    matrix = np.eye(200)
    work = partial(die_once, tmp_path / "killed", matrix)
    assert list(map_tasks(work, range(6))) == [multiply(matrix, number) for number in range(6)]
    assert (tmp_path / "killed").exists()
    with pytest.raises(WorkersLost, match="memory"):
        list(map_tasks(die, [0, 1]))


SIGNALLED = """
import sys, time
from fcpower_bids import app
from fcpower_bids import parallel
from fcpower_bids.parallel import executing, map_tasks
from fcpower_bids.settings import Run
from pathlib import Path

def slow(number):
    time.sleep(30)

def level(settings):
    executor, nprocs, folder = sys.argv[1:]
    parallel.WORTH = 0.0
    with executing(Run(executor=executor, nprocs=int(nprocs)), Path(folder)):
        print("started", flush=True)
        list(map_tasks(slow, range(8)))
    return 0

if __name__ == "__main__":
    app.level_of = lambda settings: level
    sys.exit(app.main(["bids", "out", "group"]))
"""


def test_a_signal_is_no_success_under_any_executor(tmp_path):
    distributed = pytest.importorskip("distributed", reason="Dask is not installed (extra 'cluster')")
    (tmp_path / "program.py").write_text(SIGNALLED)
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        kinds = (("", "1"), ("", "2"), (cluster.scheduler_address, "1"))
        how, started = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": tmp_path}, []
        for number in (signal.SIGINT, signal.SIGTERM):
            for place, kind in enumerate(kinds):
                command = [sys.executable, "program.py", *kind, f"work_{number}_{place}"]
                started.append((number, subprocess.Popen(command, **how)))
        for _, process in started:
            assert process.stdout.readline() == "started\n"
        time.sleep(1)
        for number, process in started:
            process.send_signal(number)
        for _, process in started:
            _, said = process.communicate(timeout=60)
            assert process.returncode == 130, said


def test_a_library_that_ends_the_program_is_no_success(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("fcpower_bids.app.level_of", lambda settings: lambda settings: sys.exit(0))
    assert main([str(tmp_path), str(tmp_path / "out"), "group"]) == 1
    assert "ended from within, with exit code 0" in capsys.readouterr().err
