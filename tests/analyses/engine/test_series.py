"""What was written of every scan: cut, and turned into features that predict."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from sklearn.covariance import LedoitWolf

from fcpower_bids.analyses.features import build_representations, cut_series, series_features
from fcpower_bids.analyses.scan_parts import first_half, first_minutes
from fcpower_bids.transforms.stateless import PartialCorrelation
from tests.analyses.cohorts import TR, choose
from tests.analyses.spectral_cohorts import weak_mode_cohort


@pytest.fixture(scope="module")
def cohort():
    return weak_mode_cohort(n_people=60, n_volumes=60)


def partial_correlation(series):
    z = (series - series.mean(axis=0)) / series.std(axis=0)
    inverse = np.linalg.inv(LedoitWolf(assume_centered=False).fit(z).covariance_)
    scale = np.sqrt(np.diag(inverse))
    return (-inverse / np.outer(scale, scale))[np.triu_indices(len(inverse), 1)]


def test_features_are_means_over_the_scans_of_a_person(cohort):
    groups = [np.array([0, 1]), np.array([2])]
    features = series_features(cohort, groups, PartialCorrelation(), choose())
    each = np.array([partial_correlation(cohort.series[scan]()[0]) for scan in range(3)]) * np.sqrt(2)
    np.testing.assert_allclose(features, [each[:2].mean(axis=0), each[2]], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("part", "n_volumes"), [(first_half, 30), (first_minutes(20 * TR / 60), 20)])
def test_a_part_of_a_scan_has_the_series_of_that_part(cohort, part, n_volumes):
    short = dataclasses.replace(cohort, series=cut_series(cohort, part))
    (one,) = build_representations(short, [np.array([4])], ("partial_correlation",), choose())
    expected = partial_correlation(cohort.series[4]()[0][:n_volumes]) * np.sqrt(2)
    np.testing.assert_allclose(one.features()[0], expected, rtol=1e-9, atol=1e-12)
