"""Blocks of edges are what whole matrices would give, also where little fits in memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fcpower_bids import parallel
from fcpower_bids.analyses.features import AveragedEdges, PowerFamily, describe_precision, similarity
from fcpower_bids.core.connectome.connectivity import average_connectivity, pearson_connectivity
from fcpower_bids.core.connectome.edges import rebuild_matrix, vectorise_edges
from fcpower_bids.core.connectome.spd import spectral_power
from fcpower_bids.parallel import executing
from fcpower_bids.resources import memory_limit
from tests.analyses.cohorts import choose


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
    with pytest.raises(ValueError, match="at least one row"):
        AveragedEdges(edges, [[]])


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


def test_several_processes_give_the_same_numbers_to_the_last_bit(monkeypatch, tmp_path):
    np.save(tmp_path / "edges.npy", draw_edges(np.random.default_rng(4), 70, 30))
    averaged = AveragedEdges(np.load(tmp_path / "edges.npy", mmap_mode="r"), [[i] for i in range(70)])
    alone = PowerFamily(averaged, choose(), keep=True)
    ours = PowerFamily(averaged, choose()).features(0.35)
    monkeypatch.setattr(parallel, "WORTH", 0.0)
    with executing(choose(nprocs=2)):
        shared_work = PowerFamily(averaged, choose(), keep=True)
        theirs = PowerFamily(averaged, choose()).features(0.35)
    np.testing.assert_array_equal(alone.spectra[1], shared_work.spectra[1])
    np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(ours, alone.features(0.35))


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
