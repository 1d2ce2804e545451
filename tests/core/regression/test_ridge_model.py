"""A saved model predicts what the kernel regression predicts, and knows what it has not seen."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

from fcpower_bids.core.regression.probe import predict_from_arrays, ridge_model_arrays


@pytest.fixture
def cohort():
    rng = np.random.default_rng(0)
    return rng.standard_normal((40, 60)) + rng.standard_normal(60), rng.standard_normal((40, 2))


def test_linear_kind_is_ridge_on_z_scores(cohort):
    features, y = cohort
    got = predict_from_arrays(ridge_model_arrays(features[:30], y[:30], 2.0, "linear"), features[30:]).predicted
    scaler = StandardScaler().fit(features[:30])
    expected = Ridge(alpha=2.0).fit(scaler.transform(features[:30]), y[:30]).predict(scaler.transform(features[30:]))
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-11)


def test_similarity_is_the_mean_correlation_with_the_training_scans(cohort):
    features, y = cohort
    arrays = ridge_model_arrays(features, y, 1.0)
    new = np.random.default_rng(1).standard_normal((3, 60)) + features.mean(axis=0)
    expected = [np.mean([np.corrcoef(x, row)[0, 1] for row in features]) for x in new]
    np.testing.assert_allclose(predict_from_arrays(arrays, new).similarity, expected, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "cosine"}, "no kernel called 'cosine'"),
        ({"penalty": 0.0}, "above 0"),
        ({"targets": np.full(40, np.nan)}, "both known"),
        ({"targets": np.ones(39)}, "both known"),
    ],
)
def test_plain_errors(cohort, change, message):
    arguments = {"features": cohort[0], "targets": cohort[1], "penalty": 1.0} | change
    with pytest.raises(ValueError, match=message):
        ridge_model_arrays(**arguments)


def test_new_scans_must_match(cohort):
    arrays = ridge_model_arrays(*cohort, 1.0)
    with pytest.raises(ValueError, match="60 features"):
        predict_from_arrays(arrays, np.ones((2, 59)))
    with pytest.raises(ValueError, match="Scan 1 has missing"):
        predict_from_arrays(arrays, np.vstack([cohort[0][:1], np.full((1, 60), np.nan)]))
