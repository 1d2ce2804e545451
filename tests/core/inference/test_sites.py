"""Scores within sites: by hand, and the interval over sites against its formula."""

from __future__ import annotations

import numpy as np
import pytest

from fcpower_bids.core.regression.scores import (
    score_predictions,
    scores_within,
    site_scores,
    weighted_score,
)


def test_each_site_by_itself():
    rng = np.random.default_rng(0)
    truth, guess = rng.standard_normal((2, 40))
    sites = np.repeat(["b", "a", "tiny"], [20, 17, 3])
    guess[2] = np.nan
    scores = {each["site"]: each for each in site_scores(truth, guess, sites)}
    rows = (sites == "b") & np.isfinite(guess)
    assert scores["b"]["n"] == 19
    assert scores["b"]["score"] == pytest.approx(np.corrcoef(truth[rows], guess[rows])[0, 1])
    assert scores["b"]["bias"] == pytest.approx((guess - truth)[rows].mean())
    assert scores["b"]["mae"] == pytest.approx(np.abs(guess - truth)[rows].mean())
    assert np.isnan(scores["tiny"]["score"])
    assert list(scores) == ["a", "b", "tiny"]
    one_class = site_scores([1, 1, 1, 1, 0, 1, 0, 1.0], [1, 2, 3, 4, 1, 2, 3, 4.0], list("aaaabbbb"), "auc")
    assert np.isnan(one_class[0]["score"])
    assert one_class[1]["score"] == 0.75


def test_the_weighted_mean_ignores_a_tiny_site():
    assert weighted_score([0.3, 0.3, -0.99], [50, 30, 3]) == pytest.approx(0.3)
    z = (47 * np.arctanh(0.5) + 7 * np.arctanh(-0.2)) / 54
    assert weighted_score([0.5, -0.2], [50, 10]) == pytest.approx(np.tanh(z))
    assert weighted_score([0.6, 0.9, np.nan], [30, 10, 50], fisher=False) == pytest.approx(0.675)
    assert np.isnan(weighted_score([np.nan], [9]))


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
