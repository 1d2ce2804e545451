"""Which part of the spectrum goes with a phenotype: its ranks, their strength, and their weight in FC and FC^alpha."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.reports.cohort.tables import (
    SIGNIFICANT,
    GroupTables,
    Part,
    Section,
    count,
    listed,
    make_grid,
    missing,
    say_p,
    smallest_of,
)
from fcpower_bids.reports.kit.charts import GREY, Chart, lay_out, reaching, style
from fcpower_bids.reports.kit.figures import AFTER, BEFORE
from fcpower_bids.reports.kit.panel import Panel
from fcpower_bids.reports.kit.svg import Drawing, Scale
from fcpower_bids.slices.edges.modes import MODES

TITLE = "Parts of the spectrum that go with a phenotype"
ANSWERS = ("Parts of the spectrum",)
MOST_DRAWN = 6
"""Targets in the figure."""


def modes_section(tables: GroupTables) -> list[Section]:
    """Say of every target which ranks go with it."""
    found = tables.frame("edges_modes")
    if found is None:
        return []
    grid = make_grid(
        found,
        MODES.columns.values(),
        "Parts of the spectrum",
        "Mean t² over the edges of each part, and its mean over permutations. The shares are weights in FC and FC^α.",
        tables.links("edges_modes"),
    )
    return [Section("modes", TITLE, tuple(_sentences(found, tables)), (_panel(found, tables),), (grid,))]


def _sentences(found: pd.DataFrame, tables: GroupTables) -> Iterator[str]:
    """The answer for all targets, then each by itself."""
    summary = tables.rows("edges_summary")
    decided = set(summary.loc[summary["smallest_p"] < SIGNIFICANT, "target"].astype(str)) if len(summary) else set()
    parts = {str(target): part for target, part in found.groupby("target", sort=False)}
    tested = {name: part for name, part in parts.items() if name in decided and part["p_family_wise"].notna().any()}
    hits = {name: part[part["p_family_wise"] < SIGNIFICANT] for name, part in tested.items()}
    if any(len(part) for part in hits.values()):
        named = [f"{name} ({_ranks(part)})" for name, part in hits.items() if len(part)]
        yield f"Parts of the spectrum of {tables.title('fc_power')} go with {listed(named)}."
    if lacking := [name for name, part in hits.items() if part.empty]:
        yield f"No part of the spectrum of {tables.title('fc_power')} goes with {listed(lacking)} detectably."
    if undecided := [name for name in parts if name not in tested]:
        yield f"Which part of the spectrum goes with {listed(undecided)} is not decided: the permutations are too few."
    for name, part in tested.items():
        lowest = part.sort_values("p_family_wise", kind="stable").head(1)
        best = lowest.iloc[0]
        yield (
            f"{name}: {_ranks(lowest)}, {say_p(best['p_family_wise'])} corrected for "
            f"{count(len(part), 'part')}, mean t² {best['strength']:.2f} ({best['strength_chance']:.2f} by chance)."
        )


def _ranks(parts: pd.DataFrame) -> str:
    """``rank 1``, or ``ranks 2, 5 to 8``; neighbours are joined."""
    bounds: list[list[int]] = []
    for first, last in (
        parts[["first_rank", "last_rank"]].astype(int).sort_values("first_rank", kind="stable").to_numpy().tolist()
    ):
        if bounds and bounds[-1][1] == first - 1:
            bounds[-1][1] = last
        else:
            bounds.append([first, last])
    named = [f"{first} to {last}" if first < last else str(first) for first, last in bounds]
    return f"rank{'s' if len(named) > 1 or ' ' in named[0] else ''} {', '.join(named)}"


def _panel(found: pd.DataFrame, tables: GroupTables) -> Panel:
    parts = {str(target): part for target, part in list(found.groupby("target", sort=False))[:MOST_DRAWN]}
    return Panel(
        "Strength and weight of the parts",
        "Left: mean t² over the edges of each part over that of the permutations; filled where it is significant, "
        "corrected for the number of parts. Right: share of each part in FC (lambda²) and in FC^α.",
        _draw(parts),
        f"Strength of the parts of the spectrum for {listed(list(parts))}, and their weight in FC and FC^α.",
        sources=tables.links("edges_modes"),
        wide=True,
    )


def _draw(parts: dict[str, pd.DataFrame]) -> str:
    """Strength over chance for each target, and the shares, by part."""
    sheet = Drawing(9.6, 2.7)
    left, right = lay_out(sheet, 1, 2, (46, 10, 20, 40), (58, 0))
    first: Any = next(iter(parts.values()))
    places = np.arange(len(first), dtype=float)
    names = {float(at): _ranks(first.iloc[[at]]).split(maxsplit=1)[1].replace(" to ", "–") for at in range(len(first))}
    across = Scale(-0.5, len(first) - 0.5)
    ratios = {name: (part["strength"] / part["strength_chance"]).to_numpy(float) for name, part in parts.items()}
    known = [values for values in ratios.values() if not missing(values[0])]
    chart = Chart(sheet, left, across, reaching(*known, 1.0))
    chart.level(1, GREY)
    for number, (name, values) in enumerate(ratios.items()):
        (colour, marker), hit = style(number), (parts[name]["p_family_wise"] < SIGNIFICANT).to_numpy()
        chart.plot(places, values, colour, 1.2)
        chart.marks(places[hit], values[hit], colour, 24, marker)
        chart.marks(places[~hit], values[~hit], "#ffffff", 24, marker, colour)
    chart.frame_left("mean t² over chance", most=5)
    chart.name_below("rank", names)
    chart.key({name: style(number) for number, name in enumerate(ratios)})
    shares = {"FC": (BEFORE, "share_fc"), "FC^α": (AFTER, "share_fc_power")}
    weights = Chart(sheet, right, across, reaching(0.0, *(first[column] for _, column in shares.values())))
    for colour, column in shares.values():
        weights.marked_line(places, first[column].to_numpy(float), colour, "o")
    weights.frame_left("share", most=5)
    weights.name_below("rank", names)
    weights.key({name: (colour, "o") for name, (colour, _) in shares.items()})
    return sheet.svg()


def smallest_p_of_modes(tables: GroupTables) -> float:
    """The smallest p of a part, corrected for their number and that of targets."""
    found = tables.rows("edges_modes")
    return smallest_of(found.groupby("target")["p_family_wise"].min()) if len(found) else np.nan


PART = Part(modes_section, "modes", TITLE, place=71, quoted=True, answers=ANSWERS, smallest_p=smallest_p_of_modes)
