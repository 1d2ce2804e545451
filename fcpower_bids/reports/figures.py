"""Small drawings of one recording as SVG text; arrays in, nothing read or written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fcpower_bids.reports.svg import (
    DOTS,
    POINTS,
    SMALL,
    STEPS,
    Axes,
    Box,
    Drawing,
    Scale,
    around,
    colour_table,
    colours,
    encode_png,
    step_of,
)

BEFORE, AFTER, CENSORED, DUMMY = "#D55E00", "#0072B2", "#E69F00", "#999999"
"""Okabe and Ito's colours, distinguishable with every colour vision; line style or text repeats their meaning."""
LARGE = 400
"""Most rows of a matrix that are drawn."""
RIGHT = 0.905
"""End of the time axis, of 1; names of networks follow."""
MOST_NETWORKS, ROOM_FOR_NAME = 40, 0.055
"""Above so many they mean nothing; smaller shares of a carpet have no name."""
TRACE, CARPET, GAP = 0.8 * POINTS, 1.36 * POINTS, 8.0
"""Heights over the axis of time, and what is between them."""
LIMIT = 2.0
"""Standard deviations from which on a carpet is black or white."""


def draw_motion(
    volumes: Mapping[str, np.ndarray],
    threshold: float,
    repetition_time: float,
    carpets: Mapping[str, np.ndarray],
    networks: Sequence[tuple[str, float, float]] = (),
) -> str:
    """Draw displacement, threshold (mm), DVARS (T,) and carpets (rows, T) over one axis of time."""
    traces = [("framewise_displacement", "FD (mm)"), ("dvars", "DVARS")]
    traces = [(name, label) for name, label in traces if np.isfinite(volumes[name]).any()]
    heights = [TRACE] * len(traces) + [CARPET] * len(carpets)
    scale, unit = (repetition_time / 60, "minutes") if repetition_time else (1.0, "volumes")
    time = Scale(-0.5 * scale, (len(volumes["kept"]) - 0.5) * scale)
    drawing = Drawing(9.6, (sum(heights) + GAP * len(heights) + 28) / POINTS)
    wide = ((RIGHT if carpets else 0.995) - 0.07) * drawing.width
    tops = np.cumsum([6.0, *(height + GAP for height in heights)])
    boxes = [Box(0.07 * drawing.width, float(top), wide, tall) for top, tall in zip(tops, heights, strict=False)]
    for box, (name, label) in zip(boxes, traces, strict=False):
        motion = name == "framewise_displacement"
        limit = threshold if motion else 0.0
        # motion from 0 to beyond its limit where there is one; 1 mm where nothing moves
        reach = Scale(0.0, max(1.15 * float(np.nanmax(volumes[name])), 1.3 * limit) or 1.0)
        axes = Axes(drawing, box, time, reach if motion else around(volumes[name]))
        _shade_volumes(axes, volumes, scale)
        axes.plot(np.arange(len(volumes[name])) * scale, volumes[name])
        if limit:
            axes.level(limit, BEFORE, dashes="4 2")
        axes.frame_left(label, most=4, far=36)
    palette = np.vstack([colours("gray", STEPS - 1), _rgb(CENSORED)])  # with the colour of no value two share a byte
    for box, (title, carpet) in zip(boxes[len(traces) :], carpets.items(), strict=True):
        seen = shrink(carpet, round(box.height * DOTS / POINTS), round(box.width * DOTS / POINTS))  # no finer
        drawing.image(box, encode_png(step_of(seen, -LIMIT, LIMIT, STEPS - 1), palette), seen.shape[1])
        drawing.line((box.left, box.left, box.right), (box.top, box.bottom, box.bottom), width=0.7)
        drawing.text(box.left - 8, box.top + box.height / 2, title, turned=True)
        # a bar and a name next to the rows of each network; names only where there is room
        for number, (name, first, stop) in enumerate(networks if 1 < len(networks) <= MOST_NETWORKS else ()):
            bar = Box(box.right + 2, box.top + first * box.height, 5, (stop - first) * box.height)
            drawing.rectangle(bar, "#" + colour_table("tab20")[number % len(colour_table("tab20"))])
            if stop - first > ROOM_FOR_NAME:
                drawing.text(bar.right + 3, bar.top + bar.height / 2 + 0.36 * SMALL, name[:14], SMALL, "start")
    Axes(drawing, boxes[-1], time, Scale(0, 1)).frame_below(unit)
    if carpets:
        _draw_scale(drawing, boxes[-1])
    return drawing.svg()


def _shade_volumes(axes: Axes, volumes: Mapping[str, np.ndarray], scale: float) -> None:
    """Mark dummy volumes in hatched grey, censored ones in orange with a tick at the top."""
    dummy = volumes["dummy"] > 0
    censored = ~dummy & (volumes["kept"] == 0)
    drawing, box = axes.drawing, axes.box
    hatch = f'<path d="M0 6L6 0M-1 1L1 -1M5 7L7 5" stroke="{DUMMY}" stroke-width="0.8"/>'
    if dummy.any():
        drawing.add("pattern", hatch, id="dummy", width=6, height=6, patternUnits="userSpaceOnUse")
    for wanted, fill, seen in ((dummy, "url(#dummy)", 1.0), (censored, CENSORED, 0.55)):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], wanted.astype(int), [0]])))
        for first, stop in zip(edges[::2], edges[1::2], strict=True):
            left, right = axes.across([(first - 0.5) * scale, (stop - 0.5) * scale])
            drawing.rectangle(Box(left, box.top, right - left, box.height), fill, fill_opacity=seen)
    places = axes.across(np.flatnonzero(censored) * scale)
    marks = "".join(f"M{place - 1.6:.1f} {box.top - 1.3:.1f}h3.2l-1.6 3z" for place in places)
    if marks:
        drawing.add("path", d=marks, fill="#000")


def _rgb(colour: str) -> np.ndarray:
    return np.frombuffer(bytes.fromhex(colour[1:]), dtype=np.uint8)


def _draw_scale(drawing: Drawing, carpet: Box) -> None:
    """Draw the colours of the carpets next to the axis of time."""
    bar = Box(carpet.right + 6, carpet.bottom + 10, 0.075 * drawing.width, 5)
    steps = STEPS - 1
    drawing.image(bar, encode_png(np.arange(steps, dtype=np.uint8)[None], colours("gray", steps)), steps)
    drawing.add(
        "rect", x=bar.left, y=bar.top, width=bar.width, height=bar.height, fill="none", stroke="#000", stroke_width=0.5
    )
    for text, share in (("-2", 0.0), ("0", 0.5), ("2", 1.0)):
        drawing.text(bar.left + share * bar.width, bar.bottom + 1.5 + SMALL, text, SMALL)
    drawing.text(bar.left + bar.width / 2, bar.top - 2, "SD", SMALL)


def draw_matrices(
    matrices: Mapping[str, np.ndarray],
    networks: Sequence[tuple[str, int, int]],
    limit: float | None = None,
    columns: int = 3,
) -> str:
    """Draw matrices (P, P) by title, each on its own colour scale, framed and named by network (name, first, stop).

    NaN is grey. `limit`: of the scale; without one the 99th percentile beside the diagonal. `columns`: most in a row.
    """
    columns = min(columns, len(matrices))
    names = [name for name, *_ in networks] if len(networks) <= MOST_NETWORKS else []
    left = 6 + 0.56 * SMALL * max(map(len, names), default=0)
    side = min(230.0, (9.6 * POINTS - left) / columns - 14)
    drawing = Drawing((left + columns * (side + 14)) / POINTS, -(-len(matrices) // columns) * (side + 42) / POINTS)
    palette = np.vstack([colours("RdBu_r", 2 * STEPS + 1), _rgb("#9a9a9a")])
    for place, (title, matrix) in enumerate(matrices.items()):
        row, column = divmod(place, columns)
        box = Box(left + column * (side + 14), row * (side + 42) + 18, side, side)
        beside = np.abs(matrix[np.triu_indices(len(matrix), 1)])
        beside = beside[np.isfinite(beside)]
        most = limit or (float(np.percentile(beside, 99)) if beside.size else 1.0) or 1.0
        small = shrink(matrix, LARGE, LARGE)
        drawing.image(box, encode_png(step_of(small, -most, most, 2 * STEPS + 1), palette), len(small))
        for name, first, stop in networks if names else ():
            start, size = side * first / len(matrix), side * (stop - first) / len(matrix)
            frame = Box(box.left + start, box.top + start, size, size)
            drawing.rectangle(frame, "none", stroke="#000", stroke_width=0.5)
            if column == 0 and size >= SMALL:
                drawing.text(box.left - 4, frame.top + size / 2 + 0.36 * SMALL, name, SMALL, "end")
        drawing.rectangle(box, "none", stroke="#000", stroke_width=0.5)
        drawing.text(box.left + side / 2, box.top - 5, title)
        drawing.text(
            box.left + side / 2, box.bottom + 12, f"blue \u2264 \u2212{most:.2g}, red \u2265 {most:.2g}", SMALL
        )
    return drawing.svg()


def draw_bar(drawing: Drawing, box: Box, palette: np.ndarray, scale: Scale, size: float) -> None:
    """Draw the colours of an image (n, 3) from below upwards with round values."""
    column = np.arange(len(palette), dtype=np.uint8)[::-1, None]
    drawing.image(box, encode_png(column, palette), 1)
    left, top, right, bottom = (f"{edge:.1f}" for edge in (box.left, box.top, box.right, box.bottom))
    corners = f"M{left} {top}H{right}V{bottom}H{left}Z"
    drawing.add("path", d=corners, fill="none", stroke="#000", stroke_width=0.5)
    for value in scale.ticks(max(2, int(box.height // (2.2 * size)))):
        height = box.bottom - float(scale.share(value)) * box.height
        drawing.line((box.right, box.right + 2), (height, height), width=0.6)
        drawing.text(box.right + 4, height + 0.36 * size, f"{value:.6g}", size, "start")


def shrink(image: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Average neighbouring rows, and neighbouring columns, until there are at most so many; NaN does not count."""
    for axis, most in ((0, rows), (1, columns)):
        size = image.shape[axis]
        if size > most:
            starts = np.round(np.linspace(0, size, most + 1)).astype(int)[:-1]  # bins of equal width, to one volume
            known = np.isfinite(image)
            count = np.add.reduceat(known, starts, axis=axis, dtype=int)
            total = np.add.reduceat(np.where(known, image, 0.0), starts, axis=axis)
            image = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return image
