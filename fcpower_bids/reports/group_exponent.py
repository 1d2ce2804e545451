"""Which exponent suits the cohort, and what an encoder adds to FC."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.reports import group_figures
from fcpower_bids.reports.context import Panel
from fcpower_bids.reports.group_identification import ALPHA_STAR, describe_identification
from fcpower_bids.reports.group_tables import (
    SIGNIFICANT,
    Grid,
    GroupTables,
    Section,
    count,
    make_grid,
    number_cell,
    p_cell,
    percent,
    text_cell,
)

MOST_TARGETS = 12
CRITERIA = {"prediction": "prediction: score in the test people", "alignment": "alignment with the target"}
EMBEDDING = "embedding"


def exponent_section(tables: GroupTables) -> list[Section]:
    """Curves of both criteria against the exponent as far as they were computed, and what the folds chose."""
    curve = tables.frame("alpha")
    if curve is None:
        return []
    optimum, facts = tables.rows("alpha_optimum"), tables.facts("alpha")
    targets = list(dict.fromkeys(curve["target"].astype(str)))
    sentences = [_chosen_sentence(target, optimum) for target in targets[:MOST_TARGETS] if len(optimum)]
    sentences += [str(facts[key]) for key in ("Optimism", "Rule") if key in facts]
    panels = [_exponent_panel(target, curve, optimum, tables) for target in targets[:MOST_TARGETS]]
    return [
        Section(
            "exponent",
            "The exponent",
            tuple(sentences),
            tuple(panels),
            tuple(_exponent_grids(targets, optimum, tables)),
        )
    ]


def _chosen_sentence(target: str, optimum: pd.DataFrame) -> str:
    own = optimum[optimum["target"].astype(str) == target]
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


def _exponent_grids(targets: list[str], optimum: pd.DataFrame, tables: GroupTables) -> Iterator[Grid]:
    if optimum.empty:
        return
    facts = tables.facts("alpha")
    rows: list[dict[str, Any]] = []
    for target in targets:
        own = optimum[optimum["target"].astype(str) == target]
        rows.append(
            {
                "target": target,
                "median": own["alpha"].median(),
                "low": own["alpha"].quantile(0.25),
                "high": own["alpha"].quantile(0.75),
                "score": own["score"].mean(),
                "star": own["score_at_star"].mean(),
                "grid": facts.get("BestOfGridScore", {}).get(target, np.nan),
            }
        )
    yield make_grid(
        pd.DataFrame(rows).dropna(axis=1, how="all"),
        [
            ("target", "Target", text_cell),
            ("median", "Chosen α (median)", number_cell(2)),
            ("low", "Quartile", number_cell(2)),
            ("high", "Quartile", number_cell(2)),
            ("score", "Mean score with the chosen α", number_cell(3)),
            ("star", "with α = 0.35", number_cell(3)),
            ("grid", "Best of the curve (optimistic)", number_cell(3)),
        ],
        "Chosen exponents",
        "",
        tables.links("alpha_optimum"),
    )


def encoder_section(tables: GroupTables) -> list[Section]:
    """Set embeddings against FC and FC^alpha, in prediction and identification, with the plain answer first."""
    rows = pd.concat([_against_fc(tables, "comparisons"), _against_fc(tables, "identification_comparisons")])
    if rows.empty:
        return []
    better, worse = (int(((rows["p"] < SIGNIFICANT) & (sign * rows["gain"] > 0)).sum()) for sign in (1, -1))
    n = len(rows)
    verdict = (
        f"In {count(better, 'comparison')} of {n} the embedding is better than connectivity, in {worse} worse, in "
        f"{n - better - worse} there is no evidence for a difference (Holm's correction within each question)."
    )
    answer = "There is no reason here to prefer the embedding to plain connectivity."
    if better != worse:
        answer = "The embedding adds something here." if better > worse else "Plain connectivity does better here."
    said = [text for text in describe_identification(tables) if text.startswith("embedding") and "finds" in text]
    grid = make_grid(
        rows,
        [
            ("question", "Question", text_cell),
            ("representation", "Embedding", text_cell),
            ("reference", "Against", text_cell),
            ("gain", "Embedding minus connectivity", number_cell(3)),
            ("low", "95 % from", number_cell(3)),
            ("high", "to", number_cell(3)),
            ("p", "p (Holm)", p_cell),
        ],
        "Embedding against connectivity",
        "Positive where the embedding is better.",
        tables.links("comparisons", "identification_comparisons"),
    )
    return [Section("encoder", "Encoder against connectivity", (answer, verdict, *said), (), (grid,))]


def _raw(tables: GroupTables, name: str) -> pd.DataFrame:
    """Pairs of an embedding and a representation of connectivity."""
    table = tables.rows(name)
    if table.empty:
        return table
    first, second = (table[key].astype(str).str.startswith(EMBEDDING) for key in ("representation", "reference"))
    return table[first != second]


def _against_fc(tables: GroupTables, name: str) -> pd.DataFrame:
    """Pairs of `_raw` with the embedding first, whatever the order in the table."""
    difference = "mean_difference" if name == "comparisons" else "difference"
    found = []
    for _, row in _raw(tables, name).iterrows():
        flip = not str(row["representation"]).startswith(EMBEDDING)
        names = [tables.title(str(row[key])) for key in ("representation", "reference")]
        limits = [float(row["ci_low"]), float(row["ci_high"])]
        found.append(
            {
                "question": f"prediction of {row['target']}" if "target" in row else "identification",
                "representation": names[flip],
                "reference": names[not flip],
                "gain": -float(row[difference]) if flip else float(row[difference]),
                "low": -limits[1] if flip else limits[0],
                "high": -limits[0] if flip else limits[1],
                "p": float(row["p_holm"]),
            }
        )
    return pd.DataFrame(found)
