"""Whoever does the work, the results are the same; a lost worker costs its task, and never a result."""

from __future__ import annotations

import os
import signal
from functools import partial

import numpy as np
import pytest

from fcpower_bids.errors import Unfit, UsageError
from fcpower_bids.executors import WorkersLost, executing, processes, share
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
        patch.setattr(processes, "WORTH", 0.0)
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
        assert list(share(partial(multiply, given), range(12))) == expected
    offset = 3.0
    assert list(share(lambda number: number + offset, [1, 2])) == [4.0, 5.0]
    assert list(share(partial(multiply, matrix), [])) == []


def test_an_error_made_for_people_stays_one(executor):
    with pytest.raises(Unfit, match="cannot be"):
        list(share(refuse, [0, 1]))


def test_a_lost_worker_costs_its_task_and_no_result(executor, tmp_path):
    if type(executor).__name__ == "Serial":
        pytest.skip("this process is not to be killed")
    matrix = np.eye(200)
    work = partial(die_once, tmp_path / "killed", matrix)
    assert list(share(work, range(6))) == [multiply(matrix, number) for number in range(6)]
    assert (tmp_path / "killed").exists()
    with pytest.raises(WorkersLost, match="memory"):
        list(share(die, [0, 1]))


def test_arrays_travel_in_files_and_mapped_ones_stay_where_they_are(tmp_path):
    pytest.importorskip("distributed", reason="Dask is not installed (extra 'cluster')")
    from fcpower_bids.executors.mapped import map_arrays, write_arrays

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
    monkeypatch.setattr(cluster, "PATIENCE", 0.5)
    file = tmp_path / "cluster.yml"
    if content:
        file.write_text(content)
    where = str(file) if content else "tcp://127.0.0.1:9"
    with pytest.raises(UsageError, match=told), executing(Resources(executor=where), tmp_path):
        pass
