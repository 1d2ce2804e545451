"""What more people and longer scans bring: prediction and identification."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.analyses.identification.curves import IDENTIFICATION_GAINS
from fcpower_bids.analyses.prediction.learning_curves import GAINS as GAINS_TABLE
from fcpower_bids.analyses.prediction.learning_curves import LAW as LAW_TABLE
from fcpower_bids.reports.cohort.comparison_figures import draw_curves, draw_gains
from fcpower_bids.reports.cohort.comparisons import MOST_TARGETS, own_rows, targets_of
from fcpower_bids.reports.cohort.tables import (
    SIGNIFICANT,
    Grid,
    GroupTables,
    Section,
    count,
    make_grid,
)
from fcpower_bids.reports.kit.panel import Panel

CURVES, GAINS, LAW = "learning_curves", "learning_gains", "scaling_law"
SCANS, SCAN_GAINS = "identification_curves", "identification_gains"
MOST_PAIRS = 3
SHOWN = ("n_people", "minutes", "representation", "reference", "mean_difference", "ci_low", "ci_high")
CELLS = ["minutes", "n_people"]


def curves_section(tables: GroupTables) -> list[Section]:
    """Curves over people and minutes, and the gains of every cell."""
    curves, scans = tables.frame(CURVES), tables.frame(SCANS)
    if curves is None and scans is None:
        return []
    said: list[str] = []
    panels: list[Panel] = []
    gains = tables.rows(GAINS)
    for target, own in _targets(curves):
        binary = own["auc"].notna().any()
        part = _Curves(
            target, "AUC" if binary else "r", "auc" if binary else "r", 0.5 if binary else 0.0, "training people"
        )
        said.append(part.sentence(own, tables))
        panels += part.panels(own, own_rows(gains, target) if len(gains) else gains, tables, (CURVES, GAINS))
    if scans is not None:
        part = _Curves("Identification", "share found", "accuracy", np.nan, "people to choose from")
        said.append(part.sentence(scans, tables))
        panels += part.panels(scans, tables.rows(SCAN_GAINS), tables, (SCANS, SCAN_GAINS))
    facts = tables.facts(CURVES) or tables.facts(SCANS)
    said += [str(facts[key]) for key in ("LeftOut",) if key in facts]
    said += [str(note) for note in facts.get("Notes", [])]
    return [Section("curves", "More people, longer scans", tuple(said), tuple(panels), tuple(_grids(tables)))]


def _targets(curves: pd.DataFrame | None) -> list[tuple[str, pd.DataFrame]]:
    """Targets that are drawn, and their rows."""
    return [] if curves is None else [(name, own_rows(curves, name)) for name in targets_of(curves)[:MOST_TARGETS]]


class _Curves:
    """Curves of one target, or of identification.

    Parameters
    ----------
    name, label, score : str
        What is scored, how an axis calls the score, and its column.
    chance : float
        What guessing scores; NaN where it depends on the number of people.
    who : str
        The people along the axis.
    """

    def __init__(self, name: str, label: str, score: str, chance: float, who: str) -> None:
        self.name, self.label, self.score, self.chance, self.who = name, label, score, chance, who

    def sentence(self, rows: pd.DataFrame, tables: GroupTables) -> str:
        """Say the score at the smallest and the largest cell."""
        parts = []
        for name, part in rows.groupby("representation", sort=False):
            means = part.groupby(CELLS)[self.score].mean()
            if means.notna().any():
                (minutes, people), (most_minutes, most_people) = means.index[0], means.index[-1]
                said = f"{tables.title(str(name))} {means.iloc[0]:.3f} with {people:.0f} people and {minutes:.1f} min"
                if len(means) > 1:
                    said += f", {means.iloc[-1]:.3f} with {most_people:.0f} and {most_minutes:.1f} min"
                parts.append(said)
        return f"{self.name}, mean {self.label}: {'; '.join(parts) or 'not defined'}."

    def panels(
        self, rows: pd.DataFrame, gains: pd.DataFrame, tables: GroupTables, names: Sequence[str]
    ) -> Iterator[Panel]:
        """Curves over people and over minutes, then the gains of every cell."""
        drawn, axes = [], []
        full = rows[rows["part"] == "full"]
        everyone = rows[rows["n_people"] == rows["n_people"].max()]
        for kept, column, horizontal, title in (
            (full, "n_people", self.who, "Full scans"),
            (everyone, "minutes", "minutes of each scan", "All people"),
        ):
            if kept[column].nunique() > 1:
                drawn.append((title, horizontal, self._curves(kept, column, tables)))
                axes.append(horizontal)
        if drawn:
            yield Panel(
                f"{self.name}: learning curves",
                f"Mean {self.label}; bands are one standard deviation over {self._spread()}. Dashed: chance."
                if np.isfinite(self.chance)
                else f"Mean {self.label}; bands are one standard deviation over {self._spread()}.",
                draw_curves(drawn, self.label, self.chance),
                f"{self.sentence(rows, tables)} Against {' and '.join(axes)}.",
                sources=tables.links(names[0]),
                wide=len(drawn) > 1,
            )
        if len(gains):
            yield from self._gain_panel(gains, tables, names[1])

    def _spread(self) -> str:
        return "subsets of people, which overlap" if self.score == "accuracy" else "folds, which share people"

    def _curves(self, rows: pd.DataFrame, column: str, tables: GroupTables) -> dict[str, np.ndarray]:
        found = {}
        for name, part in rows.groupby("representation", sort=False):
            cells = part.groupby(column)[self.score].agg(["mean", "std"]).reset_index()
            found[tables.title(str(name))] = cells.to_numpy(dtype=float)
        return found

    def _gain_panel(self, gains: pd.DataFrame, tables: GroupTables, source: str) -> Iterator[Panel]:
        pairs = list(gains.groupby(["representation", "reference"], sort=False))
        pairs = sorted(pairs, key=lambda pair: pair[0][1] != "fc")[:MOST_PAIRS]
        people, minutes = (sorted(gains[column].unique()) for column in ("n_people", "minutes"))
        matrices, said = {}, []
        for (later, earlier), part in pairs:
            title = f"{tables.title(str(later))} − {tables.title(str(earlier))}"
            values, marked = _cells(part, minutes, people)
            matrices[title] = (values, marked)
            known = values[np.isfinite(values)]
            said.append(
                f"{title}: from {known.min():+.3f} to {known.max():+.3f}, positive in {int((known > 0).sum())} of "
                f"{count(known.size, 'cell')}, distinguishable from 0 in {int(marked.sum())}"
                if known.size
                else f"{title}: not defined"
            )
        unknown = any(np.isnan(values).any() for values, _ in matrices.values())
        test = "the 95 % interval over people" if self.score == "accuracy" else "the corrected resampled t-test"
        yield Panel(
            f"{self.name}: gain in {self.label}",
            f"Blue is a gain, red a loss; * where {test} tells it from 0 (p < 0.05; cells are not corrected for each "
            f"other). {'Grey: not known. ' if unknown else ''}{'. '.join(said)}.",
            draw_gains(matrices, [f"{one:.3g}" for one in minutes], [f"{one:.0f}" for one in people]),
            f"Gains by minutes and people. {'. '.join(said)}.",
            sources=tables.links(source),
            wide=len(matrices) > 1,
        )


def _cells(part: pd.DataFrame, minutes: list[Any], people: list[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Gains of a pair by minutes and people, and which of them are distinguishable from 0."""
    clear = (part["ci_low"] > 0) | (part["ci_high"] < 0)
    if "p_two_sided" in part:
        clear = part["p_two_sided"] < SIGNIFICANT
    rows, columns = part["minutes"].map(minutes.index), part["n_people"].map(people.index)
    values = np.full((len(minutes), len(people)), np.nan)
    values[rows, columns] = part["mean_difference"]
    marked = np.zeros(values.shape, dtype=bool)
    marked[rows, columns] = clear
    return values, marked


def _grids(tables: GroupTables) -> Iterator[Grid]:
    if tables.frame(GAINS) is not None:
        columns = GAINS_TABLE.shown("target", *SHOWN, "p_two_sided", "folds_won")
        rule = str(tables.facts(GAINS).get("GainRule", "")).replace("p_greater is one-sided; cells", "Cells")
        yield make_grid(tables.titled(tables.rows(GAINS)), columns, "Gains in prediction", rule, tables.links(GAINS))
    if tables.frame(SCAN_GAINS) is not None:
        columns = IDENTIFICATION_GAINS.shown(*SHOWN, "p_greater")
        rule = str(tables.facts(SCAN_GAINS).get("GainRule", "")).replace("p_greater", "p (better)")
        rows = tables.titled(tables.rows(SCAN_GAINS))
        yield make_grid(rows, columns, "Gains in identification", rule, tables.links(SCAN_GAINS))
    if tables.frame(LAW) is not None:
        yield _law_grid(tables)


def _law_grid(tables: GroupTables) -> Grid:
    laws = tables.titled(tables.rows(LAW))
    known = laws["at_bound"].astype(str) != "true"
    laws["at_bound"] = np.where(known, "yes", "no: a parameter is at its limit")
    laws.loc[~known, ["w0", "w1", "w2"]] = np.nan  # wherever the search happened to stop
    caveats = " ".join(str(text) for text in tables.facts(LAW).get("Caveats", []))
    return make_grid(
        laws,
        LAW_TABLE.shown(
            "target", "representation", "at_bound", "w0", "se_w0", "w1", "se_w1", "w2", "se_w2", "rmse", "n_cells"
        ),
        "Scaling law in people and minutes",
        caveats.replace("Where at_bound is true,", "Where it is not determined,"),
        tables.links(LAW),
    )
