from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from fcpower_bids.reports.svg import MOST_POINTS, Drawing, Scale


@pytest.mark.parametrize(
    ("scale", "most", "expected"),
    [
        (Scale(0, 0.2), 5, [0, 0.05, 0.1, 0.15, 0.2]),
        (Scale(-0.05, 7.45), 8, [0, 1, 2, 3, 4, 5, 6, 7]),
        (Scale(-3, 3), 3, [-2, 0, 2]),
        (Scale(0.002, 30, decades=True), 6, [0.01, 0.1, 1, 10]),
        (Scale(1e-12, 10, decades=True), 6, [1e-12, 1e-9, 1e-6, 1e-3, 1]),
        (Scale(4, 4), 4, [4]),
    ],
)
def test_ticks_are_round_and_few(scale, most, expected):
    assert scale.ticks(most) == pytest.approx(expected)
    assert "-0" not in [f"{tick:g}" for tick in scale.ticks(most)]


def test_a_line_has_a_gap_where_there_is_no_value():
    drawing = Drawing(1, 1)
    drawing.line([0, 1, 2, 3, 4], [5, 5, np.nan, 5, 6])
    assert 'd="M0.0 5.0L1.0 5.0M3.0 5.0L4.0 6.0"' in drawing.svg()


def test_a_long_line_keeps_its_peaks_and_gaps():
    drawing, values = Drawing(1, 1), np.random.default_rng(0).standard_normal(20_000)
    values[[777, 19_000]] = 40, -40
    values[5000] = np.nan
    drawing.line(np.arange(20_000.0), values)
    drawn = [tuple(map(float, one)) for one in re.findall(r"[ML]([-\d.]+) ([-\d.]+)", drawing.svg())]
    assert len(drawn) <= MOST_POINTS + 2
    assert {(777.0, 40.0), (19_000.0, -40.0)} <= set(drawn)
    assert [across for across, _ in drawn] == sorted(across for across, _ in drawn)
    assert drawing.svg().count("M") == 2


def test_text_is_text_and_numbers_are_short():
    drawing = Drawing(1, 1)
    drawing.text(1 / 3, 2, "<script> & 'x'")
    root = ElementTree.fromstring(drawing.svg())
    (text,) = root.iter("{http://www.w3.org/2000/svg}text")
    assert (text.text, text.get("x")) == ("<script> & 'x'", "0.33")


def test_ticks_leave_room_for_the_name_of_the_axis():
    decades = Scale(1e-9, 1e4, decades=True)
    words = [decades.word(value) for value in decades.ticks(14)]
    values = [float(word.replace("10^", "1e")) for word in words]
    assert values == pytest.approx([10.0**power for power in range(-9, 5)])
    assert max(map(len, words)) <= 5
    assert Scale(0, 1).word(0.0001) == "0.0001"
