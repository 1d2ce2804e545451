"""Memory that containers and jobs allow is named where a run would take more."""

from __future__ import annotations

import pytest

from fcpower_bids.executors import pool
from fcpower_bids.executors.pool import describe_memory
from fcpower_bids.resources import MEGA


@pytest.mark.parametrize(
    ("stated", "job", "asked", "said"),
    [
        ("max\n", "", 4000, ""),
        (f"{1000 * MEGA}\n", "", 4000, "allows 1,000 MB of memory, less than --mem-mb 4000. Give --mem-mb 1000."),
        (f"{1000 * MEGA}\n", "700", 900, "allows 700 MB of memory, less than --mem-mb 900. Give --mem-mb 700."),
        ("max\n", "700", 0, "allows 700 MB of memory, less than the 7,629 MB that a run takes without --mem-mb"),
        (f"{9000 * MEGA}\n", "0", 0, ""),
        (None, "", 9000, ""),
    ],
)
def test_a_container_or_job_that_allows_less_is_named(stated, job, asked, said, tmp_path, monkeypatch):
    if stated is not None:
        (tmp_path / "memory.max").write_text(stated)
    monkeypatch.setattr(pool, "LIMITS", (tmp_path / "memory.max", tmp_path / "none"))
    monkeypatch.setenv(pool.JOB, job)
    line = describe_memory(asked)
    assert said in line
    assert bool(said) == bool(line)
