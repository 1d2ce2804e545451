"""The first table of the page: targets against representations, a score and a verdict each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from fcpower_bids.analyses.prediction.sites import RANDOM, WITHIN
from fcpower_bids.reports.cohort.findings import (
    FOUND,
    NOT_DECIDED,
    NOT_FOUND,
    NOT_TESTED,
    ONLY_SEEN,
    Finding,
    added_by,
    small_folds,
)
from fcpower_bids.reports.cohort.pretraining_overlap import seen_rows
from fcpower_bids.reports.cohort.tables import Cell, Grid, GroupTables, missing, say_p
from fcpower_bids.reports.kit.page import show_number

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
    known = [added_by(finding, tables) for finding in findings]
    values = [float("nan") if rows is None else float(rows[0]["value"]) for rows in known]
    yield "Without a scan", "Without a scan: the score of covariates, age, sex, motion, minutes and site alone.", values
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
