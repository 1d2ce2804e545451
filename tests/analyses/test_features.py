"""Features of people: blocks of edges, spectra that analyses share, series, and the regression on them."""

from __future__ import annotations

import dataclasses
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.covariance import LedoitWolf

from fcpower_bids.analyses import features as connectomes
from fcpower_bids.analyses.features import (
    AveragedEdges,
    PowerFamily,
    build_representations,
    cut_series,
    series_features,
    sharing_spectra,
)
from fcpower_bids.analyses.scan_parts import first_half, first_minutes
from fcpower_bids.core.connectome.connectivity import average_connectivity, pearson_connectivity
from fcpower_bids.core.connectome.edges import rebuild_matrix, vectorise_edges
from fcpower_bids.core.connectome.spd import spectral_power
from fcpower_bids.transforms.stateless import PartialCorrelation
from tests.analyses.cohorts import TR, choose, weak_mode_cohort


def draw_edges(rng, n_scans, n_parcels, n_volumes=40):
    series = rng.standard_normal((n_scans, n_volumes, n_parcels)) + rng.standard_normal((n_scans, n_volumes, 1))
    return np.stack([vectorise_edges(pearson_connectivity(each), weighted=False) for each in series])


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 99), st.integers(3, 7), st.lists(st.integers(1, 3), min_size=1, max_size=6))
def test_people_are_averaged_as_core_averages_runs(seed, n_parcels, sizes):
    rng = np.random.default_rng(seed)
    edges = draw_edges(rng, sum(sizes), n_parcels)
    groups = np.split(rng.permutation(sum(sizes)), np.cumsum(sizes)[:-1])
    averaged = AveragedEdges(edges, groups)
    matrices = rebuild_matrix(edges, 1.0, weighted=False)
    expected = [average_connectivity(matrices[group]) for group in groups]
    np.testing.assert_allclose(averaged[:, :], vectorise_edges(np.stack(expected), weighted=False), atol=1e-12)
    np.testing.assert_array_equal(averaged[:, 1:3], averaged[:, :][:, 1:3])
    last = len(groups) - 1
    np.testing.assert_allclose(averaged.connectome(last), expected[last], atol=1e-12)
    np.testing.assert_array_equal(averaged[last:, 0:2], averaged[:, 0:2][last:])


def test_single_scans_are_passed_on_to_the_last_bit():
    edges = draw_edges(np.random.default_rng(0), 5, 6)
    np.testing.assert_array_equal(AveragedEdges(edges, [[3], [1]])[:, :], edges[[3, 1]])
    edges[0, 0] = 1.0
    assert AveragedEdges(edges, [[0]])[0][0] == 1.0
    with pytest.raises(ValueError, match="correlate perfectly"):
        AveragedEdges(edges, [[0, 1]])[:, :]


@pytest.mark.parametrize("n_volumes", [40, 7])
def test_power_is_that_of_each_matrix_whether_kept_or_not(n_volumes):
    edges = draw_edges(np.random.default_rng(1), 6, 9, n_volumes)
    averaged = AveragedEdges(edges, [[i] for i in range(6)])
    for alpha in (0.35, 1.0):
        expected = np.stack(
            [vectorise_edges(spectral_power(rebuild_matrix(each, 1.0, weighted=False), alpha)) for each in edges]
        )
        for keep in (True, False):
            np.testing.assert_allclose(PowerFamily(averaged, choose(), keep).features(alpha), expected, atol=1e-10)
        np.testing.assert_allclose(PowerFamily(averaged, choose()).kernel(alpha), np.corrcoef(expected), atol=1e-10)


def test_scans_put_end_to_end_are_exactly_that_and_have_no_negative_eigenvalue():
    rng = np.random.default_rng(8)
    series = [rng.standard_normal((n, 12)) @ rng.standard_normal((12, 12)) for n in (9, 7, 30)]
    z = [(each - each.mean(axis=0)) / each.std(axis=0) for each in series]
    edges = np.stack([vectorise_edges(pearson_connectivity(each), weighted=False) for each in series])
    weights = np.array([8.0, 6.0, 29.0])
    together = AveragedEdges(edges, [[0, 1, 2], [1]], weights)
    # z-scored over T - 1, as they are stored: the sum of squares of a series is then its weight.
    stacked = np.concatenate([each * np.sqrt((len(each) - 1) / len(each)) for each in z])
    np.testing.assert_allclose(together.connectome(0), np.corrcoef(stacked.T), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(together[1], edges[1])
    np.testing.assert_array_equal(together[:, 3:9], together[:, :][:, 3:9])
    assert np.linalg.eigvalsh(together.connectome(0)).min() > -1e-12
    assert np.linalg.eigvalsh(AveragedEdges(edges, [[0, 1]]).connectome(0)).min() < -1e-3  # the mean of Fisher z


EDGES = draw_edges(np.random.default_rng(0), 8, 30)
WEIGHTS = np.linspace(1, 2, 8)
SCANS = AveragedEdges(EDGES, [[i] for i in range(8)])
PEOPLE = AveragedEdges(EDGES, [[0, 1], [2], [5]], WEIGHTS)
OTHERS = AveragedEdges(EDGES, [[0, 1], [5]])


@pytest.fixture
def decomposed(monkeypatch):
    """Count the connectomes that are decomposed."""
    done = []

    def counting(really, matrix):
        done.append(1)
        return really(matrix)

    for name in ("eigendecompose", "decompose_range"):
        monkeypatch.setattr(connectomes, name, partial(counting, getattr(connectomes, name)))
    return done


def test_each_connectome_is_decomposed_once_for_all_analyses_with_the_same_bits(decomposed):
    alone = [PowerFamily(each, choose()).features(0.35) for each in (SCANS, PEOPLE, OTHERS)]
    decomposed.clear()
    with sharing_spectra(EDGES):
        for each, expected, new in zip((SCANS, PEOPLE, OTHERS, PEOPLE), (*alone, alone[1]), (8, 1, 1, 0), strict=True):
            before = len(decomposed)
            np.testing.assert_array_equal(PowerFamily(each, choose()).features(0.35), expected)
            assert len(decomposed) - before == new, "one scan is itself, under any weight; others are of their weights"
        PowerFamily(AveragedEdges(EDGES.copy(), [[0]]), choose()).features(0.35)
        assert len(decomposed) == 11, "a part of the scans has connectomes of its own"
    PowerFamily(SCANS, choose()).features(0.35)
    assert len(decomposed) == 19, "nothing is kept beyond the command"


@pytest.fixture(scope="module")
def weak():
    return weak_mode_cohort(n_people=60, n_volumes=60)


def partial_correlation(series):
    z = (series - series.mean(axis=0)) / series.std(axis=0)
    inverse = np.linalg.inv(LedoitWolf(assume_centered=False).fit(z).covariance_)
    scale = np.sqrt(np.diag(inverse))
    return (-inverse / np.outer(scale, scale))[np.triu_indices(len(inverse), 1)]


def test_features_are_means_over_the_scans_of_a_person(weak):
    groups = [np.array([0, 1]), np.array([2])]
    features = series_features(weak, groups, PartialCorrelation(), choose())
    each = np.array([partial_correlation(weak.series[scan]()[0]) for scan in range(3)]) * np.sqrt(2)
    np.testing.assert_allclose(features, [each[:2].mean(axis=0), each[2]], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("part", "n_volumes"), [(first_half, 30), (first_minutes(20 * TR / 60), 20)])
def test_a_part_of_a_scan_has_the_series_of_that_part(weak, part, n_volumes):
    short = dataclasses.replace(weak, series=cut_series(weak, part))
    (one,) = build_representations(short, [np.array([4])], ("partial_correlation",), choose())
    expected = partial_correlation(weak.series[4]()[0][:n_volumes]) * np.sqrt(2)
    np.testing.assert_allclose(one.features()[0], expected, rtol=1e-9, atol=1e-12)
