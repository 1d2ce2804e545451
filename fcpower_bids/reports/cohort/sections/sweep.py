"""Prediction under several parcellations, on the same people and folds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from fcpower_bids.analyses.prediction.parcellation_sweep import COMPARISONS
from fcpower_bids.analyses.prediction.parcellation_sweep import GAINS as GAINS_TABLE
from fcpower_bids.reports.cohort.comparison_figures import draw_pairs
from fcpower_bids.reports.cohort.comparisons import (
    DIFFERENCE_CELLS,
    batches,
    difference_panels,
    judge,
    own_rows,
    say_difference,
    score_label,
    targets_of,
)
from fcpower_bids.reports.cohort.tables import Grid, GroupTables, Section, count, make_grid
from fcpower_bids.reports.kit.page import short_name
from fcpower_bids.reports.kit.panel import Panel
from fcpower_bids.schema import Column

SWEEP, GAINS, PAIRS = "parcellation_sweep", "parcellation_gains", "parcellation_comparisons"
SHARED = "shared"


def sweep_section(tables: GroupTables) -> list[Section]:
    """Scores of every parcellation, FC^alpha against FC under each, and the parcellations against each other."""
    sweep, gains = tables.frame(SWEEP), tables.frame(GAINS)
    if sweep is None or gains is None:
        return []
    power, plain = tables.title("fc_power"), tables.title("fc")
    shared = gains[(gains["people"] == SHARED) & (gains["representation"] == "fc_power") & (gains["reference"] == "fc")]
    said = [_sentence(target, own_rows(shared, target), power, plain) for target in targets_of(shared)]
    said += list(_atlas_sentences(tables))
    atlases = {name: short_name(name) for name in dict.fromkeys(sweep["atlas"].astype(str))}
    text = (
        f"{power} minus {plain} under each parcellation, with the 95 % interval of the corrected resampled t-test. "
        "Triangles: p < 0.05 within the parcellation (not corrected for the number of parcellations); open circles: "
        "not distinguishable."
    )
    panels = [
        *_score_panels(sweep[sweep["people"] == SHARED], atlases, tables),
        *difference_panels(shared, atlases, "Gain by parcellation", text, tables.links(GAINS), key="atlas"),
    ]
    grids = (_score_grid(sweep, tables), _gain_grid(gains, tables), *_pair_grid(tables))
    return [Section("sweep", "Parcellations", tuple(said), tuple(panels), grids)]


def _sentence(target: str, rows: pd.DataFrame, power: str, plain: str) -> str:
    words = [judge(row) for row in rows.to_dict("records")]
    differences = rows["mean_difference"].dropna()
    if differences.empty:
        return f"{target}: {power} and {plain} could not be compared."
    return (
        f"{target}: under {words.count('better')} of {count(len(rows), 'parcellation')} {power} is better than "
        f"{plain}, under {words.count('worse')} worse, under {words.count('not distinguishable')} not distinguishable; "
        f"differences in {score_label(rows['score'].iloc[0])} from {differences.min():+.3f} to "
        f"{differences.max():+.3f} (p not corrected for the number of parcellations)."
    )


def _atlas_sentences(tables: GroupTables) -> Iterator[str]:
    pairs = tables.frame(PAIRS)
    if pairs is None:
        return
    tested = pairs.dropna(subset=["p_holm"])
    clear = [row for row in tested.to_dict("records") if judge(row) != "not distinguishable"]
    if not clear:
        yield f"No two parcellations are distinguishable in {count(len(tested), 'comparison')} (Holm's correction)."
        return
    best = min(clear, key=lambda row: float(row["p_holm"]))
    yield (
        f"Parcellations differ in {len(clear)} of {count(len(tested), 'comparison')} (Holm's correction within each); "
        f"the clearest: {short_name(str(best['atlas']))} is {judge(best)} than {short_name(str(best['reference']))} "
        f"for {best['target']} ({say_difference(best)})."
    )


def _score_panels(sweep: pd.DataFrame, atlases: dict[str, str], tables: GroupTables) -> Iterator[Panel]:
    names = list(dict.fromkeys(sweep["representation"].astype(str)))
    for batch in batches(targets_of(sweep)):
        columns, said, labels = {}, [], []
        for target in batch:
            own = own_rows(sweep, target)
            score = "auc" if own["auc"].notna().any() else "r"
            means = own.pivot_table(score, "atlas", "representation", dropna=False).reindex(list(atlases))
            columns[target] = {
                tables.title(name): means[name].to_numpy(dtype=float)
                if name in means
                else np.full(len(atlases), np.nan)
                for name in names
            }
            labels.append(f"mean {score_label(score)} of the folds")
            known = {name: values for name, values in columns[target].items() if np.isfinite(values).any()}
            said.append(f"{target}: " + ", ".join(f"{name} {np.nanmean(one):.3f}" for name, one in known.items()))
        yield Panel(
            "Scores by parcellation",
            f"The same people and folds under every parcellation. Means over parcellations: {'; '.join(said)}.",
            draw_pairs(list(atlases.values()), columns, labels),
            f"Mean scores under {len(atlases)} parcellations; means over them: {'; '.join(said)}.",
            sources=tables.links(SWEEP),
            wide=len(batch) > 1,
        )


def _titled(frame: pd.DataFrame, tables: GroupTables) -> pd.DataFrame:
    return tables.titled(frame).assign(atlas=[short_name(str(name)) for name in frame["atlas"]])


def _score_grid(sweep: pd.DataFrame, tables: GroupTables) -> Grid:
    keys = ["target", "atlas", "people", "n_parcels", "n_people", "representation"]
    means = sweep.groupby(keys, sort=False, dropna=False)[["r", "auc"]].agg(["mean", "std"])
    means.columns = ["r_mean", "r_std", "auc_mean", "auc_std"]
    return make_grid(
        _titled(means.reset_index(), tables).dropna(axis=1, how="all"),
        [
            Column.text("target", "", "Target"),
            Column.text("atlas", "", "Parcellation"),
            Column.text("people", "", "People"),
            Column.number("n_parcels", "", "Parcels", 0),
            Column.number("n_people", "", "Number of people", 0),
            Column.text("representation", "", "Representation"),
            Column.number("r_mean", "", "Mean r of folds"),
            Column.number("r_std", "", "SD"),
            Column.number("auc_mean", "", "Mean AUC of folds"),
            Column.number("auc_std", "", "SD"),
        ],
        "Scores by parcellation",
        str(tables.facts(SWEEP).get("People", "")),
        tables.links(SWEEP),
    )


def _gain_grid(gains: pd.DataFrame, tables: GroupTables) -> Grid:
    shown = _titled(gains, tables)
    return make_grid(
        shown,
        (
            *GAINS_TABLE.shown("target", "atlas", "people", "representation", "reference"),
            *DIFFERENCE_CELLS,
            *GAINS_TABLE.shown("folds_won", "n_distinct"),
        ),
        "Representations under each parcellation",
        "",
        tables.links(GAINS),
    )


def _pair_grid(tables: GroupTables) -> Iterator[Grid]:
    pairs = tables.frame(PAIRS)
    if pairs is None:
        return
    shown = _titled(pairs, tables)
    shown["reference"] = [short_name(str(name)) for name in shown["reference"]]
    yield make_grid(
        shown,
        (*COMPARISONS.shown("target", "representation", "atlas", "reference"), *DIFFERENCE_CELLS),
        "Parcellations against each other",
        str(tables.facts(PAIRS).get("Rule", "")),
        tables.links(PAIRS),
    )
