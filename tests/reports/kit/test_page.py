"""What templates ask of the texts that they show."""

from __future__ import annotations

from fcpower_bids.reports.kit.page import breakable


def test_a_long_name_may_break_after_an_underscore_and_stays_escaped():
    assert breakable("7Networks_LH_<i>&") == "7Networks_<wbr>LH_<wbr>&lt;i&gt;&amp;"
    assert breakable("LH_<b>") == "LH_&lt;b&gt;"
    assert breakable(12.5) == "12.5"
