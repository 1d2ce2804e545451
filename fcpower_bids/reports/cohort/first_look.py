"""The first look: figures of prediction and identification, and the table of targets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pandas as pd

from fcpower_bids.analyses.sites import RANDOM, WITHIN
from fcpower_bids.reports.cohort.findings import (
    FOUND,
    NOT_DECIDED,
    NOT_FOUND,
    NOT_TESTED,
    ONLY_SEEN,
    POOLED_MEAN,
    Finding,
    small_folds,
)
from fcpower_bids.reports.cohort.pretraining_overlap import seen_rows
from fcpower_bids.reports.cohort.sections.identification import identification_rows
from fcpower_bids.reports.cohort.tables import Cell, Grid, GroupTables, missing, percent, say_p
from fcpower_bids.reports.kit.charts import GREY, draw_row_bars, reaching, row_sheet, style
from fcpower_bids.reports.kit.page import show_number
from fcpower_bids.reports.kit.panel import Panel

MOST_ROWS = 12
SPREAD = 0.42
"""Half of a row, which its representations share."""
COLUMNS = ("accuracy", "ci_low", "ci_high", "chance", "accuracy_within", "chance_within")
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
SEEN = "trained on them"
OVER_SITES = (
    (WITHIN, "Within sites", "its score among people of one site"),
    (RANDOM, "Across sites", "the mean of r over sites that may truly differ"),
)


def first_figures(findings: Sequence[Finding], tables: GroupTables) -> tuple[Panel, ...]:
    """Return the figures of prediction, one per kind of score, and of identification."""
    kinds = dict.fromkeys(finding.label for finding in findings)
    of_kinds = [[one for one in findings if one.label == kind and len(one.summary)][:MOST_ROWS] for kind in kinds]
    return (*(_scores(some, tables) for some in of_kinds if some), *_identification(tables))


def _tested(finding: Finding) -> str:
    """Column of the score that the permutations are about: of all predictions, or within sites."""
    return finding.leading if finding.is_within else f"{finding.score}_{POOLED_MEAN}"


def _column(finding: Finding, column: str, names: Iterable[str]) -> np.ndarray:
    """Values of a column of the summary by representation; NaN where it has none."""
    return finding.summary.set_index("representation")[column].reindex(list(names)).to_numpy(dtype=float)


def _scores(findings: Sequence[Finding], tables: GroupTables) -> Panel:
    first = findings[0]
    names = sorted({str(name) for one in findings for name in one.summary["representation"]})
    mean = pd.DataFrame([_column(one, _tested(one), names) for one in findings], columns=names).mean()
    titles = {name: tables.title(name) for name in mean.sort_values(ascending=False, kind="stable").index}
    without = np.array([np.nan if one.added is None else one.added.alone for one in findings])
    values = np.array([_column(one, _tested(one), titles) for one in findings])
    needed = np.array([_column(one, "score_needed", titles) for one in findings])
    reach = reaching(values, without, needed, first.chance)
    styles = _styles(titles)
    entries = {titles[name]: styles[name] for name in titles}
    sheet, chart = row_sheet([one.target for one in findings], entries, reach)
    rows, places = -np.arange(len(findings), dtype=float), np.linspace(SPREAD, -SPREAD, 2 * len(titles) + 1)[1::2]
    for lane, place in enumerate(places):
        for row, end in zip(rows, needed[:, lane], strict=True):
            chart.shade(row + place, end, half=0.8 * SPREAD / len(titles))
    chart.upright(first.chance, GREY, 0.9, "4 2")
    for (lane, place), name in zip(enumerate(places), titles, strict=True):
        colour, marker = styles[name]
        for row, one in enumerate(findings):
            by_chance = f", by chance up to {needed[row, lane]:.3f}" if np.isfinite(needed[row, lane]) else ""
            entry = f"{one.target}, {list(titles.values())[lane]}"
            chart.answer(rows[row] + place, f"{entry}: {values[row, lane]:.3f}{by_chance}", SPREAD / len(titles))
        chart.marks(values[:, lane], rows + place, colour, 30, marker)
    chart.marks(without, rows, "#000", 26, "X")
    among = "within sites" if first.is_within else "of all predictions together"
    chart.frame_below(f"{first.label} {among}", most=6)
    there = [True, *(bool(np.isfinite(one).any()) for one in (needed, without))]
    said = [f"{one.target}: {_listed(titles.values(), row)}" for one, row in zip(findings, values, strict=True)]
    return Panel(
        f"Prediction ({first.label})",
        " ".join(sentence for sentence, shown in zip(SCORES, there, strict=True) if shown),
        sheet.svg(),
        f"{first.label} {among}, by target. {'; '.join(said)}.",
        sources=tables.links("prediction_summary", "prediction_baselines"),
    )


def _styles(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Colour and marker of each representation, whatever the order in which they are drawn."""
    return {name: style(number) for number, name in enumerate(sorted(names))}


def _listed(titles: Iterable[str], values: np.ndarray) -> str:
    return ", ".join(f"{title} {show_number(value)}" for title, value in zip(titles, values, strict=True))


def _identification(tables: GroupTables) -> Iterator[Panel]:
    rows = identification_rows(tables)
    rows = rows[~seen_rows(rows)] if len(rows) else rows
    if rows.empty:
        return
    names = [str(name) for name in rows["representation"]]
    titles = [tables.title(name) for name in names]
    number = {name: rows[name].to_numpy(dtype=float) for name in COLUMNS}
    said = ", ".join(f"{title} {percent(share)}" for title, share in zip(titles, number["accuracy"], strict=True))
    sites = np.isfinite(number["accuracy_within"]).any()
    yield Panel(
        "Identification",
        " ".join(RECOGNISED[: 2 if sites else 1]),
        draw_row_bars(
            titles,
            number["accuracy"],
            "share of scans recognised",
            (number["ci_low"], number["ci_high"]),
            (number["chance"], number["chance_within"]),
            number["accuracy_within"],
            [colour for colour, _ in map(_styles(names).__getitem__, names)],
        ),
        f"Share of scans recognised: {said}.",
        sources=tables.links("identification"),
    )


def targets_by_representation(findings: Sequence[Finding], tables: GroupTables) -> Grid | None:
    """Return the table, a row per target; None where nothing was predicted."""
    summary = tables.frame("prediction_summary")
    if summary is None or not findings:
        return None
    names = [str(name) for name in summary["representation"].unique()]
    rows = [_row(finding, summary[summary["target"].astype(str) == finding.target], names) for finding in findings]
    header = ["Target", "Score", *map(tables.title, names), "Verdict"]
    text = (
        f"{_what_leads(findings, tables)}; the best representation of a target is bold. The p of the verdict is "
        "corrected for the number of representations and targets."
    )
    for title, said, values in _references(findings, tables):
        if any(not missing(value) for value in values):
            header.append(title)
            rows = [
                (*row, Cell(show_number(value), _sorted_by(value))) for row, value in zip(rows, values, strict=True)
            ]
            text += f" {said}"
    return Grid("", text, tuple(header), tuple(rows), tables.links("prediction_summary", "prediction_baselines"))


def _references(findings: Sequence[Finding], tables: GroupTables) -> Iterator[tuple[str, str, list[float]]]:
    """Columns to read the scores with: title, sentence, value of each target."""
    values = [float("nan") if finding.added is None else finding.added.alone for finding in findings]
    yield (
        "Without a scan",
        "Without a scan: the best of the site, and of all that is known together.",
        values,
    )
    sites = tables.rows("prediction_sites")
    if sites.empty:
        return
    if any(not finding.is_pooled for finding in findings):
        pooled = [finding.pooled(str(finding.summary["representation"].iloc[0])) for finding in findings]
        yield "All predictions", "All predictions: the best representation's score of all predictions together.", pooled
    for over, title, said in OVER_SITES:
        yield title, f"{title}: {said}.", [_over_sites(finding, sites, over) for finding in findings]


def _over_sites(finding: Finding, sites: pd.DataFrame, over: str) -> float:
    best = str(finding.summary["representation"].iloc[0])
    own = (sites["target"].astype(str) == finding.target) & (sites["representation"] == best)
    rows = sites.loc[own & (sites["over"] == over), "value"]
    return float(rows.iloc[0]) if len(rows) else float("nan")


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
    best = "" if finding.state == ONLY_SEEN else str(finding.summary["representation"].iloc[0])
    verdict = BESIDE_SITE.get(finding.state, VERDICTS[finding.state]) if finding.site else VERDICTS[finding.state]
    if finding.state == FOUND and finding.added is not None and finding.added.p == finding.added.p:
        verdict = "predicted" if finding.added.adds else "predicted; nothing beyond what is known"
    cells = [
        Cell(SEEN, "n/a")
        if name in seen
        else Cell(show_number(scores.get(name)), _sorted_by(scores.get(name)), best=name == best)
        for name in names
    ]
    p = f" ({say_p(finding.p)})" if finding.p == finding.p else ""
    label = f"{finding.label}, all predictions" if finding.is_pooled else finding.label
    return (Cell(finding.target), Cell(label), *cells, Cell(verdict + p))


def _sorted_by(score: float | None) -> float | str:
    return "n/a" if missing(score) or score is None else float(score)
