"""What a run may use is what it was given, the same on every machine."""

from __future__ import annotations

from fcpower_bids.resources import MEGA, USUAL, cores, giving, room


def test_a_large_array_may_take_a_quarter_of_what_was_given():
    assert room() == USUAL == 2_000_000_000
    with giving(100):
        assert room() == 25 * MEGA
        with giving(0):
            assert room() == USUAL
        assert room() == 25 * MEGA
    assert cores() >= 1
