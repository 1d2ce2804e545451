"""Which exponent suits the cohort."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.reports.cohort import figures as group_figures
from fcpower_bids.reports.cohort.tables import (
    Grid,
    GroupTables,
    Section,
    make_grid,
    percent,
)
from fcpower_bids.reports.kit.panel import Panel
from fcpower_bids.schema import Column

OPTIMISM = (
    "The curves of the prediction score the test people, so the best point of a curve is optimistic; the exponent "
    "of a fold is chosen without its test people."
)
MOST_TARGETS = 12
CRITERIA = {"prediction": "prediction: score in the test people", "alignment": "alignment with the target"}


def exponent_section(tables: GroupTables) -> list[Section]:
    """Curves of both criteria against the exponent as far as they were computed, and what the folds chose."""
    curve = tables.frame("alpha")
    if curve is None:
        return []
    optimum, facts = tables.rows("alpha_optimum"), tables.facts("alpha")
    targets = list(dict.fromkeys(curve["target"].astype(str)))
    chosen = tuple(said for target in targets[:MOST_TARGETS] for said in _chosen_sentences(target, optimum))
    sentences = list(chosen)
    sentences += [OPTIMISM] if (curve["criterion"] == "prediction").any() else []
    sentences += [str(facts["Rule"])] if "Rule" in facts else []
    panels = [_exponent_panel(target, curve, optimum, tables) for target in targets[:MOST_TARGETS]]
    return [
        Section(
            "exponent",
            "The exponent",
            tuple(sentences),
            tuple(panels),
            tuple(_exponent_grids(optimum, tables)),
            chosen,
        )
    ]


def _chosen_sentences(target: str, optimum: pd.DataFrame) -> Iterator[str]:
    """One sentence per criterion."""
    if len(optimum):
        own = optimum[optimum["target"].astype(str) == target]
        for criterion, part in own.groupby("criterion", sort=False):
            yield _chosen_sentence(f"{target} ({criterion})", part)


def _chosen_sentence(target: str, own: pd.DataFrame) -> str:
    alphas = own["alpha"].dropna().to_numpy(dtype=float)
    if not alphas.size:
        return f"{target}: no fold could choose an exponent."
    low, middle, high = np.quantile(alphas, [0.25, 0.5, 0.75])
    bound = (own["at_bound"].astype(str) == "true").mean()
    said = f"{target}: the folds choose α = {middle:.2f} (median; quartiles {low:.2f} to {high:.2f})"
    at_bound = f", {percent(bound)} of them at an end of the search, so the optimum may lie outside" if bound else ""
    gain = (own["score"] - own["score_at_star"]).mean()
    return f"{said}{at_bound}; its score in the table is {gain:+.3f} relative to α = {ALPHA_STAR:g} (mean)."


def _exponent_panel(target: str, curve: pd.DataFrame, optimum: pd.DataFrame, tables: GroupTables) -> Panel:
    own = curve[curve["target"].astype(str) == target]
    curves: dict[str, dict[str, np.ndarray]] = {}
    chosen: dict[str, np.ndarray] = {}
    for criterion, part in own.groupby("criterion", sort=False):
        title = CRITERIA.get(str(criterion), str(criterion))
        scores = part.groupby("alpha")["score"]
        curves[title] = {
            "alpha": np.array(sorted(part["alpha"].unique()), dtype=float),
            "mean": scores.mean().to_numpy(dtype=float),
            "low": scores.quantile(0.25).to_numpy(dtype=float),
            "high": scores.quantile(0.75).to_numpy(dtype=float),
        }
        if len(optimum):
            rows = optimum[(optimum["target"].astype(str) == target) & (optimum["criterion"] == criterion)]
            chosen[title] = rows["alpha"].dropna().to_numpy(dtype=float)
    said = "; ".join(
        f"{title}: highest mean at α = {one['alpha'][np.nanargmax(one['mean'])]:g}" for title, one in curves.items()
    )
    return Panel(
        f"Exponent for {target}",
        f"Mean over folds, quartiles shaded; dashed: α = {ALPHA_STAR:g}. {said}.",
        group_figures.draw_exponents(curves, chosen, ALPHA_STAR),
        f"Score against the exponent for {target}. {said}.",
        sources=tables.links("alpha", "alpha_optimum"),
        wide=True,
    )


def _exponent_grids(optimum: pd.DataFrame, tables: GroupTables) -> Iterator[Grid]:
    if optimum.empty:
        return
    facts = tables.facts("alpha")
    rows: list[dict[str, Any]] = []
    for (target, criterion), own in optimum.groupby(["target", "criterion"], sort=False):
        best = facts.get("BestOfGridScore", {}) if criterion == "prediction" else {}
        rows.append(
            {
                "target": target,
                "criterion": criterion,
                "median": own["alpha"].median(),
                "low": own["alpha"].quantile(0.25),
                "high": own["alpha"].quantile(0.75),
                "score": own["score"].mean(),
                "star": own["score_at_star"].mean(),
                "grid": best.get(str(target), np.nan),
            }
        )
    yield make_grid(
        pd.DataFrame(rows).dropna(axis=1, how="all"),
        [
            Column("target", "", "text", "Target"),
            Column("criterion", "", "text", "Criterion"),
            Column("median", "", "number", "Chosen α (median)", 2),
            Column("low", "", "number", "Lower quartile", 2),
            Column("high", "", "number", "Upper quartile", 2),
            Column("score", "", "number", "Mean score with the chosen α"),
            Column("star", "", "number", "with α = 0.35"),
            Column("grid", "", "number", "Best of the curve (optimistic)"),
        ],
        "Chosen exponents",
        "",
        tables.links("alpha_optimum"),
    )
