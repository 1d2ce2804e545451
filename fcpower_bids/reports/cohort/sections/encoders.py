"""Encoders against connectivity, and against each other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from fcpower_bids.analyses.encoder_comparison import ENCODER_COMPARISONS
from fcpower_bids.analyses.encoder_comparison import ENCODERS as ENCODERS_TABLE
from fcpower_bids.outputs.names import short_name
from fcpower_bids.reports.cohort import figures as group_figures
from fcpower_bids.reports.cohort.comparisons import (
    DIFFERENCE_CELLS,
    MOST_TARGETS,
    difference_panels,
    judge,
    own_rows,
    score_label,
    targets_of,
)
from fcpower_bids.reports.cohort.findings import by_representation
from fcpower_bids.reports.cohort.methods import Paragraph, describe_table
from fcpower_bids.reports.cohort.pretraining_overlap import seen_names
from fcpower_bids.reports.cohort.sections.identification import describe_identification
from fcpower_bids.reports.cohort.tables import (
    SIGNIFICANT,
    Grid,
    GroupTables,
    Part,
    Section,
    count,
    make_grid,
)
from fcpower_bids.reports.kit.panel import Panel
from fcpower_bids.schema import Column

EMBEDDING = "embedding"
ENCODERS, FOLDS, PAIRS = "encoders", "encoder_folds", "encoder_comparisons"
MOST_PAIRS = 30
"""Pairs that are drawn; those with FC come first, and all are in the table."""


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
    if seen_names(tables):
        answer = (
            "No answer: an encoder was trained on people who are compared here, so what follows is no evidence for it."
        )
    elif better != worse:
        answer = "The embedding adds something here." if better > worse else "Plain connectivity does better here."
    said = [
        text
        for text in describe_identification(tables)
        if text.startswith("embedding") and ("finds" in text or "find the" in text)
    ]
    grid = make_grid(
        rows,
        [
            Column("question", "", "text", "Question"),
            Column("representation", "", "text", "Embedding"),
            Column("reference", "", "text", "Against"),
            Column("gain", "", "number", "Embedding minus connectivity"),
            Column("low", "", "number", "95 % from"),
            Column("high", "", "number", "to"),
            Column("p", "", "p", "p (Holm)"),
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


def comparison_section(tables: GroupTables) -> list[Section]:
    """Every representation under one linear probe: scores by target, every pair, and what each of them reads."""
    scores = tables.frame(ENCODERS)
    if scores is None:
        return []
    pairs = tables.rows(PAIRS)
    verdicts = tuple(_best_sentence(target, scores, pairs, tables) for target in targets_of(scores))
    said = list(verdicts)
    facts = tables.facts(ENCODERS)
    said += [str(facts[key]) for key in ("Probe", "InputsNotKnown") if key in facts]
    panels = [*_score_panels(scores, tables), *_pair_panels(pairs, tables)]
    grids = (_encoder_grid(scores, tables), *_pair_grid(pairs, tables))
    return [Section("encoders", "Comparison of encoders", tuple(said), tuple(panels), grids, verdicts)]


def _best_sentence(target: str, scores: pd.DataFrame, pairs: pd.DataFrame, tables: GroupTables) -> str:
    own = own_rows(scores, target).dropna(subset=["pooled"])
    if own.empty:
        return f"{target}: no score is defined."
    best = own.iloc[int(own["pooled"].argmax())]
    name, label = str(best["representation"]), score_label(best["score"])
    said = f"{target}: the highest {label} is that of {tables.title(name)} ({best['pooled']:.3f})"
    among = own_rows(pairs, target) if len(pairs) else pairs
    rows = []
    for row in among.to_dict("records"):
        if name in (row["representation"], row["reference"]) and row["p_holm"] == row["p_holm"]:
            other = row["reference"] if row["representation"] == name else row["representation"]
            rows.append((str(other), row))
    same = [tables.title(other) for other, row in rows if judge(row) == "not distinguishable"]
    if not rows:
        return said + "; it could not be compared with the others."
    if not same:
        others = "the other" if len(rows) == 1 else f"all {len(rows)} others"
        return said + f"; it differs from {others} (Holm's correction)."
    return said + f"; not distinguishable from {', '.join(same)} (Holm's correction over the pairs)."


def _score_panels(scores: pd.DataFrame, tables: GroupTables) -> Iterator[Panel]:
    folds = tables.rows(FOLDS)
    for target in targets_of(scores)[: MOST_TARGETS + 1]:
        own = own_rows(scores, target)
        label = score_label(own["score"].iloc[0])
        said = "; ".join(
            f"{tables.title(str(row['representation']))} {row['pooled']:.3f}" for row in own.to_dict("records")
        )
        parts = by_representation(folds, target)
        if parts:
            column = "auc" if label == "AUC" else "r"
            dots = {tables.title(name): part[column].to_numpy(dtype=float) for name, part in parts.items()}
            pooled = {tables.title(str(row["representation"])): float(row["pooled"]) for row in own.to_dict("records")}
            svg = group_figures.draw_folds(dots, pooled, f"{label} in the test people", 0.5 if column == "auc" else 0.0)
            text = "Dots are folds; diamond: their mean; black: quartiles; dotted: all predictions together."
        else:
            rows = [
                (
                    tables.title(str(row["representation"])),
                    float(row["pooled"]),
                    float(row["pooled"] - row["fold_sd"]),
                    float(row["pooled"] + row["fold_sd"]),
                )
                for row in own.to_dict("records")
            ]
            svg = group_figures.draw_intervals(rows, label, np.nan)
            text = "Bars: one standard error of the accuracy, over people."
        alt = f"{label} of every representation for {target}: {said}."
        sources = tables.links(ENCODERS, FOLDS) if parts else tables.links(ENCODERS)
        yield Panel(f"Encoders: {target}", text, svg, alt, sources=sources)


def _pair_panels(pairs: pd.DataFrame, tables: GroupTables) -> Iterator[Panel]:
    if pairs.empty:
        return
    keyed = pairs.assign(pair=pairs["representation"].astype(str) + "\t" + pairs["reference"].astype(str))
    names = sorted(dict.fromkeys(keyed["pair"]), key=lambda pair: not {"fc", "fc_power"} & set(pair.split("\t")))
    titles = {name: " − ".join(map(tables.title, name.split("\t"))) for name in names[:MOST_PAIRS]}
    text = (
        "Every pair: the first minus the second, with the 95 % interval. Triangles: different after Holm's correction "
        "over the pairs of the target; open circles: not distinguishable."
    )
    yield from difference_panels(keyed, titles, "Every pair", text, tables.links(PAIRS), key="pair")


def _encoder_grid(scores: pd.DataFrame, tables: GroupTables) -> Grid:
    shown = scores.assign(
        representation=[tables.title(str(name)) for name in scores["representation"]],
        score=[score_label(score) for score in scores["score"]],
        atlas=[short_name(str(name)) for name in scores["atlas"].fillna("n/a")] if "atlas" in scores else "n/a",
    )
    return make_grid(
        shown,
        ENCODERS_TABLE.shown(
            "target",
            "representation",
            "params",
            "parcels",
            "atlas",
            "scan",
            "minutes",
            "score",
            "pooled",
            "fold_mean",
            "fold_sd",
            "n_scored",
        ),
        "Scores and inputs",
        str(tables.facts(ENCODERS).get("PooledAndPerFold", "")),
        tables.links(ENCODERS, FOLDS),
    )


def _pair_grid(pairs: pd.DataFrame, tables: GroupTables) -> Iterator[Grid]:
    if pairs.empty:
        return
    shown = pairs.copy()
    for column in ("representation", "reference"):
        shown[column] = [tables.title(str(name)) for name in shown[column]]
    yield make_grid(
        shown,
        (
            *ENCODER_COMPARISONS.shown("target", "representation", "reference"),
            *DIFFERENCE_CELLS,
            *ENCODER_COMPARISONS.shown("n_distinct"),
        ),
        "Every pair",
        str(tables.facts(PAIRS).get("IdentificationTest", "")),
        tables.links(PAIRS),
    )


ENCODER_PART = Part(encoder_section, "encoder", "Encoder against connectivity", place=140)
COMPARISON_PART = Part(comparison_section, "encoders", "Comparison of encoders", place=150, quoted=True)
METHODS = Paragraph("encoder_comparison", "encoders", Path(__file__).with_name("methods_encoders.md"), describe_table)
