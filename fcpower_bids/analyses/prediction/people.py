"""The tables with a row per person: who was predicted how, and who was in which fold; made block by block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.analyses.engine.columns import FOLD, KEY_COLUMNS, PERSON, PERSON_COLUMNS
from fcpower_bids.analyses.engine.entries import Entries
from fcpower_bids.analyses.engine.study import Study
from fcpower_bids.analyses.pretraining_overlap import MARK, mark_rows
from fcpower_bids.core.regression.folds import folds_table
from fcpower_bids.records import Blocks, Table
from fcpower_bids.schema import Column, TableSpec, join_columns, pick_columns

MOST_ROWS = 2_000_000
"""With more rows `predictions` has its means over repeats in its place, unless it is asked for."""
AUTO, REPEAT = "auto", "repeat"

PREDICTIONS = TableSpec(
    "predictions",
    "Out-of-fold prediction of every person.",
    join_columns(PERSON_COLUMNS, MARK),
    ("participant_id", *FOLD),
)
PREDICTION_MEANS = TableSpec(
    "prediction_means",
    f"Out-of-fold prediction of every person, mean over repeats: in the place of `predictions` where that would have "
    f"more than {MOST_ROWS:,} rows (`--predictions-per`).",
    join_columns(
        PERSON,
        pick_columns(KEY_COLUMNS, ("target", "representation")),
        Column.number("n_repeats", "Repeats in which the person was tested", digits=0),
        Column.number("observed", "Target as the folds define it, mean over repeats"),
        Column.number("predicted", "Prediction by models that have seen neither person nor family, mean over repeats"),
        Column.number("predicted_sd", "Standard deviation of the predictions over repeats; n/a for a single one"),
        MARK,
    ),
    ("participant_id", "target", "representation"),
)
FOLDS = TableSpec(
    "folds",
    "Who was where, so that any tool can use the same splits.",
    join_columns(
        pick_columns(KEY_COLUMNS, ("repeat", "fold")),
        Column.text("repeat_label", "Repetition as the file of `--folds-file` calls it", optional=True),
        Column.text("fold_label", "Fold as that file calls it", optional=True),
        PERSON,
        Column.text("role", "test, train, or excluded (a relative of a test person at another site)"),
        Column.number("inner_fold", "Inner fold in which a training person validates, from 0; -1 for others"),
    ),
    ("repeat", "fold", "participant_id"),
)


def tabulate_people(entries: Entries, facts: Mapping[str, Any]) -> dict[str, Table]:
    """Return ``predictions``, or ``prediction_means`` where it has too many rows."""
    study, choice = entries.study, entries.study.settings.predictions_per
    tested = sum(fold.test.size for fold in study.folds)
    n_rows = tested * len(study.targets) * len(entries.results)
    if choice == REPEAT or (choice == AUTO and n_rows <= MOST_ROWS):
        return {PREDICTIONS.name: Table(Blocks(partial(_predictions, entries), n_rows), PREDICTIONS, facts)}
    people = np.unique(np.concatenate([fold.test for fold in study.folds])).size
    blocks = Blocks(partial(_means, entries), people * len(study.targets) * len(entries.results))
    return {PREDICTION_MEANS.name: Table(blocks, PREDICTION_MEANS, facts)}


def _predictions(entries: Entries) -> Iterator[pd.DataFrame]:
    for block in entries.people():
        yield block.assign(**{MARK.key: mark_rows(entries.study.cohort, block)})


def _means(entries: Entries) -> Iterator[pd.DataFrame]:
    for block in entries.people():
        means = mean_over_repeats(block)
        yield means.assign(**{MARK.key: mark_rows(entries.study.cohort, means)})


def mean_over_repeats(block: pd.DataFrame) -> pd.DataFrame:
    """Average the repeats of one target and representation, person by person, in the order of their names."""
    by_person = block.groupby("participant_id", sort=True)
    frame = by_person.agg(
        n_repeats=("predicted", "size"),
        observed=("observed", "mean"),
        predicted=("predicted", "mean"),
        predicted_sd=("predicted", "std"),
    ).reset_index()
    frame.insert(1, "target", block["target"].iloc[0])
    frame.insert(2, "representation", block["representation"].iloc[0])
    return frame


def tabulate_folds(study: Study, facts: Mapping[str, Any]) -> Table:
    """Return ``folds``, made fold by fold."""
    names, labels = np.array(study.people.names, dtype=object), study.protocol.labels
    named = any(tuple(map(str, numbers)) != label for numbers, label in labels.items())

    def each() -> Iterator[pd.DataFrame]:
        for fold in study.folds:
            frame = pd.DataFrame(folds_table([fold], len(names)))
            frame["participant_id"] = names[frame.pop("row").to_numpy()]
            if named:
                frame["repeat_label"], frame["fold_label"] = labels[fold.repeat, fold.fold]
            yield frame[[key for key in FOLDS.columns if key in frame]]

    return Table(Blocks(each, len(names) * len(study.folds)), FOLDS, facts)
