"""Which connections go with a phenotype: the answer, networks and edges; and brains, in which chapters draw numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
import pandas as pd

from fcpower_bids.reports.cohort.tables import (
    SIGNIFICANT,
    GroupTables,
    Section,
    count,
    listed,
)
from fcpower_bids.reports.kit.page import Panel
from fcpower_bids.reports.kit.svg import POINTS, Box, Drawing, colour_table, colours, encode_png
from fcpower_bids.schema import TABLES

MOST_PANELS = 6
MOST_DRAWN = 100
ALONE = "Each of them is significant by itself."
TOGETHER = "Of those in a network it is only known that some of them go with it."
ANSWERS = SINGLE, NETWORK = "Single connections", "No single connection, but a network of them,"
"""How the sentences begin that say that something was found."""
BEFORE_CORRECTION = " Corrected for the number of representations, none of this is significant."
MOST_EDGES = 10
"""Edges of each target and representation in the table of the page; the file has more."""
BOTH = ["target", "representation"]
Place = tuple[float, float, float]
"""Where a parcel is, in mm of MNI space."""
VIEWS = (((1, 2), -1), ((0, 1), 0), ((1, 2), 1))
"""Two axes of space and the hemisphere (-1 left, 1 right, 0 both), from the left, from above and from the right."""
SCALE, GAP = 0.75, 12.0
"""Points per mm, and between two views."""
MAP = "RdBu_r"


def edges_chapter(tables: GroupTables) -> Iterator[Section]:
    """Say of every target which edges go with it."""
    summary = tables.rows("edges_summary")
    if summary.empty:
        return
    tried = summary.groupby("target")["target"].transform("size")  # representations in which networks were looked for
    said, panels = list(_headline(summary)), list[Panel]()
    for (_, row), n in zip(summary.iterrows(), tried, strict=True):
        panels += _brain(row, tables, n) if len(panels) < MOST_PANELS else ()
    firsts = {name: tables.rows(name) for name in ("edges", "edges_components")}
    firsts = {name: rows.groupby(BOTH, sort=False).head(MOST_EDGES) for name, rows in firsts.items() if len(rows)}
    grids = [*tables.grid("edges_summary")]
    for name, rows in firsts.items():
        grids += tables.grid(name, tables.titled(rows))
    title = "Connections that go with a phenotype"
    yield Section("edges", title, tuple(said), tuple(panels), tuple(grids), tuple(said[:1]))


def _headline(summary: pd.DataFrame) -> Iterator[str]:
    """One sentence per answer, with the targets that have it."""
    names: dict[str, list[str]] = {}
    for target, part in summary.groupby("target", sort=False):
        names.setdefault(_answer(part), []).append(str(target))
    for answer, targets in names.items():
        yield answer.format(listed(targets))
    n = summary["target"].nunique()
    if n > 1 and any(answer.startswith(ANSWERS) for answer in names):
        yield f"The p of connections are not corrected for the number of targets ({n})."


def _answer(part: pd.DataFrame) -> str:
    """By the smallest p corrected for all edges and representations; that of networks by Bonferroni for the latter."""
    if (part["n_permutations"] == 0).all():
        return "Whether any connection goes with {} was not tested: no permutations were run (--permutations)."
    if part["smallest_p"].min() >= SIGNIFICANT:
        return "For {} the permutations are too few, or the blocks too small, to decide."
    if part["p_max"].min() < SIGNIFICANT:
        return f"{SINGLE} go with {{}}."
    if len(part) * part["p_component"].min() < SIGNIFICANT:
        return f"{NETWORK} goes with {{}}."
    if part["p_component"].min() < SIGNIFICANT:
        return (
            "For {} no connection was found; a network of them stands out only before correction for representations."
        )
    return "For {} no connection was found."


def _part(frame: pd.DataFrame, row: pd.Series) -> pd.DataFrame:
    if frame.empty:
        return frame
    same = (frame["target"].astype(str) == str(row["target"])) & (frame["representation"] == row["representation"])
    return frame[same]


def _brain(row: pd.Series, tables: GroupTables, tried: int) -> Iterator[Panel]:
    """Significant edges in a glass brain, where the places of the parcels are known."""
    networks, edges = _part(tables.rows("edges_components"), row), _part(tables.rows("edges"), row)
    hits = networks.loc[networks["p_extent"] < SIGNIFICANT, "component"].tolist() if len(networks) else []
    edges = edges[(edges["p_family_wise"] < SIGNIFICANT) | edges["component"].isin(hits)].head(MOST_DRAWN)
    holds = row["p_max"] < SIGNIFICANT or tried * row["p_component"] < SIGNIFICANT
    places = tables.facts("edges").get("Centroids", {})
    known = edges[edges["parcel_a"].isin(list(places)) & edges["parcel_b"].isin(list(places))]
    if known.empty:
        return
    ends = known[["parcel_a", "parcel_b"]].astype(str).to_numpy()
    names = sorted(set(ends.ravel().tolist()))
    joined = [(a, b) for a, b in np.searchsorted(names, ends).tolist()]
    heading = TABLES["edges"].columns["t"].heading
    yield tables.panel(
        "edges",
        draw_brain([places[parcel] for parcel in names], joined, known["t"].tolist(), heading),
        n=count(len(known), "connection"),
        target=row["target"],
        name_of=tables.title(row["representation"]),
        more=_more(row["target"], tables),
        together=ALONE if (edges["p_family_wise"] < SIGNIFICANT).all() else TOGETHER,
        before="" if holds else BEFORE_CORRECTION,
    )


def _more(target: object, tables: GroupTables) -> str:
    """The direction of a target, in words."""
    of_two = tables.facts("edges").get("PositiveClasses", {}).get(str(target))
    return f"in {of_two}" if of_two else "with more of it"


# Brains


@lru_cache(maxsize=1)
def outlines() -> tuple[tuple[bytes, tuple[float, float], tuple[float, float]], ...]:
    """Return a brain from the left, above and right as PNG, with the lowest and highest mm of its two axes."""
    from nilearn.datasets import load_mni152_brain_mask  # slow to load, and few pages draw brains

    mask = load_mni152_brain_mask(resolution=2)
    inside, affine = np.asarray(mask.dataobj) > 0, mask.affine
    palette = np.array([[255, 255, 255], [233, 236, 239], [120, 128, 136]], dtype=np.uint8)
    views = []
    for axes, _ in VIEWS:
        shape = inside.any(axis=({0, 1, 2} - set(axes)).pop())
        inner = shape.copy()
        for axis in (0, 1):
            inner &= np.roll(shape, 1, axis) & np.roll(shape, -1, axis)
        pixels = np.where(inner, 1, np.where(shape, 2, 0)).astype(np.uint8).T[::-1]
        low = [affine[axis, 3] - 0.5 * affine[axis, axis] for axis in axes]
        high = [start + affine[axis, axis] * size for start, axis, size in zip(low, axes, shape.shape, strict=True)]
        views.append((encode_png(pixels, palette), (low[0], high[0]), (low[1], high[1])))
    return tuple(views)


def draw_brain(places: Sequence[Place], ends: Sequence[tuple[int, int]], values: Sequence[float], label: str) -> str:
    """Draw a number for each connection of two places as SVG text; the largest lie on top."""
    at, shown = np.asarray(places, dtype=float), np.asarray(values, dtype=float)
    limit = float(np.abs(shown).max()) or 1.0
    table, steps = colour_table(MAP), np.round(127.5 * (1 + shown / limit)).astype(int)
    views = outlines()
    widths = [SCALE * (across[1] - across[0]) for _, across, _ in views]
    height = max(SCALE * (down[1] - down[0]) for *_, down in views)
    sheet = Drawing((sum(widths) + GAP * len(views) + 60) / POINTS, height / POINTS)
    left = 0.0
    for (png, across, down), (axes, side), width in zip(views, VIEWS, widths, strict=True):
        sheet.image(Box(left, 0, width, SCALE * (down[1] - down[0])), png, 100)
        x, y = left + SCALE * (at[:, axes[0]] - across[0]), SCALE * (down[1] - at[:, axes[1]])
        seen = side * at[:, 0] >= 0
        for number in np.argsort(np.abs(shown), kind="stable").tolist():
            colour = f"#{table[steps[number]]}"
            a, b = ends[number]
            if seen[a] and seen[b]:
                sheet.line((x[a], x[b]), (y[a], y[b]), colour, 1.4)
                for end in (a, b):
                    sheet.add("circle", cx=x[end], cy=y[end], r=1.7, fill="#000")
        left += width + GAP
    bar = Box(left + 6, 0.15 * sheet.height, 9, 0.7 * sheet.height)
    sheet.image(bar, encode_png(colours(MAP)[::-1, None]), 256)
    for share, value in ((0.0, limit), (0.5, 0.0), (1.0, -limit)):
        sheet.text(bar.right + 3, bar.top + share * bar.height + 3, f"{value:.2g}", anchor="start")
    sheet.text(bar.left, bar.top - 8, label, anchor="start")
    return sheet.svg()
