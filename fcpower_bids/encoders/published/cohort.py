"""Cohort statistics: per parcel the median and interquartile range over the training recordings, never over one.

``python -m fcpower_bids.encoders.published.cohort --help`` writes them from the series of the participant level.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.encoders.checkpoints import CheckpointError
from fcpower_bids.errors import FcPowerError, RecordingError, UsageError
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


def read_series_tables(paths: Sequence[Path]) -> tuple[list[str], list[FloatArray]]:
    """Read ``*_timeseries.tsv`` of the participant level: parcel names, and values (T_i, P) with ``n/a`` as NaN."""
    names: list[str] = []
    series = []
    for path in paths:
        try:
            with path.open(encoding="utf-8", newline="") as stream:
                header, *rows = csv.reader(stream, delimiter="\t")
            series.append(np.array([[np.nan if cell == "n/a" else float(cell) for cell in row] for row in rows]))
        except (OSError, ValueError) as error:
            raise UsageError(f"{path} is not a table of parcel series ({error}).") from None
        if names and header != names:
            raise UsageError(f"{path} has other parcels than {paths[0]}; give the series of one atlas.")
        names = header
    return names, series


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the statistics of training recordings from the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m fcpower_bids.encoders.published.cohort", description=__doc__)
    parser.add_argument("encoder", help="brainlm-111m, brainlm-650m or brain-harmonix-f")
    parser.add_argument("series", nargs="+", type=Path, help="*_timeseries.tsv of the training recordings only")
    parser.add_argument("--folder", type=Path, default=Path(), help=f"where to write {FILE}")
    chosen = parser.parse_args(arguments)
    try:
        names, series = read_series_tables(chosen.series)
        encoder = encoder_without_weights(chosen.encoder).fit(series, names)
    except FcPowerError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    chosen.folder.mkdir(parents=True, exist_ok=True)
    write_statistics(chosen.folder / FILE, encoder.statistics, encoder.statistics_names)
    return 0


def encoder_without_weights(name: str) -> Any:
    """An encoder that can fit statistics and nothing else."""
    from torch import nn  # large, and an extra of the installation

    from fcpower_bids.encoders.published import brainlm, patches

    if name == patches.HARMONIX_RECIPE.name:
        return patches.HarmonixEncoder(patches.HARMONIX_RECIPE, nn.Identity())
    if name in brainlm.SIZES:
        return brainlm.BrainLMEncoder(brainlm.RECIPE, nn.Identity())
    raise UsageError(f"The encoder {name} is not fed relative to a cohort.")


if __name__ == "__main__":
    raise SystemExit(main())
