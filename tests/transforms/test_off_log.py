"""The off-log and the log-scaled map of correlation matrices: their definitions, images and inverses."""

import numpy as np
import pytest
from scipy.linalg import expm, logm

from fcpower_bids.core.connectome.connectivity import pearson_connectivity
from fcpower_bids.core.connectome.edges import vectorise_edges
from fcpower_bids.transforms.log_euclidean import LogEuclidean, LogScaled, OffLog, unit_row_sums


@pytest.fixture
def correlations():
    rng = np.random.default_rng(0)
    mixing = np.eye(9) + 0.5 * rng.standard_normal((9, 9))
    return np.stack([pearson_connectivity(rng.standard_normal((80, 9)) @ mixing) for _ in range(3)])


def test_off_log_is_the_logarithm_without_its_diagonal(correlations):
    for matrix, got in zip(correlations, OffLog().transform(correlations), strict=True):
        expected = logm(matrix).real
        np.testing.assert_allclose(got, expected - np.diag(np.diag(expected)), atol=1e-10)


def test_off_log_has_the_edges_of_the_logarithm(correlations):
    one, other = (each.transform(correlations) for each in (OffLog(), LogEuclidean()))
    np.testing.assert_array_equal(vectorise_edges(one[0]), vectorise_edges(other[0]))


def test_off_log_can_be_undone(correlations):
    """Archakov and Hansen 2021: x - log diag exp(G + diag(x)) has the diagonal of log C as its fixed point."""
    for matrix, hollow in zip(correlations, OffLog().transform(correlations), strict=True):
        diagonal = np.zeros(9)
        for _ in range(200):
            diagonal -= np.log(np.diag(expm(hollow + np.diag(diagonal))))
        np.testing.assert_allclose(expm(hollow + np.diag(diagonal)), matrix, atol=1e-9)


def test_log_scaled_rows_sum_to_zero_and_it_can_be_undone(correlations):
    for matrix, got in zip(correlations, LogScaled().transform(correlations), strict=True):
        np.testing.assert_allclose(got.sum(axis=0), 0, atol=1e-9)
        scaled = expm(got)
        spread = np.sqrt(np.diag(scaled))
        np.testing.assert_allclose(scaled / np.outer(spread, spread), matrix, atol=1e-9)


def test_log_scaled_of_the_inverse_is_the_negative(correlations):
    inverse = np.linalg.inv(correlations[0])
    spread = np.sqrt(np.diag(inverse))
    got = LogScaled().transform([inverse / np.outer(spread, spread), correlations[0]])
    np.testing.assert_allclose(got[0], -got[1], atol=1e-8)


def test_the_scaling_is_found_near_to_singular():
    series = np.random.default_rng(1).standard_normal((62, 60))
    matrix = pearson_connectivity(series @ (np.eye(60) + 0.9))
    scaling = unit_row_sums(matrix)
    assert (scaling > 0).all()
    np.testing.assert_allclose(scaling * (matrix @ scaling), 1, atol=1e-9)


def test_rank_deficient_fc_is_refused():
    short = pearson_connectivity(np.random.default_rng(0).standard_normal((6, 20)))
    for transform in (OffLog(), LogScaled()):
        with pytest.raises(ValueError, match="rank-deficient"):
            transform.transform([short])
    assert np.isfinite(LogScaled(shrink_to_identity=0.1).transform([short])).all()
