from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from fcpower_bids.reports.kit.svg import MOST_POINTS, Axes, Box, Drawing, Scale, around


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


def test_places_are_linear_in_the_value_or_its_logarithm():
    drawing = Drawing(2, 1)
    axes = Axes(drawing, Box(10, 20, 100, 40), Scale(-1, 3), Scale(0.01, 100, decades=True))
    np.testing.assert_allclose(axes.across([-1, 0, 3]), [10, 35, 110])
    np.testing.assert_allclose(axes.down([0.01, 1, 100]), [60, 40, 20])
    assert np.isfinite(axes.down(0.0))


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


def test_few_pixels_stay_squares():
    drawing = Drawing(2, 1)
    for pixels in (10, 1000):
        drawing.image(Box(0, 0, 144, 72), b"", pixels)
    assert [("pixelated" in one) for one in drawing.parts] == [True, False]


def test_a_scale_around_values_has_room_also_around_one():
    assert around(np.array([0.0, 10, np.nan])) == Scale(-0.5, 10.5)
    assert around(np.array([2.0, 2.0])).low < 2 < around(np.array([2.0, 2.0])).high
    assert around(np.full(3, np.nan)).low < around(np.full(3, np.nan)).high


def test_ticks_leave_room_for_the_name_of_the_axis():
    decades = Scale(1e-9, 1e4, decades=True)
    words = [decades.word(value) for value in decades.ticks(14)]
    values = [float(word.replace("10^", "1e")) for word in words]
    assert values == pytest.approx([10.0**power for power in range(-9, 5)])
    assert max(map(len, words)) <= 5
    assert Scale(0, 1).word(0.0001) == "0.0001"


@pytest.mark.parametrize(
    ("scale", "most", "expected"),
    [
        (Scale(0, 1), 6, [0.1, 0.3, 0.5, 0.7, 0.9]),
        (Scale(-0.12, 0.31), 5, [-0.05, 0.05, 0.15, 0.25]),
        (Scale(0.5, 30, decades=True), 6, [0.5, 0.6, 0.7, 0.8, 0.9, *range(2, 10), 20, 30]),
        (Scale(1e-12, 10, decades=True), 6, []),
    ],
)
def test_minor_ticks_lie_between_round_values(scale, most, expected):
    assert scale.minor_ticks(most) == pytest.approx(expected)
