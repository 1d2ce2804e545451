"""More people, longer scans, other parcellations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.analyses.curves import GAINS as GAINS_TABLE
from fcpower_bids.analyses.curves import IDENTIFICATION_GAINS
from fcpower_bids.analyses.sweep import COMPARISONS
from fcpower_bids.analyses.sweep import GAINS as SWEEP_GAINS_TABLE
from fcpower_bids.outputs.names import short_name
from fcpower_bids.reports.cohort.comparison_figures import draw_curves, draw_gains, draw_pairs
from fcpower_bids.reports.cohort.comparisons import (
    DIFFERENCE_CELLS,
    MOST_TARGETS,
    batches,
    difference_panels,
    judge,
    own_rows,
    say_difference,
    score_label,
    targets_of,
)
from fcpower_bids.reports.cohort.methods import Paragraph, describe_rows, describe_table
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

CURVES, GAINS = "learning_curves", "learning_gains"
SCANS, SCAN_GAINS = "identification_curves", "identification_gains"
MOST_PAIRS = 3
UNKNOWN = -1.0
"""In place of minutes where no repetition time is known: the cell is of whole scans."""
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
    drawn = [] if curves is None else [(each, own_rows(curves, each)) for each in targets_of(curves)[:MOST_TARGETS]]
    for target, own in drawn:
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
    verdicts = tuple(said)
    facts = tables.facts(CURVES) or tables.facts(SCANS)
    said += [str(facts[key]) for key in ("LeftOut",) if key in facts]
    said += [str(note) for note in facts.get("Notes", [])]
    return [Section("curves", "More people, longer scans", tuple(said), tuple(panels), tuple(_grids(tables)), verdicts)]


class _Curves:
    """Curves of one target, or of identification."""

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
                curves = {}
                for name, part in kept.groupby("representation", sort=False):
                    cells = part.groupby(column)[self.score].agg(["mean", "std"]).reset_index()
                    curves[tables.title(str(name))] = cells.to_numpy(dtype=float)
                drawn.append((title, horizontal, curves))
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

    def _gain_panel(self, gains: pd.DataFrame, tables: GroupTables, source: str) -> Iterator[Panel]:
        gains = gains.fillna({"minutes": UNKNOWN})
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
        lengths = ["whole scan" if one == UNKNOWN else f"{one:.3g}" for one in minutes]
        yield Panel(
            f"{self.name}: gain in {self.label}",
            f"Blue is a gain, red a loss; * differs from 0 by {test} (p < 0.05; cells are not corrected for each "
            f"other). {'Grey: not known. ' if unknown else ''}{'. '.join(said)}.",
            draw_gains(matrices, lengths, [f"{one:.0f}" for one in people]),
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


SWEEP, SWEEP_GAINS, PAIRS = "parcellation_sweep", "parcellation_gains", "parcellation_comparisons"
SHARED = "shared"


def sweep_section(tables: GroupTables) -> list[Section]:
    """Scores of every parcellation, FC^alpha against FC under each, and the parcellations against each other."""
    sweep, gains = tables.frame(SWEEP), tables.frame(SWEEP_GAINS)
    if sweep is None or gains is None:
        return []
    power, plain = tables.title("fc_power"), tables.title("fc")
    shared = gains[(gains["people"] == SHARED) & (gains["representation"] == "fc_power") & (gains["reference"] == "fc")]
    verdicts = tuple(_sentence(target, own_rows(shared, target), power, plain) for target in targets_of(shared))
    said = [*verdicts, *_atlas_sentences(tables)]
    atlases = {name: short_name(name) for name in dict.fromkeys(sweep["atlas"].astype(str))}
    text = (
        f"{power} minus {plain} under each parcellation, with the 95 % interval of the corrected resampled t-test. "
        "Triangles: p < 0.05 within the parcellation (not corrected for the number of parcellations); open circles: "
        "not distinguishable."
    )
    panels = [
        *_score_panels(sweep[sweep["people"] == SHARED], atlases, tables),
        *difference_panels(shared, atlases, "Gain by parcellation", text, tables.links(SWEEP_GAINS), key="atlas"),
    ]
    grids = (_score_grid(sweep, tables), _gain_grid(gains, tables), *_pair_grid(tables))
    return [Section("sweep", "Parcellations", tuple(said), tuple(panels), grids, verdicts)]


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
            Column("target", "", "text", "Target"),
            Column("atlas", "", "text", "Parcellation"),
            Column("people", "", "text", "People"),
            Column("n_parcels", "", "number", "Parcels", 0),
            Column("n_people", "", "number", "Number of people", 0),
            Column("representation", "", "text", "Representation"),
            Column("r_mean", "", "number", "Mean r of folds"),
            Column("r_std", "", "number", "SD"),
            Column("auc_mean", "", "number", "Mean AUC of folds"),
            Column("auc_std", "", "number", "SD"),
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
            *SWEEP_GAINS_TABLE.shown("target", "atlas", "people", "representation", "reference"),
            *DIFFERENCE_CELLS,
            *SWEEP_GAINS_TABLE.shown("folds_won", "n_distinct"),
        ),
        "Representations under each parcellation",
        "",
        tables.links(SWEEP_GAINS),
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


CURVES_PART = Part(curves_section, "curves", "More people, longer scans", place=120, quoted=True)
SWEEP_PART = Part(sweep_section, "sweep", "Parcellations", place=130, quoted=True)


def _describe_sweep(tables: GroupTables, table: str) -> dict[str, Any]:
    rows = tables.rows(table)
    return describe_rows(rows[rows["people"] == "shared"], table, tables)


HERE = Path(__file__).parent
METHODS_LEARNING = Paragraph("learning_curves", "learning_curves", HERE / "methods_learning.md", describe_table)
METHODS_IDENTIFICATION = Paragraph(
    "learning_curves", "identification_curves", HERE / "methods_identification_curves.md", describe_table
)
METHODS_SWEEP = Paragraph("parcellation_sweep", "parcellation_sweep", HERE / "methods_sweep.md", _describe_sweep)
