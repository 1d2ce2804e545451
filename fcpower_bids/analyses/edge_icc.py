"""Intraclass correlation of the edges between sessions, in blocks of edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcpower_bids.analyses.representations import build_representations
from fcpower_bids.core.identifiability import edge_reliability
from fcpower_bids.core.kernels import PANEL
from fcpower_bids.core.reliability import ICC_FORMS
from fcpower_bids.records import Cohort
from fcpower_bids.settings import Settings

ICC_COLUMNS = {
    "representation": "Whose features",
    "form": "Name of the coefficient after Shrout and Fleiss 1979",
    "mean": "Mean over the features",
    "sd": "Standard deviation over the features",
    "median": "Median over the features",
    "n_people": "People who have every session",
    "n_features": "Features with variance",
}
FORMS = tuple(form for form in ICC_FORMS if form.endswith(",1)"))


def icc_rows(
    cohort: Cohort, groups: Sequence[NDArray[np.intp]], names: Sequence[str], settings: Settings
) -> list[dict[str, Any]]:
    """One row per representation and form; none where fewer than two people have every session."""
    rows = np.concatenate(groups)
    persons, sessions = (cohort.scans[key].astype(str).to_numpy()[rows] for key in ("participant_id", "session"))
    labels, counts = np.unique(persons, return_counts=True)
    complete = np.isin(persons, labels[counts == len(set(sessions.tolist()))])
    if len(set(persons[complete].tolist())) < 2:
        return []
    chosen = [group for group, keep in zip(groups, complete, strict=True) if keep]
    result = []
    for representation in build_representations(cohort, chosen, names, settings):
        features = representation.features()
        panels = [features[:, at : at + PANEL] for at in range(0, features.shape[1], PANEL)]
        for form in FORMS:
            values = np.concatenate(
                [edge_reliability(panel, persons[complete], sessions[complete], form) for panel in panels]
            )
            values = values[np.isfinite(values)]
            result.append(
                {
                    "representation": representation.name,
                    "form": form,
                    "mean": float(values.mean()) if values.size else np.nan,
                    "sd": float(values.std()) if values.size else np.nan,
                    "median": float(np.median(values)) if values.size else np.nan,
                    "n_people": len(set(persons[complete].tolist())),
                    "n_features": int(values.size),
                }
            )
    return result
