"""The linear probe: scikit-learn pipelines as referee, primal and dual, scaler inside the fold."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

from fcpower_bids.core.regression.folds import replicated_folds
from fcpower_bids.core.regression.nested import nested_cv
from fcpower_bids.core.regression.probe import PRIMAL_WIDTH, LinearProbe
from fcpower_bids.core.regression.scores import Training, best_penalty, selection_scores
from fcpower_bids.core.regression.targets import fixed_target

PENALTIES = np.array([0.1, 1.0, 10.0, 100.0])


def referee(features, y, folds, scaling, intercept):
    """Yield chosen penalty and predictions of one target, the loops written out with scikit-learn."""

    def paths(values, scaled_on, train, rows):
        scaler = StandardScaler().fit(features[scaled_on])
        x, at = scaler.transform(features[train]), scaler.transform(features[rows])
        fits = [Ridge(alpha=penalty, fit_intercept=intercept).fit(x, values[train]) for penalty in PENALTIES]
        return np.stack([fit.predict(at) for fit in fits])[..., None]

    for fold in folds:
        values = y(fold.train)[:, 0]
        known = ~np.isnan(values)
        train = fold.train[known[fold.train]]
        inner = [rows[known[rows]] for rows in fold.inner]
        rests = [np.setdiff1d(train, rows) for rows in inner]
        everyone = np.arange(len(values)) if scaling == "everyone" else train
        predicted = [paths(values, everyone, rest, rows) for rest, rows in zip(rests, inner, strict=True)]
        observed = [values[rows, None] for rows in inner]
        known_means = [Training.of(values[rest, None]) for rest in rests]
        best = best_penalty(selection_scores("pooled_pearson", observed, predicted, known_means), PENALTIES)[0]
        yield PENALTIES[best], paths(values, everyone, train, fold.test)[best, :, 0]


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("scaling", ["fold", "everyone"])
@pytest.mark.parametrize("width", [8, 40, 60, PRIMAL_WIDTH + 1])
@pytest.mark.parametrize(("large", "tolerance"), [(False, 1e-9), (True, 1e-5)])
def test_equal_to_scikit_learn(width, large, tolerance, scaling, intercept, monkeypatch):
    if large:
        monkeypatch.setattr("fcpower_bids.core.regression.probe.SINGLE", 0)
    rng = np.random.default_rng(width)
    features = rng.standard_normal((45, width)) * rng.uniform(0.1, 9, width) + rng.uniform(-3, 3, width)
    features[:, 3] = 0.1
    y = features[:, :2] @ [[1.0], [0.3]] + rng.standard_normal((45, 1))
    y[[4, 20, 33]] = np.nan
    folds = replicated_folds(45, 4, 3, 1)
    probe = LinearProbe(features, PENALTIES, intercept, scaling == "everyone")
    result = nested_cv(probe, y, folds)
    for f, (penalty, predicted) in enumerate(referee(features, fixed_target(y), folds, scaling, intercept)):
        assert result.chosen[f, 0] == penalty
        np.testing.assert_allclose(result.predicted[f][:, 0], predicted, rtol=0, atol=tolerance)


def test_a_feature_that_is_constant_in_the_training_rows_counts_for_nothing():
    rng = np.random.default_rng(5)
    features, y = rng.standard_normal((40, 600)), rng.standard_normal((40, 1))
    folds = replicated_folds(40, 4, 3, 1)
    without = nested_cv(LinearProbe(features[:, 1:], PENALTIES), y, folds[:1])
    features[:, 0] = 0.1
    features[folds[0].test[0], 0] = 0.1 + 1e-3
    result = nested_cv(LinearProbe(features, PENALTIES), y, folds[:1])
    np.testing.assert_allclose(result.predicted[0], without.predicted[0], rtol=0, atol=1e-6)


def test_zero_penalty_needs_full_rank():
    rng = np.random.default_rng(2)
    assert 0 in LinearProbe(rng.standard_normal((50, 5)), [0, 1.0]).penalties
    probe = LinearProbe(rng.standard_normal((20, 30)), [0, 1.0])
    assert probe.notes
    np.testing.assert_array_equal(probe.penalties, [1.0])


def test_missing_features_name_their_row():
    features = np.ones((10, 3))
    features[6, 1] = np.nan
    with pytest.raises(ValueError, match="features of row 6 are missing"):
        LinearProbe(features, PENALTIES)
    with pytest.raises(ValueError, match="one row per person"):
        LinearProbe(np.ones(10), PENALTIES)
