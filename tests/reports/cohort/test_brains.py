"""Parcels in a glass brain: each where it is, in the colour of its number."""

from __future__ import annotations

import re

import pytest

from fcpower_bids.reports.cohort.brains import GLASS, draw_parcels, glass_brain
from fcpower_bids.reports.kit.images import colour_table
from fcpower_bids.reports.kit.svg import POINTS


def circles(svg: str) -> list[tuple[float, float, str]]:
    found = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="[\d.]+" fill="#(\w+)"', svg)
    return [(float(x), float(y), colour) for x, y, colour in found]


def test_parcels_lie_where_they_are_and_hemispheres_in_their_own_view():
    svg = draw_parcels([(-50, 30, 10), (50, 30, 10), (50, -80, 40)], [1.0, -2.0, 0.5], "r")
    thirds = [sorted(GLASS[0] * POINTS * share for share in (0, 0.36, 0.64, 1))[k : k + 2] for k in range(3)]
    left, above, right = ([one for one in circles(svg) if low <= one[0] < high] for low, high in thirds)
    assert (len(left), len(above), len(right)) == (1, 3, 2)
    by_colour = {colour: (x, y) for x, y, colour in above}
    table = colour_table("RdBu_r")
    first, second, third = (by_colour[table[step]] for step in (191, 0, 159))
    assert first[0] < second[0] == pytest.approx(third[0], abs=0.1)  # the left is on the left
    assert first[1] == pytest.approx(second[1], abs=0.1)
    assert first[1] < third[1]  # the front is at the top
    (front, low), (back, high) = sorted(((x, y) for x, y, _ in right), reverse=True)
    assert front > back  # seen from the right, the front is on the right
    assert low > high
    _, views = glass_brain()
    scale = views[1][3]
    assert second[0] - first[0] == pytest.approx(100 * scale[0], abs=0.1)


def test_the_scale_says_the_largest_number_and_zero_is_white():
    svg = draw_parcels([(0, 0, 0), (0, 0, 60)], [0.0, 0.25], "r")
    assert ">0.25<" in svg
    assert ">-0.25<" in svg
    assert circles(svg)[0][2] == colour_table("RdBu_r")[128]
    assert {colour for *_, colour in circles(svg)} == {colour_table("RdBu_r")[step] for step in (128, 255)}
