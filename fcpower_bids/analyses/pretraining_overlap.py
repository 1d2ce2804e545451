"""Whose embeddings are of an encoder that was trained on these very people."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fcpower_bids.analyses.features import EMBEDDING, encoder_of
from fcpower_bids.encoders.training_people import HELD_OUT, NO, TRAINED, UNKNOWN
from fcpower_bids.records import Cohort
from fcpower_bids.schema import TABLES

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
