"""Kernels against their definitions and distances against pyriemann."""

from __future__ import annotations

import numpy as np
import pytest

from fcpower_bids.analyses.features import AveragedEdges, PowerFamily
from fcpower_bids.analyses.spectrum.controls import DOT_PRODUCTS, METRICS, dot_kernel, rbf_kernel, squared_distances
from fcpower_bids.core.connectome.edges import vectorise_edges
from fcpower_bids.core.regression.kernels import correlation_kernel
from tests.analyses.cohorts import choose, demo_cohort


@pytest.fixture(scope="module")
def golden(shared):
    with np.load(shared / "golden/transforms/transforms_golden.npz") as arrays:
        return dict(arrays)


def make_family(connectomes):
    edges = vectorise_edges(connectomes, weighted=False)
    return PowerFamily(AveragedEdges(edges, [[i] for i in range(len(edges))]), choose(), keep=True)


@pytest.mark.parametrize(
    ("metric", "key"),
    [
        ("euclidean", "euclid"),
        ("log_euclidean", "logeuclid"),
        ("cholesky", "chol"),
        ("log_cholesky", "logchol"),
    ],
)
def test_distances_agree_with_pyriemann(golden, metric, key):
    family = make_family(golden["corr"])
    distances = np.sqrt(squared_distances(metric, family, choose()))
    np.testing.assert_allclose(distances, golden[f"pyriemann_pairdist_{key}"], rtol=1e-7, atol=1e-6)


def test_power_euclidean_distance_is_that_of_the_powers(golden):
    family = make_family(golden["corr"])
    squared = squared_distances("power_euclidean", family, choose(alpha=0.35))
    powers = golden["pyriemann_powm_0.35"]
    expected = ((powers[:, None] - powers) ** 2).sum(axis=(2, 3))
    np.testing.assert_allclose(squared, expected, atol=1e-8)


def test_dot_products_by_definition():
    rows = np.random.default_rng(0).standard_normal((7, 40)) + 1
    centred = rows - rows.mean(axis=1, keepdims=True)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    expected = {
        "pearson": correlation_kernel(rows),
        "cosine": unit @ unit.T,
        "centred_dot": centred @ centred.T / (centred**2).sum(axis=1).mean(),
        "raw_dot": rows @ rows.T / (rows**2).sum(axis=1).mean(),
    }
    assert set(expected) == set(DOT_PRODUCTS)
    for name, kernel in expected.items():
        np.testing.assert_allclose(dot_kernel(name, rows), kernel, rtol=0, atol=1e-12)


def test_rbf_kernel_at_the_median_distance():
    squared = np.array([[0.0, 4.0, 4.0], [4.0, 0.0, 9.0], [4.0, 9.0, 0.0]])
    kernel = rbf_kernel(squared)
    np.testing.assert_allclose(np.diag(kernel), 1)
    assert kernel[0, 1] == pytest.approx(np.exp(-0.5))
    assert np.linalg.eigvalsh(kernel).min() > 0


def test_refusals():
    edges = demo_cohort(n_people=2, n_volumes=20).edges
    short = PowerFamily(AveragedEdges(edges, [[i] for i in range(4)]), choose())
    for metric in ("log_euclidean", "log_cholesky"):
        with pytest.raises(ValueError, match="rank-deficient"):
            squared_distances(metric, short, choose())
        assert np.isfinite(squared_distances(metric, short, choose(shrink_to_identity=0.1))).all()
    with pytest.raises(ValueError, match="are the same"):
        rbf_kernel(np.zeros((4, 4)))
    assert len(METRICS) == 5
