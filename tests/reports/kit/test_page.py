"""What templates ask of the texts that they show."""

from __future__ import annotations

from fcpower_bids.reports.page import breakable, set_powers


def test_a_long_name_may_break_after_an_underscore_and_stays_escaped():
    assert breakable("7Networks_LH_<i>&") == "7Networks_<wbr>LH_<wbr>&lt;i&gt;&amp;"
    assert breakable("LH_<b>") == "LH_&lt;b&gt;"
    assert breakable(12.5) == "12.5"


def test_exponents_of_running_text_are_raised_and_copied_as_they_were():
    page = '<title>FC^0.35</title><a title="FC^0.35">FC^0.35, FC^α</a><code>FC^0.5</code><script>"FC^1"</script>FC^2.'
    raised = set_powers(page)
    assert raised.count("<sup>") == 3
    assert '<a title="FC^0.35">FC<sup><i>^</i>0.35</sup>, FC<sup><i>^</i>α</sup></a>' in raised
    assert raised.endswith("FC<sup><i>^</i>2</sup>.")
    assert raised.replace("<sup><i>^</i>", "^").replace("</sup>", "") == page
