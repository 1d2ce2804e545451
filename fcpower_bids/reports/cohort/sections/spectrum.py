"""Where the gain comes from: the same eigenvectors under other eigenvalues, other kernels, other bases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.analyses.evaluate import ROUNDING
from fcpower_bids.analyses.spectrum.screen import PAPER_SCREEN
from fcpower_bids.reports.cohort.comparison_figures import draw_curves
from fcpower_bids.reports.cohort.comparisons import (
    DIFFERENCE_CELLS,
    HOW,
    SCORE_CELLS,
    batches,
    difference_panels,
    labels_of,
    own_rows,
    refused_grid,
    say_all,
    say_difference,
    score_label,
    targets_of,
)
from fcpower_bids.reports.cohort.methods import Paragraph, describe_table, raised
from fcpower_bids.reports.cohort.tables import (
    Grid,
    GroupTables,
    Part,
    Section,
    count,
    listed,
    make_grid,
)
from fcpower_bids.reports.kit.panel import Panel
from fcpower_bids.schema import TABLES, Column

CONTROLS = "spectral_controls"
MATCHED = "spectral_matched"
RANDOM = "random_filter"
PROPER = {name.lower(): name for name in ("Pearson", "Euclidean", "Cholesky", "Wasserstein")}
WEIGHTINGS = {"raw": "λ", "power": "λ^α"}
TITLES = {
    "profile": "hand-set profile",
    "clipped": "clipped eigenvalues",
    "learned_bins": "learned filter, bins",
    "learned_network": "learned filter, network",
    "one_hot": "one-hot identifier",
    "random_embedding": "random embedding",
}


def controls_section(tables: GroupTables) -> list[Section]:
    """Say which controls differ from FC^alpha, draw them and the leading eigenvectors, list them all."""
    controls = tables.frame(CONTROLS)
    if controls is None:
        return []
    first = controls.drop_duplicates("representation")
    titles = {str(row["representation"]): control_title(row, tables) for row in first.to_dict("records")}
    random = controls["control"] == RANDOM
    each = [list(_sentences(target, controls, titles, tables)) for target in targets_of(controls)]
    said = [sentence for own in each for sentence in own]
    verdicts = tuple(own[0] for own in each if own)
    shown = first[(first["status"] == "scored") & ~first["control"].isin((RANDOM, "top_modes"))]
    drawn = {name: titles[name] for name in map(str, shown["representation"]) if name != "fc_power"}
    text = (
        HOW.format(reference=tables.title("fc_power"))
        + " The correction counts the controls of one kind. Grey dots: random filters, of which only the spread is "
        "given. A control without a mark predicts the same for everyone, so its "
        "correlation does not exist."
    )
    links = tables.links(CONTROLS, f"{CONTROLS}_folds")
    scored = controls[random & (controls["status"] == "scored")]
    panels = [
        *_leading_panels(controls, tables),
        *difference_panels(controls[~random], drawn, "Controls", text, links, cloud=scored if len(scored) else None),
    ]
    refused = refused_grid(controls, titles, "Control", tables.links(CONTROLS))
    grids = (_grid(controls[controls["status"] == "scored"], titles, tables), *refused)
    return [Section("controls", "Where the gain comes from", tuple(said), tuple(panels), grids, verdicts)]


def control_title(row: Mapping[Any, Any], tables: GroupTables) -> str:
    """Name a control in a few words."""
    name, kind, number = str(row["representation"]), row["control"], row.get("number")
    rest = " ".join(PROPER.get(word, word) for word in name.split("_")[1:])
    if kind == "mode":
        return f"eigenvector {number:g} alone"
    if kind == "top_modes":
        return f"leading {number:g}, {WEIGHTINGS.get(str(row.get('weighting')), 'n/a')}"
    if kind == "shared_basis":
        return f"shared basis, {number:g} components"
    known = {"kernel": f"kernel: {rest}", "rbf": f"RBF: {rest}", RANDOM: f"random filter {rest}"}
    return known.get(str(kind), TITLES.get(name, tables.title(name)))


def _sentences(target: str, controls: pd.DataFrame, titles: dict[str, str], tables: GroupTables) -> Iterator[str]:
    own = own_rows(controls, target)
    reference = tables.title("fc_power")
    yield from say_all(target, own[own["control"] != RANDOM], titles, "control", reference)
    scores = own.drop_duplicates("representation").set_index("representation")["fold_mean"]
    random = own[own["control"] == RANDOM]["fold_mean"].dropna()
    if len(random) and {"fc", "fc_power"} <= set(scores.index):
        label = score_label(own["score"].iloc[0])
        higher, above = (int((random > scores[name] + ROUNDING).sum()) for name in ("fc_power", "fc"))
        yield (
            f"{target}: the mean {label} of {len(random)} random filters of the eigenvalues lies between "
            f"{random.min():.3f} and {random.max():.3f} (median {random.median():.3f}); "
            f"{higher} {'is' if higher == 1 else 'are'} above {reference} ({scores['fc_power']:.3f}) and "
            f"{above} above FC ({scores['fc']:.3f})."
        )


def _leading_panels(controls: pd.DataFrame, tables: GroupTables) -> Iterator[Panel]:
    """Score against the number of leading eigenvectors, raw and flattened (the paper's Table "matched")."""
    kept = controls[controls["control"].isin(("top_modes", "whole"))]
    if not (kept["control"] == "top_modes").any():
        return
    names = {"raw": "raw eigenvalues", "power": f"flattened eigenvalues (λ^{tables.alpha:g})"}
    matched = tables.frame(MATCHED)
    for batch in batches(targets_of(kept)):
        drawn, said, differ = [], [], list[str]()
        for target in batch:
            own = own_rows(kept, target)
            curves = {title: _curve(own[own["weighting"] == kind]) for kind, title in names.items()}
            drawn.append((target, "leading eigenvectors of each person", curves))
            said.append(f"{target}, {_describe_leading(curves)}")
        for row in () if matched is None else matched[matched["target"].isin(batch)].to_dict("records"):
            compared = f"flattened minus raw at {row['number']:g} eigenvectors: {say_difference(row)}"
            differ.append(f"{row['target']}, {compared}")
        label = f"mean {labels_of(kept)} of the folds"
        yield Panel(
            "The same eigenvectors, raw and flattened",
            "Each person's leading eigenvectors with their raw and with their flattened eigenvalues; the last point is "
            "all of them. Bands: standard deviation over folds, which share people. "
            + ". ".join([*said, *differ])
            + ".",
            draw_curves(drawn, label),
            f"{label} against the number of leading eigenvectors. {'. '.join(said)}.",
            sources=tables.links(CONTROLS, MATCHED),
            wide=len(batch) > 1,
        )


def _curve(rows: pd.DataFrame) -> np.ndarray:
    return rows.sort_values("number", kind="stable")[["number", "fold_mean", "fold_sd"]].to_numpy(dtype=float)


def _describe_leading(curves: dict[str, np.ndarray]) -> str:
    said = []
    for title, values in curves.items():
        known = values[np.isfinite(values[:, 1])]
        if len(known):
            said.append(
                f"{title}: {known[0, 1]:.3f} with {known[0, 0]:g}, {known[-1, 1]:.3f} with all {known[-1, 0]:g}"
            )
    return "; ".join(said) or "no score"


def _grid(controls: pd.DataFrame, titles: dict[str, str], tables: GroupTables) -> Grid:
    shown = controls.assign(title=controls["representation"].astype(str).map(titles))
    facts = tables.facts(CONTROLS)
    return make_grid(
        shown.dropna(axis=1, how="all"),
        (
            *TABLES["spectral_controls"].shown("target"),
            Column("title", "", "text", "Control"),
            *TABLES["spectral_controls"].shown("monotone", "n_ambiguous"),
            *SCORE_CELLS,
            *DIFFERENCE_CELLS,
        ),
        "All controls",
        " ".join(str(facts[key]) for key in ("Comparisons", "Identity", "AmbiguousCuts") if key in facts),
        tables.links(CONTROLS, f"{CONTROLS}_folds"),
    )


SCREEN = "transform_screen"
TRANSFORM_TITLES = {
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
    titles = {name: TRANSFORM_TITLES.get(name, tables.title(name)) for name in names}
    each = [list(say_all(one, own_rows(screen, one), titles, "transform", reference)) for one in targets_of(screen)]
    said = [sentence for own in each for sentence in own]
    verdicts = tuple(own[0] for own in each if own)
    scored = screen[screen["status"] == "scored"]
    drawn = {name: titles[name] for name in names if name != "fc_power" and name in set(scored["representation"])}
    text = HOW.format(reference=reference)
    panels = tuple(difference_panels(scored, drawn, "Transforms of FC", text, tables.links(SCREEN, f"{SCREEN}_folds")))
    said += _refused(screen, titles)
    grids = (_screen_grid(scored, tables), *refused_grid(screen, titles, "Transform", tables.links(SCREEN)))
    return [Section("screen", "Transforms of the connectome", tuple(said), panels, grids, verdicts)]


def _refused(screen: pd.DataFrame, titles: dict[str, str]) -> list[str]:
    refused = screen[screen["status"] != "scored"].drop_duplicates("representation")
    if refused.empty:
        return []
    names = listed([titles[str(name)] for name in refused["representation"]])
    return [f"{count(len(refused), 'transform')} not available with this cohort: {names}."]


def _screen_grid(screen: pd.DataFrame, tables: GroupTables) -> Grid:
    facts = tables.facts(SCREEN)
    return make_grid(
        screen.dropna(axis=1, how="all"),
        (*TABLES["transform_screen"].shown("target", "transform", "fitted_to"), *SCORE_CELLS, *DIFFERENCE_CELLS),
        "All transforms",
        " ".join(str(facts[key]) for key in ("Comparisons", "GroupFit") if key in facts),
        tables.links(SCREEN, f"{SCREEN}_folds"),
    )


SCREEN_PART = Part(screen_section, "screen", "Transforms of the connectome", place=100, quoted=True)
CONTROLS_PART = Part(controls_section, "controls", "Where the gain comes from", place=110, quoted=True)


def _describe_screen(tables: GroupTables, table: str) -> dict[str, Any]:
    facts = describe_table(tables, table)
    power = PAPER_SCREEN["fc_power"], tables.title("fc_power")
    return facts | {"transforms": [raised(str(name).replace(*power)) for name in facts["shown"].get("transform", ())]}


HERE = Path(__file__).parent
METHODS_SCREEN = Paragraph("transform_screen", "transform_screen", HERE / "methods_screen.md", _describe_screen)
METHODS_CONTROLS = Paragraph("spectral_controls", "spectral_controls", HERE / "methods_controls.md", describe_table)
