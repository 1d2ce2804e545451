"""The people a new scan is compared with: their connectomes in a few numbers, without their names."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcpower_bids.core.arrays import Rows
from fcpower_bids.core.connectome.edges import rebuild_matrix
from fcpower_bids.core.connectome.summary import connectome_summary
from fcpower_bids.records import Cohort
from fcpower_bids.schema import Column, TableSpec, join_columns

MATCHED, FACTOR = 20, 1.5
"""Scans are compared with those of similar motion and length, by this factor, where there are so many."""
SEX = ("sex", "gender")
"""Columns of a phenotype table, in lower case."""
QUALITY = ("mean_fd", "seconds", "degrees_of_freedom")

REFERENCE = TableSpec(
    "reference",
    "The training scans in a few numbers each, without names and in an arbitrary order.",
    join_columns(
        Column.number("scan", "Number of the scan, arbitrary", digits=0),
        Column.text(
            "measure",
            "What is given",
            levels={
                "mean_fc": "mean of all correlations",
                "within NETWORK": "mean correlation within a network",
                "participation_ratio": "effective number of eigenvalues of FC",
                "similarity": "how like the other training people the scan is, by models that had not seen it",
                "mean_fd": "mean framewise displacement, mm",
                "seconds": "seconds of cleaned series",
                "degrees_of_freedom": "degrees of freedom left by cleaning",
                "age": "age, where a phenotype table has it",
                "female": "1 for female, 0 for male, where a phenotype table says so",
            },
        ),
        Column.number("value", "Its value"),
    ),
    ("scan", "measure"),
)


UNUSUAL = TableSpec(
    "predicted/target-TARGET-REPRESENTATION_reference",
    "How unusual the connectome of a scan is against the training scans of a model.",
    join_columns(
        Column.text("scan", "Name of the scan", "Scan"),
        Column.text("measure", "What is compared, as in reference.tsv of the model", "Measure"),
        Column.number("value", "Of this scan", "Value"),
        Column.number("mean", "Mean of the training scans", "Reference mean"),
        Column.number("sd", "Standard deviation of the training scans", "Reference SD"),
        Column.number("z", "Distance from the mean in standard deviations", "z", digits=1),
        Column.number("percentile", "Per cent of the training scans with a smaller value", "Percentile", digits=0),
        Column.number("scans", "Training scans that are compared", "Scans", digits=0),
        Column.flag("matched", "Whether these have about the same motion and length, within a factor of 1.5"),
        Column.flag("same_sex", "Whether these are of people of the same sex"),
    ),
    ("scan", "measure"),
)


def compare_with_reference(
    reference: pd.DataFrame, summary: Mapping[str, float], seconds: float, mean_fd: float, female: float = np.nan
) -> list[dict[str, float | str | bool]]:
    """Say how unusual a connectome is.

    It is compared with scans of similar motion and length and the same sex where there are enough, else with those of
    similar motion and length, else with those of the same sex, else with all.

    Parameters
    ----------
    reference : pandas.DataFrame
        `REFERENCE`.
    summary : mapping of str to float
        Of the scan, see `core.connectome.summary.connectome_summary`.
    seconds, mean_fd : float
        Of the scan; NaN where not known, which matches nothing.
    female : float
        1 or 0; NaN where not known.

    Returns
    -------
    list of dict
        Rows of `UNUSUAL` without ``scan``.
    """
    wide = reference.pivot_table(index="scan", columns="measure", values="value", aggfunc="first")
    alike = np.ones(len(wide), dtype=bool)
    for name, own in (("seconds", seconds), ("mean_fd", mean_fd)):
        values = wide[name].to_numpy(dtype=float) if name in wide else np.full(len(wide), np.nan)
        with np.errstate(invalid="ignore"):
            alike &= (values <= own * FACTOR) & (values * FACTOR >= own)
    own_sex = (wide["female"] == female).to_numpy() if "female" in wide else np.zeros(len(wide), dtype=bool)
    choices = ((alike & own_sex, True, True), (alike, True, False), (own_sex, False, True))
    everyone = (np.ones(len(wide), dtype=bool), False, False)
    chosen, matched, same_sex = next((each for each in choices if each[0].sum() >= MATCHED), everyone)
    rows: list[dict[str, float | str | bool]] = []
    for name, value in summary.items():
        if name not in wide:
            continue
        column = wide.loc[chosen, name]
        known = column.dropna().to_numpy(dtype=float)
        mean, sd = float(known.mean()), float(known.std(ddof=1)) if len(known) > 1 else np.nan
        rows.append(
            {
                "measure": name,
                "value": value,
                "mean": mean,
                "sd": sd,
                "z": (value - mean) / sd if sd > 0 else np.nan,
                "percentile": 100 * float(np.mean(known < value)),
                "scans": len(known),
                "matched": matched,
                "same_sex": same_sex,
            }
        )
    return rows


def drawn_from(values: NDArray[np.float64]) -> Rows:
    """Order values by their digests: arbitrary, and no seed and no list of the participants can undo it."""
    digests = [hashlib.sha256(np.float64(value).tobytes()).digest() for value in values]
    return np.array(sorted(range(len(digests)), key=digests.__getitem__), dtype=np.intp)


def is_female(column: pd.Series) -> pd.Series:
    """Say 1 where a table has F, female or woman, 0 for M, male or man, NaN for all else, codes too."""
    words = column.astype(object).map(lambda cell: str(cell).strip().casefold())
    return words.map({"f": 1.0, "female": 1.0, "woman": 1.0, "m": 0.0, "male": 0.0, "man": 0.0}).astype(float)


def reference_scans(
    cohort: Cohort, rows: Rows, similarity: NDArray[np.float64], people: Mapping[str, pd.Series]
) -> pd.DataFrame:
    """Describe scans of a cohort, in the order that `drawn_from` gives to their similarity.

    Parameters
    ----------
    cohort : Cohort
    rows : ndarray of int, shape (n,)
        The scans.
    similarity : ndarray, shape (n,)
        See `RESIDUALS`; NaN where it is not known.
    people : mapping of str to pandas.Series
        ``age`` and ``female`` as far as they are known, by participant.

    Returns
    -------
    pandas.DataFrame
        `REFERENCE`.
    """
    parts = []
    for number, place in enumerate(drawn_from(similarity)):
        scan = cohort.scans.iloc[rows[place]]
        fc = rebuild_matrix(np.asarray(cohort.edges[rows[place]], dtype=float), 1.0, weighted=False)
        found = connectome_summary(fc, cohort.networks) | {"similarity": float(similarity[place])}
        found |= {name: float(scan[name]) for name in QUALITY if name in scan}
        found |= {name: float(values.get(str(scan["participant_id"]), np.nan)) for name, values in people.items()}
        parts += [(number, name, value) for name, value in found.items() if np.isfinite(value)]
    return pd.DataFrame(parts, columns=list(REFERENCE.columns))
