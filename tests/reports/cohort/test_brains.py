"""Parcels in the outline of a brain: each where it is, in the colour of its number."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fcpower_bids.reports.cohort.edges import GAP, SCALE, draw_brain, outlines
from fcpower_bids.reports.kit.svg import colour_table


def circles(svg: str) -> list[tuple[float, float, str]]:
    found = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="[\d.]+" fill="#(\w+)"', svg)
    return [(float(x), float(y), colour) for x, y, colour in found]


def test_parcels_lie_where_they_are_and_hemispheres_in_their_own_view():
    svg = draw_brain([(-50, 30, 10), (50, 30, 10), (50, -80, 40)], (), [1.0, -2.0, 0.5], "r")
    ends = np.cumsum([SCALE * (across[1] - across[0]) + GAP for _, across, _ in outlines()])
    left, above, right = (
        [one for one in circles(svg) if low <= one[0] < high] for low, high in zip([0, *ends], ends, strict=False)
    )
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
    assert second[0] - first[0] == pytest.approx(100 * SCALE, abs=0.1)


def test_a_connection_is_a_line_between_its_parcels():
    svg = draw_brain([(-50, 30, 10), (50, 30, 10), (50, -80, 40)], [(0, 1), (1, 2)], [1.0, -2.0], "r")
    table = colour_table("RdBu_r")
    assert (svg.count(f'stroke="#{table[191]}"'), svg.count(f'stroke="#{table[0]}"')) == (1, 2)


def test_the_scale_says_the_largest_number_and_zero_is_white():
    svg = draw_brain([(0, 0, 0), (0, 0, 60)], (), [0.0, 0.25], "r")
    assert ">0.25<" in svg
    assert ">-0.25<" in svg
    assert circles(svg)[0][2] == colour_table("RdBu_r")[128]
    assert {colour for *_, colour in circles(svg)} == {colour_table("RdBu_r")[step] for step in (128, 255)}
