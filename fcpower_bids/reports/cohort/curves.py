"""More people, longer scans: curves of every target and of identification, and the gains of every cell."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from fcpower_bids.reports.cohort.comparisons import MOST_TARGETS
from fcpower_bids.reports.cohort.drawings import draw_curves, draw_gains, with_band
from fcpower_bids.reports.cohort.tables import (
    SIGNIFICANT,
    Grid,
    GroupTables,
    Section,
    count,
    own_rows,
    score_label,
    targets_of,
)
from fcpower_bids.reports.kit.page import Panel

MOST_PAIRS = 3
UNKNOWN = -1.0
"""In place of minutes where no repetition time is known: the cell is of whole scans."""


def curves_chapter(tables: GroupTables) -> Iterator[Section]:
    """Curves over people and minutes, and the gains of every cell."""
    curves, scans = tables.rows("learning_curves"), tables.rows("identification_curves")
    if curves.empty and scans.empty:
        return
    said: list[str] = []
    panels: list[Panel] = []
    for target in targets_of(curves)[:MOST_TARGETS] if len(curves) else ():
        own, gains = own_rows(curves, target), own_rows(tables.rows("learning_gains"), target)
        score = "auc" if own["auc"].notna().any() else "r"
        said.append(_say_curves(target, own, score, score_label(score), tables))
        panels += _curves(target, own, gains, score, said[-1], tables)
    if len(scans):
        gains = tables.rows("identification_gains")
        said.append(_say_curves("Identification", scans, "accuracy", "share found", tables))
        panels += _curves("Identification", scans, gains, "accuracy", said[-1], tables)
    verdicts = tuple(said)
    facts = tables.facts("learning_curves") or tables.facts("identification_curves")
    said += [str(facts[key]) for key in ("LeftOut",) if key in facts]
    said += [str(note) for note in facts.get("Notes", [])]
    grids = list[Grid]()
    for name, old, new in (
        ("learning_gains", "p_greater is one-sided; cells", "Cells"),
        ("identification_gains", "p_greater", "p (better)"),
    ):
        grids += tables.grid(name, text=str(tables.facts(name).get("GainRule", "")).replace(old, new))
    yield Section("curves", "More people, longer scans", tuple(said), tuple(panels), tuple(grids), verdicts)


def _say_curves(name: str, rows: pd.DataFrame, score: str, label: str, tables: GroupTables) -> str:
    """Say the score at the smallest and the largest cell."""
    parts = []
    for representation, part in rows.groupby("representation", sort=False):
        means = part.groupby(["minutes", "n_people"])[score].mean()
        if means.notna().any():
            (minutes, people), (most_minutes, most_people) = means.index[0], means.index[-1]
            said = f"{tables.title(representation)} {means.iloc[0]:.3f} with {people:.0f} people and {minutes:.1f} min"
            if len(means) > 1:
                said += f", {means.iloc[-1]:.3f} with {most_people:.0f} and {most_minutes:.1f} min"
            parts.append(said)
    return f"{name}, mean {label}: {'; '.join(parts) or 'not defined'}."


def _curves(
    name: str, rows: pd.DataFrame, gains: pd.DataFrame, score: str, sentence: str, tables: GroupTables
) -> Iterator[Panel]:
    """Curves over people and over minutes, then the gains of every cell; of a target, or of identification."""
    found = score == "accuracy"
    label, kind = "share found" if found else score_label(score), "identification" if found else "learning"
    chance = {"auc": 0.5, "r": 0.0}.get(score, np.nan)
    drawn = []
    for kept, column, horizontal, title in (
        (
            rows[rows["part"] == "full"],
            "n_people",
            "people to choose from" if found else "training people",
            "Full scans",
        ),
        (rows[rows["n_people"] == rows["n_people"].max()], "minutes", "minutes of each scan", "All people"),
    ):
        if kept[column].nunique() > 1:
            cells = {
                tables.title(representation): part.groupby(column)[score].agg(["mean", "std"]).reset_index()
                for representation, part in kept.groupby("representation", sort=False)
            }
            curves = {representation: with_band(part) for representation, part in cells.items()}
            drawn.append((title, label, horizontal, curves))
    if drawn:
        yield tables.panel(
            f"{kind}_curves",
            draw_curves(drawn, chance, doubling=True),
            len(drawn) > 1,
            target=name,
            label=label,
            said=sentence,
            axes=" and ".join(horizontal for _, _, horizontal, _ in drawn),
        )
    if len(gains):
        yield _gains(name, gains, label, kind, tables)


def _gains(name: str, gains: pd.DataFrame, label: str, kind: str, tables: GroupTables) -> Panel:
    gains = gains.fillna({"minutes": UNKNOWN})
    pairs = list(gains.groupby(["representation", "reference"], sort=False))
    people, minutes = (sorted(gains[column].unique()) for column in ("n_people", "minutes"))
    matrices, said = {}, []
    for (later, earlier), part in sorted(pairs, key=lambda pair: pair[0][1] != "fc")[:MOST_PAIRS]:
        title = f"{tables.title(later)} − {tables.title(earlier)}"
        clear = (part["ci_low"] > 0) | (part["ci_high"] < 0)
        if "p_two_sided" in part:
            clear = part["p_two_sided"] < SIGNIFICANT
        place = part["minutes"].map(minutes.index), part["n_people"].map(people.index)
        values, marked = np.full((len(minutes), len(people)), np.nan), np.zeros((len(minutes), len(people)), dtype=bool)
        values[place], marked[place] = part["mean_difference"], clear
        matrices[title], known = (values, marked), values[np.isfinite(values)]
        said.append(
            f"{title}: from {known.min():+.3f} to {known.max():+.3f}, positive in {int((known > 0).sum())} of "
            f"{count(known.size, 'cell')}, distinguishable from 0 in {int(marked.sum())}"
            if known.size
            else f"{title}: not defined"
        )
    unknown = any(np.isnan(values).any() for values, _ in matrices.values())
    lengths = ["whole scan" if length == UNKNOWN else f"{length:.3g}" for length in minutes]
    return tables.panel(
        f"{kind}_gains",
        draw_gains(matrices, lengths, [f"{n:.0f}" for n in people]),
        len(matrices) > 1,
        target=name,
        label=label,
        grey="Grey: not known. " if unknown else "",
        said=". ".join(said),
    )
