"""Degrees of freedom of edges: closed forms, and the variance that correlations have."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import signal

from fcpower_bids.transforms.freedom import EdgeFreedom
from tests.running import PLAIN, run_app


def coloured(rng, volumes, parcels, decay):
    noise = rng.standard_normal((volumes + 200, parcels))
    return signal.lfilter([1], [1, -decay], noise, axis=0)[200:]


def test_white_noise_has_a_degree_of_freedom_per_volume():
    series = np.random.default_rng(0).standard_normal((4000, 12))
    edges = EdgeFreedom().transform([series])[0][np.triu_indices(12, 1)]
    assert edges.mean() == pytest.approx(4000, rel=0.01)


@pytest.mark.parametrize(("one", "other"), [(0.3, 0.8), (0.7, 0.7)])
def test_autoregression_has_its_closed_form(one, other):
    rng = np.random.default_rng(1)
    series = np.hstack([coloured(rng, 20000, 4, one), coloured(rng, 20000, 4, other)])
    freedom = EdgeFreedom().transform([series])[0][:4, 4:]
    assert freedom.mean() == pytest.approx(20000 * (1 - one * other) / (1 + one * other), rel=0.05)


@pytest.mark.parametrize("true", [0.0, 0.5])
def test_the_variance_of_correlations_follows(true):
    rng, found, freedom = np.random.default_rng(2), [], []
    band = signal.butter(2, [0.01, 0.1], "bandpass", fs=0.5, output="sos")
    for _ in range(1500):
        shared = rng.standard_normal((700, 1))
        noise = np.sqrt(true) * shared + np.sqrt(1 - true) * rng.standard_normal((700, 2))
        series = signal.sosfiltfilt(band, noise, axis=0)[100:-100]
        found.append(np.arctanh(np.corrcoef(series.T)[0, 1]))
        freedom.append(EdgeFreedom().transform([series])[0][0, 1])
    assert np.var(found) == pytest.approx(np.mean(1 / (np.array(freedom) - 3)), rel=0.15)


def summed_over_lags(series):
    """The definition, lag by lag."""
    n = len(series)
    x = (series - series.mean(axis=0)) / series.std(axis=0)
    last, total = round(2 * np.sqrt(n)), np.zeros((series.shape[1],) * 2)
    for lag in range(-last + 1, last):
        own = np.sum(x[abs(lag) :] * x[: n - abs(lag)], axis=0) / n
        total += (1 + np.cos(np.pi * abs(lag) / last)) / 2 * np.outer(own, own)
    return n / total


def test_it_is_the_sum_over_lags():
    series = np.random.default_rng(3).standard_normal((90, 3)).cumsum(axis=0)
    np.testing.assert_allclose(EdgeFreedom().transform([series])[0], summed_over_lags(series), rtol=1e-10)


def test_the_command_writes_that_of_the_series_it_wrote(exact_demo, tmp_path):
    words = ("--atlas", "builtin", *PLAIN, "--transforms", "edge_freedom", "--participant-label", "01", "--quiet")
    assert run_app(exact_demo[0], tmp_path, *words).code == 0
    tables = sorted(tmp_path.rglob("*_stat-freedom_relmat.tsv"))
    assert tables
    for path in tables:
        found = pd.read_csv(path, sep="\t", index_col=0).to_numpy()
        series = pd.read_csv(
            path.with_name(path.name.replace("stat-freedom_relmat", "stat-mean_timeseries")), sep="\t"
        ).to_numpy(dtype=float)
        covered = np.isfinite(series).all(axis=0)
        expected = np.full(found.shape, np.nan)
        expected[np.ix_(covered, covered)] = summed_over_lags(series[:, covered])
        np.testing.assert_allclose(found, expected, rtol=1e-4)
