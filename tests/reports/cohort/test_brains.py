"""Connections in the outline of a brain: each between its parcels, in the colour of its number."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fcpower_bids.reports.charts import GAP, SCALE, draw_brain, outlines
from fcpower_bids.reports.svg import colour_table

LEFT_FRONT, RIGHT_FRONT, RIGHT_BACK = (-50, 30, 10), (50, 30, 10), (50, -80, 40)


def test_connections_lie_where_their_parcels_are_and_hemispheres_in_their_own_view():
    svg = draw_brain([LEFT_FRONT, RIGHT_FRONT, RIGHT_BACK], [(0, 1), (1, 2)], [1.0, -2.0], "r")
    table = colour_table("RdBu_r")
    # one from left to right is seen from above alone, one on the right from above and from the right
    assert (svg.count(f'stroke="#{table[191]}"'), svg.count(f'stroke="#{table[0]}"')) == (1, 2)
    ends = np.cumsum([SCALE * (across[1] - across[0]) + GAP for _, across, _ in outlines()])
    found = [(float(x), float(y)) for x, y in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', svg)]
    between = zip([0, *ends], ends, strict=False)
    left, above, right = ([at for at in found if low <= at[0] < high] for low, high in between)
    assert (len(left), len(set(above)), len(right)) == (0, 3, 2)
    (first, _), (second, _) = sorted(set(above))[0], sorted(set(above))[-1]
    assert second - first == pytest.approx(100 * SCALE, abs=0.1)  # the left is on the left
    front, back = sorted(right, reverse=True)
    assert front[1] > back[1]  # seen from the right, the front is on the right; it is lower here


def test_the_scale_says_the_largest_number():
    svg = draw_brain([LEFT_FRONT, RIGHT_BACK], [(0, 1)], [0.25], "r")
    assert ">0.25<" in svg
    assert ">-0.25<" in svg
