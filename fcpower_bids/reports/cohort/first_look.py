"""The first look: figures of prediction and identification, and the table of targets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pandas as pd

from fcpower_bids.analyses.sites import WITHIN
from fcpower_bids.reports.cohort.findings import (
    FOUND,
    NOT_DECIDED,
    NOT_FOUND,
    NOT_TESTED,
    ONLY_SEEN,
    POOLED_MEAN,
    Finding,
    seen_rows,
    small_folds,
)
from fcpower_bids.reports.cohort.prediction import identification_rows
from fcpower_bids.reports.cohort.tables import Cell, Grid, GroupTables, missing, own_rows, percent, say_p
from fcpower_bids.reports.kit.charts import GREY, ROW_HEIGHT, ROW_WIDTH, draw_row_bars, reaching, rows_with_names, style
from fcpower_bids.reports.kit.page import Panel, show_number

MOST_ROWS = 12
SPREAD = 0.42
"""Half of a row, which its representations share."""
SCORES = (
    "One mark per representation; the dashed line is guessing.",
    "A score in the shaded range of its representation could have come by chance.",
    "The cross is the score of columns that are known without a scan.",
)
RECOGNISED = (
    "Scans whose most similar scan of another session is of the same person, with their interval; dashed: guessing.",
    "The diamond and the second dashed line are among people of the own site.",
)
VERDICTS = {
    FOUND: "predicted",
    NOT_FOUND: "nothing found",
    NOT_DECIDED: "not decided: too few permutations",
    NOT_TESTED: "not tested against chance",
    ONLY_SEEN: "no score: encoders trained on these people",
}
BESIDE_SITE = {FOUND: "more than the site", NOT_FOUND: "nothing beyond the site"}


def first_figures(findings: Sequence[Finding], tables: GroupTables) -> tuple[Panel, ...]:
    """Return the figures of prediction, one per kind of score, and of identification."""
    kinds = dict.fromkeys(finding.label for finding in findings)
    of_kinds = [[one for one in findings if one.label == kind and len(one.summary)][:MOST_ROWS] for kind in kinds]
    return (*(_scores(some, tables) for some in of_kinds if some), *_identification(tables))


def _styles(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Colour and marker of each representation, whatever the order in which they are drawn."""
    return {name: style(number) for number, name in enumerate(sorted(names))}


def _scores(findings: Sequence[Finding], tables: GroupTables) -> Panel:
    first = findings[0]
    names = sorted({str(name) for finding in findings for name in finding.summary["representation"]})

    def by_name(column: str) -> pd.DataFrame:
        """Values of a column of the summaries by target and representation; NaN where there is none."""
        rows = [
            finding.summary.set_index("representation")[column.format(finding.score)].reindex(names).to_numpy(float)
            for finding in findings
        ]
        return pd.DataFrame(rows, columns=names)

    # what the permutations are about
    scores = by_name(first.leading if first.is_within else f"{{}}_{POOLED_MEAN}")
    order = scores.mean().sort_values(ascending=False, kind="stable").index
    titles = [tables.title(name) for name in order]
    values, needed = scores[order].to_numpy(), by_name("score_needed")[order].to_numpy()
    without = np.array([np.nan if finding.added is None else finding.added.alone for finding in findings])
    looks = [_styles(names)[name] for name in order]
    scale = reaching(values, without, needed, first.chance)
    key = dict(zip(titles, looks, strict=True))
    sheet, (chart,) = rows_with_names([one.target for one in findings], {"": scale}, ROW_WIDTH, ROW_HEIGHT, key)
    rows, places = -np.arange(len(findings), dtype=float), np.linspace(SPREAD, -SPREAD, 2 * len(titles) + 1)[1::2]
    for lane, place in enumerate(places):
        for row, end in zip(rows, needed[:, lane], strict=True):
            chart.shade(row + place, end, half=0.8 * SPREAD / len(titles))
    chart.upright(first.chance, GREY, 0.9, "4 2")
    for lane, (place, (colour, marker)) in enumerate(zip(places, looks, strict=True)):
        for row, finding in enumerate(findings):
            by_chance = f", by chance up to {needed[row, lane]:.3f}" if np.isfinite(needed[row, lane]) else ""
            entry = f"{finding.target}, {titles[lane]}: {values[row, lane]:.3f}{by_chance}"
            chart.answer(rows[row] + place, entry, SPREAD / len(titles))
        chart.marks(values[:, lane], rows + place, colour, 30, marker)
    chart.marks(without, rows, "#000", 26, "X")
    label = f"{first.label} {'within sites' if first.is_within else 'of all predictions together'}"
    chart.frame_below(label, most=6)
    there = [True, *(bool(np.isfinite(one).any()) for one in (needed, without))]
    said = []
    for finding, row in zip(findings, values, strict=True):
        each = (f"{title} {show_number(value)}" for title, value in zip(titles, row, strict=True))
        said.append(f"{finding.target}: {', '.join(each)}")
    return Panel(
        f"Prediction ({first.label})",
        " ".join(sentence for sentence, shown in zip(SCORES, there, strict=True) if shown),
        sheet.svg(),
        f"{label}, by target. {'; '.join(said)}.",
        sources=tables.links("prediction_summary", "prediction_baselines"),
    )


def _identification(tables: GroupTables) -> Iterator[Panel]:
    rows = identification_rows(tables, unseen=True)
    if rows.empty:
        return
    looks = _styles(map(str, rows["representation"]))
    titles = [tables.title(name) for name in rows["representation"]]
    accuracy, low, high, chance, within, chance_within = (
        rows[name].to_numpy(dtype=float)
        for name in ("accuracy", "ci_low", "ci_high", "chance", "accuracy_within", "chance_within")
    )
    said = ", ".join(f"{title} {percent(share)}" for title, share in zip(titles, accuracy, strict=True))
    svg = draw_row_bars(
        titles,
        accuracy,
        "share of scans recognised",
        (low, high),
        (chance, chance_within),
        within,
        [looks[str(name)][0] for name in rows["representation"]],
    )
    text = " ".join(RECOGNISED[: 2 if np.isfinite(within).any() else 1])
    sources = tables.links("identification")
    yield Panel("Identification", text, svg, f"Share of scans recognised: {said}.", sources=sources)


def targets_by_representation(findings: Sequence[Finding], tables: GroupTables) -> Grid | None:
    """Return the table, a row per target; None where nothing was predicted."""
    summary, sites = tables.rows("prediction_summary"), tables.rows("prediction_sites")
    if summary.empty or not findings:
        return None
    names = [str(name) for name in summary["representation"].unique()]
    rows = [_row(finding, own_rows(summary, finding.target), names) for finding in findings]
    header = ["Target", "Score", *map(tables.title, names), "Verdict"]
    text = (
        f"{_what_leads(findings, tables)}; the best representation of a target is bold. The p of the verdict is "
        "corrected for the number of representations and targets."
    )
    # columns to read the scores with
    columns = [("Without a scan", "the best of the site, and of all that is known together")]
    values = [[np.nan if finding.added is None else finding.added.alone for finding in findings]]
    if len(sites) and any(not finding.is_pooled for finding in findings):
        columns.append(("All predictions", "the best representation's score of all predictions together"))
        values.append([finding.pooled(finding.best) for finding in findings])
    if len(sites):
        columns.append(("Within sites", "its score among people of one site"))
        within = sites[sites["over"] == WITHIN].drop_duplicates(["target", "representation"])
        known = within.set_index(["target", "representation"])["value"]
        values.append([float(known.get((finding.target, finding.best), np.nan)) for finding in findings])
    for (title, said), column in zip(columns, values, strict=True):
        if any(not missing(value) for value in column):
            header.append(title)
            rows = [(*row, _score_cell(value)) for row, value in zip(rows, column, strict=True)]
            text += f" {title}: {said}."
    return Grid("", text, tuple(header), tuple(rows), tables.links("prediction_summary", "prediction_baselines"))


def _what_leads(findings: Sequence[Finding], tables: GroupTables) -> str:
    if any(finding.is_within for finding in findings):
        return "Score within sites, which are held out"
    pooled = [finding.is_pooled for finding in findings]
    if not any(pooled):
        return "Mean over the folds"
    why = f"since a mean over folds of {small_folds(findings, tables)} is mostly noise"
    if all(pooled):
        return f"Score of all predictions together, {why}"
    return f"Mean over the folds, or where it says 'all predictions' the score of them together, {why}"


def _row(finding: Finding, own: pd.DataFrame, names: Sequence[str]) -> tuple[Cell, ...]:
    scores = dict(zip(own["representation"].astype(str), own[finding.leading], strict=True))
    seen = set(own["representation"].astype(str)[seen_rows(own)])
    best = "" if finding.state == ONLY_SEEN else finding.best
    verdict = BESIDE_SITE.get(finding.state, VERDICTS[finding.state]) if finding.site else VERDICTS[finding.state]
    if finding.state == FOUND and finding.added is not None and not missing(finding.added.p):
        verdict = "predicted" if finding.added.adds else "predicted; nothing beyond what is known"
    cells = [
        Cell("trained on them", "n/a") if name in seen else _score_cell(scores.get(name), name == best)
        for name in names
    ]
    p = "" if missing(finding.p) else f" ({say_p(finding.p)})"
    label = f"{finding.label}, all predictions" if finding.is_pooled else finding.label
    return (Cell(finding.target), Cell(label), *cells, Cell(verdict + p))


def _score_cell(score: float | None, best: bool = False) -> Cell:
    return Cell(show_number(score), "n/a" if missing(score) else float(score or 0), best=best)
