"""Predictions within sites."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from fcpower_bids.analyses.sites import HANDLINGS, HARMONISATION, PREDICTION_SITES, RANDOM, SITE, WITHIN
from fcpower_bids.reports.cohort.comparisons import score_label
from fcpower_bids.reports.cohort.findings import find_targets
from fcpower_bids.reports.cohort.methods import Paragraph, describe_table
from fcpower_bids.reports.cohort.tables import Cell, GroupTables, Part, Section, count, make_grid, missing

MOST_SAID = 4
"""Targets that have a sentence, on their best representation; the table has all."""
Sentence = tuple[float, str]
"""Excess of the score of all together over that within sites, and its sentence."""


def sites_section(tables: GroupTables) -> list[Section]:
    """Scores per site, within sites, and over sites."""
    said: list[str] = []
    grids = []
    found, compared = tables.rows("prediction_sites"), tables.rows("harmonisation")
    best = {each.target: str(each.summary["representation"].iloc[0]) for each in find_targets(tables)}
    if not found.empty:
        said += worst_first(describe_sites(of_best(found, best), tables))
        grids.append(
            make_grid(
                tables.titled(found),
                PREDICTION_SITES.columns.values(),
                "Site by site",
                "A bias that differs between sites is what a new site would meet.",
                tables.links("prediction_sites"),
                {"score": lambda score: Cell("AUC" if score == "auc" else str(score))},
            )
        )
    if not compared.empty:
        said += worst_first(describe_handlings(of_best(compared, best), tables))
        grids.append(
            make_grid(
                tables.titled(compared),
                HARMONISATION.columns.values(),
                "Handling of sites",
                "Where all predictions together score far above those within sites, the site itself is predicted.",
                tables.links("harmonisation"),
            )
        )
    return [Section("sites", "Sites", tuple(said), (), tuple(grids))] if grids else []


def of_best(rows: pd.DataFrame, best: Mapping[str, str]) -> pd.DataFrame:
    """Rows of the best representation of each target; all of a target whose best is not known or not there."""
    own = rows["target"].astype(str).map(best)
    there = (rows["representation"] == own).groupby(rows["target"]).transform("any")
    return rows[~there | (rows["representation"] == own)]


def worst_first(found: Iterable[Sentence]) -> list[str]:
    """All sentences where they are few; else those with the largest differences, and how many others there are."""
    found = list(found)
    if len(found) <= MOST_SAID:
        return [text for _, text in found]
    known = [(-np.inf if missing(above) else above, text) for above, text in found]
    worst = sorted(known, key=lambda one: one[0], reverse=True)[:MOST_SAID]
    rest = (
        f"{len(found) - MOST_SAID} more targets are in the table; the best of none scores further above what it scores "
        "within sites."
    )
    return [*(text for _, text in worst), rest]


def describe_handlings(compared: pd.DataFrame, tables: GroupTables) -> Iterator[Sentence]:
    """One sentence for every target and representation: all predictions together, and within sites."""
    for (target, name), part in compared.groupby(["target", "representation"], sort=False):
        scored = part.dropna(subset=["pooled"])
        label = score_label(part["score"].iloc[0])
        each = [
            f"{HANDLINGS[str(row['sites'])]} {row['pooled']:.2f}"
            + ("" if missing(row["within"]) else f" (within {row['within']:.2f})")
            for _, row in scored.iterrows()
        ]
        text = f"{target} from {tables.title(str(name))}, {label} with sites {', '.join(each)}."
        yield float((scored["pooled"] - scored["within"]).max()), text


def describe_sites(found: pd.DataFrame, tables: GroupTables) -> Iterator[Sentence]:
    """One sentence for every target and representation."""
    for (target, name), part in found.groupby(["target", "representation"], sort=False):
        score = str(part["score"].iloc[0])
        within = float(part.loc[part["over"] == WITHIN, "value"].iloc[0])
        label = score_label(score)
        pooled_score = _pooled(str(target), str(name), score, tables)
        together = "" if missing(pooled_score) else f", all together {pooled_score:.2f}"
        each = part.loc[part["over"] == SITE, "value"]
        n, scored = count(len(each), "site"), int(each.notna().sum())
        if missing(within):
            text = f"{target} from {tables.title(str(name))}: no site of {n} has enough people for a score of its own."
        else:
            interval, random = "", part[part["over"] == RANDOM]
            if not (random.empty or missing(random["value"].iloc[0])):
                one = random.iloc[0]
                interval = f"95 % CI {one['ci_low']:.2f} to {one['ci_high']:.2f}"
                interval = f"; over sites that may differ {one['value']:.2f}, {interval}"
            text = (
                f"{target} from {tables.title(str(name))}: within sites {label} {within:.2f} "
                f"({n if scored == len(each) else f'{scored} of {n}'}){together}"
                f"{interval}."
            )
        yield pooled_score - within, text


def _pooled(target: str, representation: str, score: str, tables: GroupTables) -> float:
    """Score of all predictions together; NaN where its table is not there, or damaged."""
    summary = tables.frame("prediction_summary")
    if summary is None:
        return np.nan
    own = summary[(summary["target"].astype(str) == target) & (summary["representation"] == representation)]
    return float(own[f"{score}_pooled_mean"].iloc[0]) if len(own) else np.nan


PART = Part(sites_section, "sites", "Sites", place=60, quoted=True)
METHODS = Paragraph("harmonisation", "harmonisation", Path(__file__).with_name("methods_sites.md"), describe_table)
