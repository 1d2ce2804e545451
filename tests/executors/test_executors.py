"""Whoever does the work, the results are the same; a lost worker costs its task, and never a result."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pytest

from fcpower_bids.cli.run import main
from fcpower_bids.errors import Unfit, UsageError
from fcpower_bids.executors import WorkersLost, executing, map_tasks, select
from fcpower_bids.settings import Resources

KINDS = ("serial", "processes", "dask")


@pytest.fixture(scope="module", params=KINDS)
def executor(request, tmp_path_factory):
    """Each kind, with two workers of its own, whatever the work is worth."""
    folder = tmp_path_factory.mktemp("executors")
    settings = {"serial": Resources(nprocs=1), "processes": Resources(nprocs=2)}.get(request.param)
    if settings is None:
        pytest.importorskip("distributed", reason="Dask is not installed (extra 'cluster')")
        file = folder / "local.yml"
        file.write_text(
            "cluster: LocalCluster\noptions: {n_workers: 2, threads_per_worker: 1, dashboard_address: null}\n"
        )
        settings = Resources(executor=str(file))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(select, "WORTH", 0.0)
        with executing(settings, folder) as chosen:
            yield chosen


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
    if type(executor).__name__ == "Serial":
        pytest.skip("this process is not to be killed")
    matrix = np.eye(200)
    work = partial(die_once, tmp_path / "killed", matrix)
    assert list(map_tasks(work, range(6))) == [multiply(matrix, number) for number in range(6)]
    assert (tmp_path / "killed").exists()
    with pytest.raises(WorkersLost, match="memory"):
        list(map_tasks(die, [0, 1]))


def test_arrays_travel_in_files_and_mapped_ones_stay_where_they_are(tmp_path):
    pytest.importorskip("distributed", reason="Dask is not installed (extra 'cluster')")
    from fcpower_bids.executors.cluster import map_arrays, write_arrays

    np.save(tmp_path / "large.npy", np.ones((200, 200)))
    on_disk = partial(multiply, np.load(tmp_path / "large.npy", mmap_mode="r"))
    for function, most in ((on_disk, 1000), (partial(multiply, np.ones((200, 200))), 330_000)):
        mapped = write_arrays(function, tmp_path / "arrays")
        assert len(mapped.code) < 2000
        assert (tmp_path / "arrays").stat().st_size < most
        assert map_arrays(mapped)(1) == 200.0**3


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("nothing", "must be YAML"),
        ("cluster: Abacus", "names the cluster Abacus"),
        (None, "No Dask scheduler"),
    ],
)
def test_a_wrong_file_or_address_is_told(tmp_path, monkeypatch, content, told):
    cluster = pytest.importorskip("fcpower_bids.executors.cluster", reason="Dask is not installed (extra 'cluster')")
    monkeypatch.setattr(cluster, "ANSWER", 0.5)
    file = tmp_path / "cluster.yml"
    if content:
        file.write_text(content)
    where = str(file) if content else "tcp://127.0.0.1:9"
    with pytest.raises(UsageError, match=told), executing(Resources(executor=where), tmp_path):
        pass


@pytest.fixture
def dask(tmp_path):
    return pytest.importorskip("fcpower_bids.executors.cluster", reason="Dask is not installed (extra 'cluster')")


class LostOnTheWay:
    """A future that was done when its worker was lost: the scheduler has it done again, where there is a worker."""

    def __init__(self, again_after, error=None):
        self.calls, self.again_after, self.status, self.error = 0, again_after, "finished", error

    def done(self):
        return self.calls == 0 or self.error is not None

    def result(self, timeout=None):
        assert timeout is not None, "nothing would be noticed meanwhile"
        self.calls += 1
        time.sleep(0.02)
        if self.error is not None or self.calls <= self.again_after:
            self.status = "error" if self.error else "lost"
            raise self.error or asyncio.TimeoutError
        return 5


def test_a_result_that_is_lost_on_the_way_is_made_again_or_the_run_ends(dask, tmp_path):
    file = tmp_path / "none.yml"
    file.write_text("cluster: LocalCluster\noptions: {n_workers: 0, dashboard_address: null}\npatience: 1\n")
    cluster = dask.Cluster(str(file), tmp_path)
    try:
        watch = dask._Watch(cluster.client, cluster._engine, 0.2)
        assert watch.result(LostOnTheWay(2)) == 5
        with pytest.raises(WorkersLost, match="No worker came"):
            watch.result(LostOnTheWay(10**9))
        with pytest.raises(TimeoutError, match="of the task"):
            watch.result(LostOnTheWay(0, TimeoutError("of the task")))
    finally:
        cluster.close()


def test_a_run_without_workers_ends_with_a_sentence_after_its_patience(dask, tmp_path, capsys):
    file = tmp_path / "none.yml"
    file.write_text("cluster: LocalCluster\noptions: {n_workers: 0, dashboard_address: null}\npatience: 3\n")
    with (
        pytest.raises(WorkersLost, match=r"No worker came for 3 s: .*same command goes on"),
        executing(Resources(executor=str(file)), tmp_path),
    ):
        list(map_tasks(multiply_two, [1, 2]))
    assert "waiting for workers" in capsys.readouterr().err


def multiply_two(number):
    return 2 * number


def test_the_words_of_the_scheduler_become_a_usage_error(dask, tmp_path, monkeypatch):
    """A queue that refuses every job, by a program called as SLURM's."""
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.parent.mkdir()
    sbatch.write_text("#!/bin/sh\necho 'sbatch: error: invalid partition specified: nowhere' >&2; exit 1\n")
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{sbatch.parent}{os.pathsep}{os.environ['PATH']}")
    file = tmp_path / "slurm.yml"
    file.write_text("cluster: SLURMCluster\njobs: 1\noptions: {cores: 1, memory: 1GB, queue: nowhere}\npatience: 30\n")
    with (
        pytest.raises(UsageError, match="refuses a job: sbatch: error: invalid partition specified: nowhere"),
        executing(Resources(executor=str(file)), tmp_path),
    ):
        list(map_tasks(multiply_two, [1, 2]))


@pytest.mark.parametrize(
    ("queue", "words", "waiting"),
    [
        ("1 PENDING Resources\n2 PENDING Priority", "pending (Resources); pending (Priority)", True),
        ("1 PENDING PartitionTimeLimit", "pending (PartitionTimeLimit)", False),
        ("1 RUNNING None", "running (None)", False),
        ("", "the queue holds none of its jobs", False),
    ],
)
def test_the_queue_is_told_and_jobs_that_can_begin_are_waited_for(dask, tmp_path, monkeypatch, queue, words, waiting):
    squeue = tmp_path / "squeue"
    squeue.write_text(f"#!/bin/sh\nprintf '{queue}\n' | sed '/^$/d'\n")
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert dask.Engine(None, 1.0, jobs={"a": "1"}).queue() == (words, waiting)


SIGNALLED = """
import sys, time
from fcpower_bids.cli import run
from fcpower_bids.executors import executing, map_tasks
from fcpower_bids.settings import Resources
from pathlib import Path

def slow(number):
    time.sleep(30)

def level(settings):
    executor, nprocs, folder = sys.argv[1:]
    from fcpower_bids.executors import select
    select.WORTH = 0.0
    with executing(Resources(executor=executor, nprocs=int(nprocs)), Path(folder)):
        print("started", flush=True)
        list(map_tasks(slow, range(8)))
    return 0

if __name__ == "__main__":
    run._level = lambda settings: level
    sys.exit(run.main(["bids", "out", "group"]))
"""


ENGINES = {
    "dask": "cluster: LocalCluster\noptions: {n_workers: 1, threads_per_worker: 1, dashboard_address: null}\n",
    "dask_jobqueue": "cluster: SLURMCluster\njobs: 1\noptions: {cores: 1, memory: 1GB}\n",
}


@pytest.mark.parametrize("kind", ["serial", "processes", *ENGINES])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_no_success_under_any_executor(kind, number, tmp_path):
    """dask_jobqueue answers Ctrl-C by an exit with code 0, as soon as it is imported."""
    if kind in ENGINES:
        pytest.importorskip("dask_jobqueue", reason="Dask is not installed (extra 'cluster')")
    for name in ("sbatch", "scancel"):
        (tmp_path / name).write_text("#!/bin/sh\necho 1\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "engine.yml").write_text(ENGINES.get(kind, ""))
    (tmp_path / "program.py").write_text(SIGNALLED)
    options = ("engine.yml" if kind in ENGINES else "", "2" if kind == "processes" else "1", "work")
    process = subprocess.Popen(
        [sys.executable, "program.py", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
    )
    assert process.stdout.readline() == "started\n"
    time.sleep(1)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said


def test_a_library_that_ends_the_program_is_no_success(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("fcpower_bids.cli.run._level", lambda settings: lambda settings: sys.exit(0))
    assert main([str(tmp_path), str(tmp_path / "out"), "group"]) == 1
    assert "ended from within, with exit code 0" in capsys.readouterr().err
