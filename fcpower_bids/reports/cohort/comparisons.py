"""Differences of a table in honest words, in pictures of three targets each, and as cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.reports.cohort.comparison_figures import draw_differences
from fcpower_bids.reports.cohort.tables import (
    SIGNIFICANT,
    Grid,
    Sources,
    count,
    make_grid,
)
from fcpower_bids.reports.kit.panel import Panel
from fcpower_bids.schema import TABLES, Column

MOST_TARGETS = 6
"""Targets that are drawn; all are in the tables."""
BESIDE = 3
"""Targets side by side in one picture."""
HOW = (
    "Difference to {reference} on the same folds, with the 95 % interval of the corrected resampled t-test. Triangles "
    "up are better, triangles down worse (p < 0.05 after Holm's correction); open circles are not distinguishable "
    "from {reference}."
)

DIFFERENCE_CELLS = tuple(
    TABLES["comparisons"].columns[key] for key in ("mean_difference", "ci_low", "ci_high", "p_two_sided", "p_holm")
)
SCORE_CELLS = tuple(TABLES["transform_screen"].columns[key] for key in ("score", "fold_mean", "fold_sd", "pooled_mean"))


def targets_of(frame: pd.DataFrame) -> list[str]:
    """Targets in the order of the table."""
    return list(dict.fromkeys(frame["target"].astype(str)))


def own_rows(frame: pd.DataFrame, target: str) -> pd.DataFrame:
    """Rows of a target."""
    return frame[frame["target"].astype(str) == target]


def batches(targets: Sequence[str]) -> Iterator[list[str]]:
    """Targets that are drawn, some side by side."""
    left = iter(targets[:MOST_TARGETS])
    while batch := list(islice(left, BESIDE)):
        yield batch


def score_label(score: object) -> str:
    """A score as a sentence calls it."""
    return {"auc": "AUC", "accuracy": "accuracy"}.get(str(score), "r")


def labels_of(frame: pd.DataFrame) -> str:
    """How an axis calls the scores of some rows."""
    return " or ".join(dict.fromkeys(score_label(score) for score in frame["score"].dropna()))


def say_difference(row: Mapping[Any, Any] | pd.Series) -> str:
    """Say a difference with its interval and p."""
    words = f"difference in {score_label(row.get('score'))} {row['mean_difference']:+.3f}"
    if row["ci_low"] == row["ci_low"]:
        words += f", 95 % CI {row['ci_low']:+.3f} to {row['ci_high']:+.3f}"
    value = float(row["p_holm"])
    if value != value:
        return words
    return f"{words}, p {'< 0.001' if value < 0.001 else f'= {value:.3f}'} after Holm's correction"


def judge(row: Mapping[Any, Any], p: str = "p_holm") -> str:
    """Say in a word whether a difference is one."""
    if not row[p] < SIGNIFICANT or row["mean_difference"] == 0:
        return "not distinguishable"
    return "better" if row["mean_difference"] > 0 else "worse"


def sum_up(frame: pd.DataFrame, titles: Mapping[str, str], noun: str, reference: str) -> tuple[str, str]:
    """Say how many entries differ from the reference; and, apart, which lie furthest from it."""
    tested = frame.dropna(subset=["mean_difference"])
    tested = tested[tested["representation"] != tested["reference"]]
    if tested.empty:
        return f"no {noun} could be compared with {reference}.", ""
    words = [judge(row) for row in tested.to_dict("records")]
    better, worse = words.count("better"), words.count("worse")
    first, last = (
        tested.iloc[int(place)] for place in (tested["mean_difference"].argmax(), tested["mean_difference"].argmin())
    )
    tally = say_tally(better, worse, len(tested) - better - worse)
    extremes = (
        f"furthest above {reference}: {titles[str(first['representation'])]} ({say_difference(first)}); "
        f"furthest below: {titles[str(last['representation'])]} ({say_difference(last)})."
    )
    return f"of {count(len(tested), noun)} compared with {reference}, {tally}.", extremes


def say_all(target: str, frame: pd.DataFrame, titles: Mapping[str, str], noun: str, reference: str) -> Iterator[str]:
    """Sum up the rows of a target in one or two sentences."""
    tally, extremes = sum_up(frame, titles, noun, reference)
    yield f"{target}: {tally}"
    if extremes:
        yield f"{target}: {extremes}"


def say_tally(better: int, worse: int, same: int) -> str:
    """``none is better, 2 are worse, 11 are not distinguishable``."""
    parts = ((better, "better"), (worse, "worse"), (same, "not distinguishable"))
    said = [f"{number or 'none'} {'is' if number < 2 else 'are'} {word}" for number, word in parts]
    return ", ".join(said)


def difference_columns(
    frame: pd.DataFrame, keys: Sequence[str], targets: Sequence[str], key: str = "representation"
) -> dict[str, np.ndarray]:
    """Differences, limits and corrected p of the rows ``keys`` by target, shape (n, 4) each; NaN for none."""
    wanted = ["mean_difference", "ci_low", "ci_high", "p_holm"]
    found = {}
    for target in targets:
        own = own_rows(frame, target).drop_duplicates(key).set_index(key)[wanted]
        found[target] = own.reindex(list(keys)).to_numpy(dtype=float)
    return found


def difference_panels(
    frame: pd.DataFrame,
    titles: Mapping[str, str],
    heading: str,
    text: str,
    sources: Sources,
    key: str = "representation",
    cloud: pd.DataFrame | None = None,
) -> Iterator[Panel]:
    """Draw the differences of the entries of ``titles``, three targets a picture; ``cloud`` rows as dots."""
    for batch in batches(targets_of(frame)):
        labels = [f"difference in {labels_of(own_rows(frame, target))}" for target in batch]
        columns = difference_columns(frame, list(titles), batch, key)
        said = "; ".join(f"{target}: {_tally(values)}" for target, values in columns.items())
        dots = None
        if cloud is not None:
            dots = {one: own_rows(cloud, one)["mean_difference"].to_numpy(dtype=float) for one in batch}
        yield Panel(
            heading,
            text,
            draw_differences(list(titles.values()), columns, labels, SIGNIFICANT, dots),
            f"{heading}, {len(titles)} rows. {said}.",
            sources=sources,
            wide=True,
        )


def _tally(values: np.ndarray) -> str:
    clear = np.nan_to_num(values[:, 3], nan=1.0) < SIGNIFICANT
    better, worse = int((clear & (values[:, 0] > 0)).sum()), int((clear & (values[:, 0] < 0)).sum())
    return say_tally(better, worse, int(np.isfinite(values[:, 0]).sum()) - better - worse)


def refused_grid(frame: pd.DataFrame, titles: Mapping[str, str], heading: str, sources: Sources) -> Iterator[Grid]:
    """List the entries that are not available, each once, with the reason."""
    refused = frame[frame["status"] != "scored"].drop_duplicates("representation")
    if refused.empty:
        return
    shown = refused.assign(entry=refused["representation"].astype(str).map(titles))
    columns = (Column("entry", "", "text", heading), TABLES["transform_screen"].columns["reason"])
    yield make_grid(shown, columns, "Not possible here", "", sources)
