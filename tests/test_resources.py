"""What a run may use is what it was given, the same on every machine."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from fcpower_bids import resources
from fcpower_bids.resources import MEGA, USUAL, available_bytes, cores, describe_memory, memory_limit


def test_a_large_array_may_take_a_quarter_of_what_was_given():
    assert available_bytes() == USUAL == 2_000_000_000
    with memory_limit(100):
        assert available_bytes() == 25 * MEGA
        with memory_limit(0):
            assert available_bytes() == USUAL
        assert available_bytes() == 25 * MEGA
    assert cores() >= 1


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
    monkeypatch.setattr(resources, "LIMITS", (tmp_path / "memory.max", tmp_path / "none"))
    monkeypatch.setenv(resources.JOB, job)
    line = describe_memory(asked)
    assert said in line
    assert bool(said) == bool(line)


def test_macos_states_memory_in_bytes(monkeypatch):
    monkeypatch.setattr(resources.resource, "getrusage", lambda who: SimpleNamespace(ru_maxrss=512 * 1024))
    monkeypatch.setattr(resources.sys, "platform", "linux")
    assert resources.peak_megabytes() == 512
    monkeypatch.setattr(resources.sys, "platform", "darwin")
    assert resources.peak_megabytes() == 0.5
