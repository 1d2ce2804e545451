"""The tables of one recording: every column described, figures checked against explicit sums."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fcpower_bids.core.connectome.connectivity import pearson_connectivity
from fcpower_bids.outputs.recording import tabulate_quality, tabulate_spectrum
from fcpower_bids.records import Atlas, Cleaning, ParcelSeries
from fcpower_bids.settings import Settings

P, T = 5, 90
NAMES = ("a", "b", "c", "d", "e")
BLANK = ("n/a",) * P
ATLAS = Atlas((("atlas", "x"), ("scale", "5")), Path("x.nii.gz"), "MNI", tuple(range(1, P + 1)), NAMES, BLANK, BLANK)
SETTINGS = Settings(Path("in"), Path("out"), "participant")


def make_cleaning(**changes) -> Cleaning:
    kept = np.ones(100, dtype=bool)
    kept[:4] = False
    kept[20:26] = False
    fd = np.full(100, 0.1)
    fd[:4], fd[20:26] = 9.0, 1.0
    fields = {
        "kept": kept,
        "framewise_displacement": fd,
        "dvars": np.full(100, np.nan),
        "design": np.empty((100, 0)),
        "design_names": (),
        "dropped_confounds": (),
        "n_dummy": 4,
        "degrees_of_freedom": 30.0,
        "n_regressors": 6,
        "repetition_time": 2.0,
    }
    return Cleaning(**(fields | changes))


@pytest.fixture
def series() -> ParcelSeries:
    clean = np.random.default_rng(0).standard_normal((T, P))
    clean[:, 3] = np.nan
    coverage = np.array([1, 0.9, 0.5, 0.2, 1])
    return ParcelSeries(coverage, np.empty((100, P)), clean, pearson_connectivity(clean))


def test_quality_counts_volumes_and_motion(series):
    table, _ = tabulate_quality(
        series, make_cleaning(), ATLAS, SETTINGS.method, tabulate_spectrum(series, SETTINGS.method)[1]
    )
    row = table.iloc[0]
    assert (row["volumes"], row["dummy_volumes"], row["censored_volumes"], row["kept_volumes"]) == (100, 4, 6, 90)
    assert row["seconds_kept"] == 180
    assert row["mean_fd"] == pytest.approx((6 * 1.0 + 90 * 0.1) / 96)
    assert row["max_fd"] == 1.0
    assert (row["parcels"], row["uncovered_parcels"]) == (5, 1)
    eigenvalues = np.linalg.eigvalsh(np.corrcoef(np.delete(series.clean, 3, 1).T))
    assert row["participation_ratio"] == pytest.approx(16 / (eigenvalues**2).sum())
    assert row["participation_ratio_power"] > row["participation_ratio"]
    assert (row["rank"], row["clipped"]) == (4, 0)
    # White noise spreads its power evenly over 0 to 0.25 Hz, so about 72 % lie outside 0.01 to 0.08 Hz.
    assert row["band_leakage"] == pytest.approx(0.72, abs=0.1)
