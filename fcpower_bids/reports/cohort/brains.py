"""Connections drawn in a glass brain."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fcpower_bids.reports.cohort.drawing import drawing

Place = tuple[float, float, float]


def draw_connections(first: Sequence[Place], second: Sequence[Place], values: Sequence[float]) -> str:
    """Draw connections seen from the left, from above and from the right, as SVG text.

    Parameters
    ----------
    first, second : sequence of (float, float, float)
        Where the connections begin and end, in mm of MNI space.
    values : sequence of float
        Positive ones are red, negative ones blue, the largest darkest.
    """
    from nilearn.plotting import plot_connectome  # slow to load, and few pages draw brains

    ends = [tuple(map(float, place)) for place in (*first, *second)]
    nodes = sorted(set(ends))
    matrix = np.zeros((len(nodes), len(nodes)))
    for a, b, value in zip(ends[: len(values)], ends[len(values) :], values, strict=True):
        i, j = nodes.index(a), nodes.index(b)
        matrix[i, j] = matrix[j, i] = value
    with drawing(7.6, 2.5) as (figure, svg):
        plot_connectome(
            matrix,
            np.array(nodes),
            node_color="black",
            node_size=9,
            edge_cmap="RdBu_r",
            edge_kwargs={"linewidth": 1.6},
            display_mode="lzr",
            figure=figure,
            axes=(0, 0, 1, 1),
        )
        for axis in figure.axes:
            for patch in axis.patches:
                patch.set_rasterized(True)  # the outlines of the brain are large as curves
    return svg[0]
