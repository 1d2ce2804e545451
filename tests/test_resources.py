"""What a run may use is what it was given, the same on every machine."""

from __future__ import annotations

from fcpower_bids.resources import MEGA, USUAL, available_bytes, cores, memory_limit


def test_a_large_array_may_take_a_quarter_of_what_was_given():
    assert available_bytes() == USUAL == 2_000_000_000
    with memory_limit(100):
        assert available_bytes() == 25 * MEGA
        with memory_limit(0):
            assert available_bytes() == USUAL
        assert available_bytes() == 25 * MEGA
    assert cores() >= 1
