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
from fcpower_bids.analyses.evaluate import make_solver
from fcpower_bids.analyses.features import (
    AveragedEdges,
    PowerFamily,
    Representation,
    build_representations,
    cut_series,
    describe_precision,
    expand_names,
    mark_people,
    series_features,
    sharing_spectra,
    similarity,
)
from fcpower_bids.analyses.scan_parts import first_half, first_minutes
from fcpower_bids.core.connectome.connectivity import average_connectivity, pearson_connectivity
from fcpower_bids.core.connectome.edges import rebuild_matrix, vectorise_edges
from fcpower_bids.core.connectome.spd import spectral_power
from fcpower_bids.core.regression.folds import PAPER, replicated_folds
from fcpower_bids.core.regression.krr import KernelRidge
from fcpower_bids.core.regression.nested import nested_cv
from fcpower_bids.core.regression.probe import PRIMAL_WIDTH, LinearProbe
from fcpower_bids.errors import Unfit, UsageError
from fcpower_bids.resources import memory_limit
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


def test_little_memory_costs_precision_of_seven_digits_and_no_eigenvectors_are_kept():
    edges = draw_edges(np.random.default_rng(2), 12, 20)
    averaged = AveragedEdges(edges, [[i, i + 6] for i in range(6)])
    full = PowerFamily(averaged, choose(), keep=True)
    expected, plain = full.kernel(0.35), similarity(averaged)
    assert full.spectra is not None
    assert describe_precision(averaged.shape) == "double"
    with memory_limit(0.004):
        short = PowerFamily(averaged, choose(), keep=True)
        assert short.spectra is None
        assert short.features(0.35).dtype == np.float32
        assert "less than 1e-6" in describe_precision(averaged.shape)
        np.testing.assert_allclose(short.kernel(0.35), expected, rtol=0, atol=1e-6)
        np.testing.assert_allclose(similarity(averaged), plain, rtol=0, atol=1e-6)


def test_edges_on_disk_in_single_precision_are_clipped_accordingly(tmp_path):
    edges = draw_edges(np.random.default_rng(3), 4, 10, n_volumes=6)
    np.save(tmp_path / "edges.npy", edges.astype(np.float32))
    on_disk = AveragedEdges(np.load(tmp_path / "edges.npy", mmap_mode="r"), [[i] for i in range(4)])
    exact = PowerFamily(AveragedEdges(edges, [[i] for i in range(4)]), choose()).features(0.35)
    np.testing.assert_allclose(PowerFamily(on_disk, choose()).features(0.35), exact, atol=1e-3)


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


def test_what_is_not_asked_for_is_forgotten_where_room_is_short(decomposed):
    with sharing_spectra(EDGES), memory_limit(4 * 9 * 30 * 31 * 8 / 2**20):
        PowerFamily(SCANS, choose())
        PowerFamily(PEOPLE, choose())
        PowerFamily(AveragedEdges(EDGES, [[1, 2]]), choose())
        assert len(decomposed) == 10
        PowerFamily(PEOPLE, choose())
        assert len(decomposed) == 13, "only what was asked for last was still there"


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


@pytest.fixture
def embedded(cohort):
    rng, n = np.random.default_rng(0), len(cohort.scans)
    vectors = {"one": rng.standard_normal((n, 5)), "two": rng.standard_normal((n, 7))}
    seen = {"one": ("trained", *["no"] * (n - 1)), "two": ("no",) * n}
    return dataclasses.replace(cohort, embeddings=vectors, seen=seen)


def test_embedding_stands_for_every_encoder(embedded):
    found = expand_names(embedded, choose(representations=("fc", "embedding")))
    assert found == ("fc", "embedding:one", "embedding:two")
    assert expand_names(embedded, choose(representations=("embedding:two",))) == ("embedding:two",)
    with pytest.raises(UsageError, match="'nothing' does not exist"):
        expand_names(embedded, choose(representations=("nothing",)))
    with pytest.raises(Unfit, match="no embeddings for 'embedding:three'"):
        expand_names(embedded, choose(representations=("embedding:three",)))


def test_people_seen_by_an_encoder_are_marked(embedded):
    first = str(embedded.scans["participant_id"].iloc[0])
    assert mark_people(embedded, "embedding:one")[first] == "trained"
    assert not mark_people(embedded, "fc_power")


N = 80
FOLDS = replicated_folds(N, 5, 3, 2)


@pytest.fixture(scope="module")
def edges():
    rng = np.random.default_rng(0)
    return np.tanh(0.3 + 0.3 * rng.standard_normal((N, 12)) @ rng.standard_normal((12, 300)) / 3)


def plant(edges, seed=1):
    rng = np.random.default_rng(seed)
    return edges[:, :40].mean(axis=1) * 10 + rng.standard_normal(N) * 0.3


def test_few_features_of_many_people_make_no_kernel_of_everyone(edges, monkeypatch):
    few = Representation("embedding", "linear", lambda: edges[:, :8])
    found = []
    for width in (PRIMAL_WIDTH, 0):
        monkeypatch.setattr("fcpower_bids.analyses.evaluate.PRIMAL_WIDTH", width)
        solver = make_solver(few, PAPER)
        assert isinstance(solver, LinearProbe if width else KernelRidge)
        found.append(nested_cv(solver, plant(edges)[:, None], FOLDS, PAPER.selection).predicted)
    np.testing.assert_allclose(*map(np.concatenate, found), rtol=0, atol=1e-9)
