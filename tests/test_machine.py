"""What a run may use is what it was given, else what its job, its container or the machine has."""

from __future__ import annotations

import os

from fcpower_bids.machine import MEGA, USUAL, cores, giving, memory, room


def test_the_least_limit_of_all_cgroups_above_holds(tmp_path):
    own = tmp_path / "cgroup"
    own.write_text("0::/slurm/job_7/step_0\n")
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert memory(tmp_path, own) == whole
    step = tmp_path / "slurm" / "job_7" / "step_0"
    step.mkdir(parents=True)
    (step / "memory.max").write_text("max\n")
    assert memory(tmp_path, own) == whole
    (step.parent / "memory.max").write_text(f"{300 * MEGA}\n")
    assert memory(tmp_path, own) == 300 * MEGA


def test_cgroups_of_version_one_and_containers_count_too(tmp_path):
    own = tmp_path / "cgroup"
    own.write_text("9:memory:/docker/abc\n1:cpu:/docker/abc\n")
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text(f"{200 * MEGA}\n")
    assert memory(tmp_path, own) == 200 * MEGA
    assert memory(tmp_path, tmp_path / "none") == 200 * MEGA


def test_a_large_array_may_take_a_quarter_of_what_was_given():
    assert room() == max(USUAL, memory() // 4)
    with giving(100):
        assert room() == 25 * MEGA
        with giving(0):
            assert room() >= USUAL
        assert room() == 25 * MEGA
    assert cores() >= 1
