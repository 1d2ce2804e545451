"""Write cohort statistics from the series of the participant level.

``python -m fcpower_bids.encoders.published.cohort --help`` lists the options.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.encoders.published.adapters import STATISTICS, write_statistics
from fcpower_bids.errors import FcPowerError, UsageError


def read_series_tables(paths: Sequence[Path]) -> tuple[list[str], list[FloatArray]]:
    """Read ``*_timeseries.tsv`` of the participant level: parcel names, and values (T_i, P) with ``n/a`` as NaN."""
    names: list[str] = []
    series = []
    for path in paths:
        try:
            cells = pd.read_csv(path, sep="\t", dtype=str, keep_default_na=False)
            table = cells.replace("n/a", "nan").astype(float)
        except (OSError, ValueError) as error:
            raise UsageError(f"{path} is not a table of parcel series ({error}).") from None
        if names and list(table) != names:
            raise UsageError(f"{path} has other parcels than {paths[0]}; give the series of one atlas.")
        names = list(table)
        series.append(table.to_numpy())
    return names, series


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the statistics of training recordings from the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m fcpower_bids.encoders.published.cohort", description=__doc__)
    parser.add_argument("encoder", help="brainlm-111m, brainlm-650m or brain-harmonix-f")
    parser.add_argument("series", nargs="+", type=Path, help="*_timeseries.tsv of the training recordings only")
    parser.add_argument("--folder", type=Path, default=Path(), help=f"where to write {STATISTICS}")
    chosen = parser.parse_args(arguments)
    try:
        names, series = read_series_tables(chosen.series)
        encoder = encoder_without_weights(chosen.encoder).fit(series, names)
    except FcPowerError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    chosen.folder.mkdir(parents=True, exist_ok=True)
    write_statistics(chosen.folder / STATISTICS, encoder.statistics, encoder.statistics_names)
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
