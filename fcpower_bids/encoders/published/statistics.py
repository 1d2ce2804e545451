"""Cohort statistics: per parcel the median and interquartile range over the training recordings, never over one."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.encoders.checkpoints import CheckpointError
from fcpower_bids.errors import RecordingError
from fcpower_bids.store import write_text

SeriesEncoder = Callable[[np.ndarray, float], np.ndarray]
"""The vector of a series (T, P) and its repetition time."""
LEAK = "which may be of people who are tested here (a leak)."
"""Statistics of everybody in a prediction."""
FILE = "cohort_statistics.tsv"
"""How the file is called among the auxiliary files."""


@dataclass(frozen=True)
class CohortStatistics:
    """Median and interquartile range of each parcel."""

    # median, iqr: (P,): in the order of the encoder
    median: FloatArray
    iqr: FloatArray
    origin: str  # their source, for the sidecar

    def scale(self, series: ArrayLike) -> FloatArray:
        """Subtract the median and divide by the interquartile range: (T, P) to (T, P)."""
        scaled: FloatArray = (np.asarray(series, np.float64) - self.median) / self.iqr
        return scaled


def fit_statistics(series: Sequence[ArrayLike]) -> CohortStatistics:
    """Pool all volumes of all training recordings. Raises RecordingError."""
    if len(series) < 2:
        raise RecordingError("Cohort statistics need at least two training recordings, not one recording's own.")
    pooled = np.concatenate([np.asarray(one, np.float64) for one in series])
    low, median, high = np.percentile(pooled, [25, 50, 75], axis=0, overwrite_input=True)
    if not (np.isfinite(high - low).all() and (high > low).all()):
        raise RecordingError("A parcel is missing or does not vary over the training recordings; leave it out of none.")
    return CohortStatistics(median, high - low, f"fitted on {len(series)} training recordings")


def write_statistics(path: Path, statistics: CohortStatistics, names: Sequence[str]) -> None:
    """Write one row per parcel: name, median, iqr."""
    rows = zip(names, statistics.median.tolist(), statistics.iqr.tolist(), strict=True)
    lines = "".join(f"{name}\t{median!r}\t{iqr!r}\n" for name, median, iqr in rows)
    write_text(path, "name\tmedian\tiqr\n" + lines)


def read_statistics(path: Path, names: Sequence[str]) -> CohortStatistics:
    """Read what `write_statistics` wrote; rows are found by name. Raises CheckpointError."""
    try:
        rows = {row["name"]: row for row in csv.DictReader(path.read_text("utf-8").splitlines(), delimiter="\t")}
        values = np.array([[float(rows[name]["median"]), float(rows[name]["iqr"])] for name in names])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise CheckpointError(
            f"{path} is not a table with name, median and iqr of every parcel ({error}); write it again."
        ) from None
    if not np.isfinite(values).all() or (values[:, 1] <= 0).any():
        raise CheckpointError(
            f"{path} holds a value that is not finite or an iqr that is not positive; write it again."
        )
    return CohortStatistics(values[:, 0], values[:, 1], "read from the auxiliary files")
