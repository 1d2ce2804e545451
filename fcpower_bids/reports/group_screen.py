"""The transform screen: every transform of FC against FC^alpha on the same folds."""

from __future__ import annotations

import pandas as pd

from fcpower_bids.reports.group_comparisons import (
    DIFFERENCE_CELLS,
    HOW,
    SCORE_CELLS,
    difference_panels,
    own_rows,
    refused_grid,
    say_all,
    targets_of,
)
from fcpower_bids.reports.group_tables import Grid, GroupTables, Section, count, listed, make_grid, text_cell

SCREEN = "transform_screen"
TITLES = {
    "power_0.25": "FC^0.25",
    "power_0.5": "FC^0.5",
    "power_0.75": "FC^0.75",
    "log_euclidean": "log-Euclidean",
    "tangent_harmonic": "tangent (harmonic mean)",
    "tangent_arithmetic": "tangent (arithmetic mean)",
    "tangent_riemannian": "tangent (Riemannian mean)",
    "tucker": "Tucker",
    "fisher_z": "Fisher z",
    "degree": "degree normalisation",
    "pca": "PCA",
    "factor_analysis": "factor analysis",
    "ica": "ICA",
    "cholesky": "Cholesky",
    "log_cholesky": "log-Cholesky",
    "random_projection": "random projection",
    "precision": "precision",
    "partial_correlation": "partial correlation",
}
"""Short names for drawings; the table has the full ones."""


def screen_section(tables: GroupTables) -> list[Section]:
    """Say which transforms differ from FC^alpha, draw all of them, list them."""
    screen = tables.frame(SCREEN)
    if screen is None:
        return []
    reference = tables.title("fc_power")
    names = list(dict.fromkeys(screen["representation"].astype(str)))
    titles = {name: TITLES.get(name, tables.title(name)) for name in names}
    said: list[str] = []
    for target in targets_of(screen):
        said += say_all(target, own_rows(screen, target), titles, "transform", reference)
    scored = screen[screen["status"] == "scored"]
    drawn = {name: titles[name] for name in names if name != "fc_power" and name in set(scored["representation"])}
    text = HOW.format(reference=reference)
    panels = tuple(difference_panels(scored, drawn, "Transforms of FC", text, tables.links(SCREEN, f"{SCREEN}_folds")))
    said += _refused(screen, titles)
    grids = (_grid(scored, tables), *refused_grid(screen, titles, "Transform", tables.links(SCREEN)))
    return [Section("screen", "Transforms of the connectome", tuple(said), panels, grids)]


def _refused(screen: pd.DataFrame, titles: dict[str, str]) -> list[str]:
    refused = screen[screen["status"] != "scored"].drop_duplicates("representation")
    if refused.empty:
        return []
    names = listed([titles[str(name)] for name in refused["representation"]])
    return [f"{count(len(refused), 'transform')} could not be had with this cohort: {names}."]


def _grid(screen: pd.DataFrame, tables: GroupTables) -> Grid:
    facts = tables.facts(SCREEN)
    return make_grid(
        screen.dropna(axis=1, how="all"),
        [
            ("target", "Target", text_cell),
            ("transform", "Transform", text_cell),
            ("fitted_to", "Fitted to", text_cell),
            *SCORE_CELLS,
            *DIFFERENCE_CELLS,
        ],
        "All transforms",
        " ".join(str(facts[key]) for key in ("Comparisons", "GroupFit") if key in facts),
        tables.links(SCREEN, f"{SCREEN}_folds"),
    )
