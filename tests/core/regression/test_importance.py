"""The Haufe transform against its definition and the networks against loops."""

from __future__ import annotations

import numpy as np
import pytest

from fcpower_bids.analyses.importance import haufe_transform, network_importance
from fcpower_bids.core.connectome.edges import vectorise_edges


def test_equals_the_covariance_of_each_fold_averaged():
    rng = np.random.default_rng(0)
    features, masks = rng.standard_normal((20, 7)) + 3, rng.random((5, 20)) < 0.7
    predictions = np.where(masks[:, :, None], rng.standard_normal((5, 20, 2)), np.nan)
    result = haufe_transform(features, predictions, masks)
    for target in range(2):
        folds = [np.cov(features[m].T, p[m, target], ddof=1)[:-1, -1] for m, p in zip(masks, predictions, strict=True)]
        np.testing.assert_allclose(result[:, target], np.mean(folds, axis=0), atol=1e-13)
    np.testing.assert_allclose(haufe_transform(features, predictions[:, :, 1], masks), result[:, 1])


def test_missing_predictions_and_wrong_shapes_are_refused():
    features, masks = np.ones((4, 2)), np.array([[True, True, True, False]])
    with pytest.raises(ValueError, match="in-sample prediction"):
        haufe_transform(features, np.array([[1.0, np.nan, 2.0, 3.0]]), masks)
    with pytest.raises(ValueError, match="in-sample prediction"):
        haufe_transform(features, np.ones((1, 4)), [[True, False, False, False]])
    with pytest.raises(ValueError, match="do not fit 4"):
        haufe_transform(features, np.ones((1, 5)), np.ones((1, 5), dtype=bool))


def test_uncovered_parcels_do_not_spoil_their_network():
    matrix = np.ones((4, 4))
    matrix[3], matrix[:, 3] = np.nan, np.nan
    _, means = network_importance(vectorise_edges(matrix, weighted=False), ["A", "A", "B", "B"])
    np.testing.assert_allclose(means, [[1, 1], [1, np.nan]])
    with pytest.raises(ValueError, match="4 parcels, but 3"):
        network_importance(vectorise_edges(matrix), ["A", "A", "B"])
