"""What a run may use is what it was given, the same on every machine."""

from __future__ import annotations

from types import SimpleNamespace

from fcpower_bids import resources
from fcpower_bids.resources import MEGA, USUAL, available_bytes, cores, memory_limit


def test_a_large_array_may_take_a_quarter_of_what_was_given():
    assert available_bytes() == USUAL == 2_000_000_000
    with memory_limit(100):
        assert available_bytes() == 25 * MEGA
        with memory_limit(0):
            assert available_bytes() == USUAL
        assert available_bytes() == 25 * MEGA
    assert cores() >= 1


def test_macos_states_memory_in_bytes(monkeypatch):
    monkeypatch.setattr(resources.resource, "getrusage", lambda who: SimpleNamespace(ru_maxrss=512 * 1024))
    monkeypatch.setattr(resources.sys, "platform", "linux")
    assert resources.peak_megabytes() == 512
    monkeypatch.setattr(resources.sys, "platform", "darwin")
    assert resources.peak_megabytes() == 0.5
