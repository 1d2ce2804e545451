"""Scores by scipy and scikit-learn, within sites by hand; the Haufe transform by its definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr
from sklearn import metrics

from fcpower_bids.analyses.prediction import haufe_transform
from fcpower_bids.core.scores import (
    BINARY_SCORES,
    CONTINUOUS_SCORES,
    LOSSES,
    SCORES,
    Training,
    best_penalty,
    pool_training,
    score_predictions,
    scores_within,
    selection_scores,
    site_scores,
)

quick = settings(max_examples=40, deadline=None, derandomize=True)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_continuous_scores_against_referees(rng):
    y, f, train = rng.standard_normal(30), rng.standard_normal(30), rng.standard_normal(50) + 0.3
    known = Training.of(train[:, None])
    got = {name: float(score_predictions(name, y, f, known)) for name in CONTINUOUS_SCORES}
    expected = {
        "pearson": pearsonr(y, f).statistic,
        "cod": metrics.r2_score(y, f),
        "predictive_cod": 1 - np.sum((y - f) ** 2) / np.sum((y - train.mean()) ** 2),
        "mae": metrics.mean_absolute_error(y, f),
        "mae_norm": metrics.mean_absolute_error(y, f) / np.std(train, ddof=1),
        "mse": metrics.mean_squared_error(y, f),
        "mse_norm": metrics.mean_squared_error(y, f) / np.var(train, ddof=1),
    }
    assert got == pytest.approx(expected, rel=1e-12)


@quick
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4)), min_size=4, max_size=30))
def test_binary_scores_against_scikit_learn_with_ties(pairs):
    y, f = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    area = score_predictions("auc", y, f)
    accuracy = score_predictions("balanced_accuracy", y, f, Training(np.array([1.5]), np.array([1.0])))
    if len(set(y)) == 1:
        assert np.isnan(area)
        assert np.isnan(accuracy)
    else:
        assert area == pytest.approx(metrics.roc_auc_score(y, f), abs=1e-12)
        assert accuracy == pytest.approx(metrics.balanced_accuracy_score(y, f > 1.5), abs=1e-12)


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e6 + 0.3])
def test_constant_targets_and_predictions_have_no_correlation(rng, constant):
    varied = rng.standard_normal(7)
    assert np.isnan(score_predictions("pearson", np.full(7, constant), varied))
    assert np.isnan(score_predictions("pearson", varied, np.full(7, constant) * (1 + 1e-15)))
    assert np.isnan(score_predictions("cod", np.full(7, constant), varied))


@pytest.mark.parametrize("name", [*CONTINUOUS_SCORES, *BINARY_SCORES])
def test_missing_targets_are_left_out_one_by_one(rng, name):
    y = (rng.random((20, 3)) > 0.5).astype(float)
    f, train = rng.standard_normal((2, 20, 3)), Training(rng.random(3), rng.random(3))
    gaps = y.copy()
    gaps[[1, 5], 0] = gaps[3, 2] = np.nan
    got = score_predictions(name, gaps, f, train)
    assert got.shape == (2, 3)
    for j in range(3):
        rows = ~np.isnan(gaps[:, j])
        alone = Training(train.mean[j : j + 1], train.std[j : j + 1])
        np.testing.assert_allclose(got[:, j], [score_predictions(name, y[rows, j], g[rows, j], alone) for g in f])


@pytest.mark.parametrize("name", list(SCORES))
def test_selection_pools_or_averages_and_prefers_less_loss(rng, name):
    observed = [(rng.random((n, 2)) > 0.5).astype(float) for n in (9, 12)]
    predicted = [rng.standard_normal((3, n, 2)) for n in (9, 12)]
    train = [Training(rng.random(2), rng.random(2)) for _ in range(2)]
    sign = -1 if name in LOSSES else 1
    each = [score_predictions(name, *fold) for fold in zip(observed, predicted, train, strict=True)]
    np.testing.assert_allclose(
        selection_scores(f"mean_{name}", observed, predicted, train), sign * np.mean(each, axis=0)
    )
    together = score_predictions(
        name, np.concatenate(observed), np.concatenate(predicted, axis=1), pool_training(train, [9, 12])
    )
    np.testing.assert_allclose(selection_scores(f"pooled_{name}", observed, predicted, train), sign * together)


def test_first_best_penalty_wins_and_no_score_means_the_largest():
    scores = np.array([[0.1, np.nan, 2.0], [0.5, np.nan, np.nan], [0.5, np.nan, 1.0]])
    np.testing.assert_array_equal(best_penalty(scores, np.array([0.1, 10.0, 1.0])), [1, 1, 0])


def test_residuals_of_classes_are_scored_with_their_sizes_as_weights():
    """Overlap weights: sklearn's area and balanced accuracy with sample weights, ties included."""
    from sklearn.metrics import balanced_accuracy_score, roc_auc_score

    rng = np.random.default_rng(0)
    classes, p = rng.integers(0, 2, (50, 3)), rng.uniform(0.1, 0.9, (50, 3))
    predicted = rng.standard_normal((2, 50, 3)).round(1)
    area = score_predictions("auc", classes - p, predicted)
    zero = Training(np.zeros(3), np.ones(3))
    accuracy = score_predictions("balanced_accuracy", classes - p, predicted, zero)
    for i, j in np.ndindex(2, 3):
        weights = {"sample_weight": np.abs(classes - p)[:, j]}
        assert area[i, j] == pytest.approx(roc_auc_score(classes[:, j], predicted[i, :, j], **weights))
        called = predicted[i, :, j] > 0
        assert accuracy[i, j] == pytest.approx(balanced_accuracy_score(classes[:, j], called, **weights))
    assert np.isnan(score_predictions("auc", np.full(4, 0.3), np.arange(4.0)))


@pytest.mark.parametrize("weigh", [False, True])
def test_the_standard_error_of_an_area_is_that_of_delong_and_never_zero(rng, weigh):
    """By pairs: the share of the other class that each person is right about; one more of each, of variance 1/12."""
    classes, predicted = (rng.random(30) < 0.3), np.round(rng.standard_normal(30), 1)
    weights = rng.uniform(0.1, 0.9, 30) if weigh else np.ones(30)
    signed = np.where(classes, weights, -weights) if weigh else classes.astype(float)
    right = (1 + np.sign(predicted[classes][:, None] - predicted[~classes])) / 2
    own, other = weights[classes] / weights[classes].sum(), weights[~classes] / weights[~classes].sum()
    area, variance = own @ right @ other, 0.0
    for share, each in ((right @ other, own), (own @ right, other)):
        variance += (each**2) @ (share - area) ** 2 + (each @ each) ** 2 / 12
    assert score_predictions("auc_error", signed, predicted) == pytest.approx(np.sqrt(variance))
    assert score_predictions("auc_error", signed, signed) > 0


def test_an_area_within_sites_is_that_of_pairs_of_one_fold():
    truth, guess = np.array([0, 1, 1, 0, 0, 1, 0.0]), np.array([1, 3, 2, 2.5, 12, 11, 13.0])
    (one,) = site_scores(truth, guess, ["a"] * 7, "auc", [0, 0, 0, 0, 1, 1, 1])
    pairs = [guess[i] > guess[j] for i, j in ((1, 0), (1, 3), (2, 0), (2, 3), (5, 4), (5, 6))]
    assert one["score"] == pytest.approx(np.mean(pairs))


def test_the_error_of_areas_within_sites_is_that_of_their_weighted_mean():
    rng = np.random.default_rng(3)
    sites, classes = np.repeat(["a", "b", "c"], [20, 10, 8]), np.arange(38) % 3 == 0
    classes[30:] = False  # no area at the third
    predicted = rng.standard_normal((38, 2))
    each = [score_predictions("auc_error", classes[sites == one], predicted[sites == one].T) for one in "ab"]
    expected = np.hypot(20 * each[0], 10 * each[1]) / 30
    both = np.repeat(classes[:, None].astype(float), 2, axis=1)
    np.testing.assert_allclose(scores_within(both, predicted, sites, "auc_error"), expected)


def test_equals_the_covariance_of_each_fold_averaged():
    rng = np.random.default_rng(0)
    features, masks = rng.standard_normal((20, 7)) + 3, rng.random((5, 20)) < 0.7
    predictions = np.where(masks[:, :, None], rng.standard_normal((5, 20, 2)), np.nan)
    result = haufe_transform(features, predictions, masks)
    for target in range(2):
        folds = [np.cov(features[m].T, p[m, target], ddof=1)[:-1, -1] for m, p in zip(masks, predictions, strict=True)]
        np.testing.assert_allclose(result[:, target], np.mean(folds, axis=0), atol=1e-13)
    np.testing.assert_allclose(haufe_transform(features, predictions[:, :, 1], masks), result[:, 1])
