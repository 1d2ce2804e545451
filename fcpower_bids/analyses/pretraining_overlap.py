"""Whose embeddings are of an encoder that was trained on these very people: marks, and who is left without them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcpower_bids.analyses.features import EMBEDDING, encoder_of
from fcpower_bids.core.regression.scores import score_predictions
from fcpower_bids.encoders.training_people import HELD_OUT, NO, TRAINED, UNKNOWN
from fcpower_bids.records import Cohort
from fcpower_bids.schema import TABLES

ENOUGH = 10
"""Unseen people that a score of their own needs."""
NONE = "n/a"
"""The mark of what no encoder has made."""
ORDER = (TRAINED, HELD_OUT, UNKNOWN, NO)
"""A person with several scans is what the first of them says."""
EMBEDDED_PEOPLE = TABLES["embedded_people"]


def mark_people(cohort: Cohort, representation: str) -> dict[str, str]:
    """Whether the encoder of a representation has seen each person; nothing where it is of no encoder."""
    people = cohort.scans["participant_id"].astype(str).tolist()
    found: dict[str, str] = {}
    if label := encoder_of(representation):
        for person, state in zip(people, cohort.seen.get(label, (UNKNOWN,) * len(people)), strict=True):
            found[person] = min(found.get(person, state), state, key=ORDER.index)
    return found


def trained_people(cohort: Cohort, representations: Sequence[str]) -> set[str]:
    """People that an encoder of any of these was trained on."""
    marks = (mark_people(cohort, name) for name in representations)
    return {person for each in marks for person, state in each.items() if state == TRAINED}


def count_trained(cohort: Cohort, representation: str, people: set[str]) -> float:
    """How many of these people the encoder was trained on; NaN where there is none, or it does not say it."""
    states = [state for person, state in mark_people(cohort, representation).items() if person in people]
    return states.count(TRAINED) if states and UNKNOWN not in states else np.nan


def mark_rows(cohort: Cohort, frame: pd.DataFrame) -> pd.Series:
    """The mark of every row of a table of people and representations."""
    marks = {name: mark_people(cohort, str(name)) for name in frame["representation"].unique()}
    values = [
        marks[name].get(str(person), NONE)
        for name, person in zip(frame["representation"], frame["participant_id"], strict=True)
    ]
    return pd.Series(values, index=frame.index, dtype=object)


def tabulate_people(cohort: Cohort) -> pd.DataFrame:
    """Rows of ``embedded_people``."""
    rows = [
        (name, person, state)
        for name in (f"{EMBEDDING}:{label}" for label in cohort.embeddings)
        for person, state in sorted(mark_people(cohort, name).items())
    ]
    return pd.DataFrame(rows, columns=list(EMBEDDED_PEOPLE.columns))


def enough_unseen(cohort: Cohort, representations: Sequence[str], people: NDArray[Any]) -> NDArray[np.bool_]:
    """Rows of people that no encoder was trained on; none where no person was seen, or too few are left."""
    trained = trained_people(cohort, representations)
    unseen = ~np.isin(people, sorted(trained))
    if unseen.all() or len(set(people[unseen].tolist())) < ENOUGH:
        return np.zeros(len(people), dtype=bool)
    return unseen


def score_unseen(
    cohort: Cohort,
    names: Sequence[str],
    people: Iterable[str],
    predictions: Iterable[pd.DataFrame],
    classes: Collection[str],
) -> pd.DataFrame:
    """Rows of ``prediction_unseen`` from those of ``predictions``; ``classes`` are the targets of two."""
    rows = []
    trained = trained_people(cohort, names) & set(people)
    for part in predictions if trained else ():
        target, name = part[["target", "representation"]].iloc[0]
        score = "auc" if target in classes else "r"
        rest = part[~part["participant_id"].astype(str).isin(trained)]
        n = rest.dropna(subset="observed")["participant_id"].nunique()
        rows.append(
            {
                "target": target,
                "representation": name,
                "score": score,
                "n_people": part.dropna(subset="observed")["participant_id"].nunique(),
                "everyone": _pooled(part, score),
                "n_unseen": n,
                "unseen": _pooled(rest, score) if n >= ENOUGH else np.nan,
            }
        )
    return pd.DataFrame(rows, columns=list(TABLES["prediction_unseen"].columns))


def _pooled(predictions: pd.DataFrame, score: str) -> float:
    """Score of all predictions of a repeat, mean over repeats."""
    known = predictions.dropna(subset=["observed", "predicted"])
    values = [
        score_predictions("pearson" if score == "r" else score, part[["observed"]], part[["predicted"]])
        for _, part in known.groupby("repeat")
    ]
    return float(np.mean(values)) if values else np.nan
