"""Findings of the check before the first model, and scores without the people that it names."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from fcpower_bids.check.findings import CHECK
from fcpower_bids.check.pairs import CHECK_PAIRS
from fcpower_bids.reports.cohort.tables import (
    GroupTables,
    Part,
    Section,
    count,
    make_grid,
)

NOTE, SAME = "note", "same scan"
FEWEST = 10
"""With fewer people left, no score without the pairs is given."""


def check_section(tables: GroupTables) -> list[Section]:
    """The findings with consequence and remedy, the suspicious pairs, and the scores without them."""
    if not tables.has("check"):
        return []
    found, pairs = tables.rows("check"), tables.rows("check_pairs")
    if found.empty:
        return [Section("check", "Check before the first model", (NOTHING,))]
    serious = int((found["level"] != NOTE).sum())
    said = f"{count(serious, 'thing')} to look at, {count(len(found) - serious, 'note')}." if serious else NOTHING
    grids = [
        make_grid(
            found,
            CHECK.shown("level", "finding", "consequence", "remedy"),
            sources=tables.links("check"),
        )
    ]
    if len(pairs):
        grids.append(
            make_grid(
                pairs,
                CHECK_PAIRS.columns.values(),
                "Scans that are too much alike for their names",
                "",
                tables.links("check_pairs"),
                {"participant_id": tables.person, "other": tables.person},
            )
        )
    return [Section("check", "Check before the first model", (said, *without_pairs(tables)), (), tuple(grids))]


NOTHING = "Nothing was found that would mislead."


def without_pairs(tables: GroupTables) -> Iterator[str]:
    """Say for every target what the score is when people who seem to share a scan are not counted."""
    pairs, predictions = tables.rows("check_pairs"), tables.predicted()
    if pairs.empty or predictions.empty:
        return
    same = pairs[pairs["verdict"] == SAME]
    alike = set(same["participant_id"]) | set(same["other"])
    if not alike:
        return
    for (target, representation), part in predictions.groupby(["target", "representation"], sort=False):
        rest = part[~part["participant_id"].isin(alike)]
        if rest["participant_id"].nunique() >= FEWEST:
            yield (
                f"{target} from {tables.title(str(representation))}: r {pooled_r(part):.2f} with everyone, "
                f"{pooled_r(rest):.2f} over the {count(rest['participant_id'].nunique(), 'person', 'people')} who "
                "share no scan."
            )


def pooled_r(predictions: pd.DataFrame) -> float:
    """Correlation of observed and predicted over everyone, mean over repeats; of their means if these are all."""
    repeats = [part for _, part in predictions.groupby("repeat")] if "repeat" in predictions else [predictions]
    return float(np.mean([part["observed"].corr(part["predicted"]) for part in repeats]))


PART = Part(check_section, "check", "Check before the first model", place=10)
