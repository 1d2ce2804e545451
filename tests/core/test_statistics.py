"""Scores by scipy and scikit-learn; inference against published examples, closed forms, loops and simulation."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import pearsonr
from sklearn import metrics

from fcpower_bids.core.differences import (
    adjust_p_values,
    corrected_resampled_t,
    permutation_p_value,
    sign_flip_p_value,
    subject_bootstrap,
)
from fcpower_bids.core.identification import (
    disattenuated_ceiling,
    identify,
    permutation_null,
)
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
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4)), min_size=4, max_size=30), st.booleans())
def test_binary_scores_against_scikit_learn_with_ties(pairs, weigh):
    """Residuals of classes are scored with their sizes as weights (overlap weights)."""
    y, f = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    p = np.random.default_rng(len(y)).uniform(0.1, 0.9, len(y)) if weigh else 0.0
    weights, middle = ({"sample_weight": np.abs(y - p)}, 0.0) if weigh else ({}, 1.5)
    f += middle - 1.5
    area = score_predictions("auc", y - p, f)
    accuracy = score_predictions("balanced_accuracy", y - p, f, Training(np.array([middle]), np.array([1.0])))
    if len(set(y)) == 1:
        assert np.isnan(area)
        assert np.isnan(accuracy)
    else:
        assert area == pytest.approx(metrics.roc_auc_score(y, f, **weights), abs=1e-12)
        expected = metrics.balanced_accuracy_score(y, f > middle, **weights)
        assert accuracy == pytest.approx(expected, abs=1e-12)


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
    mean, pooled = (selection_scores(f"{how}_{name}", observed, predicted, train) for how in ("mean", "pooled"))
    np.testing.assert_allclose(mean, sign * np.mean(each, axis=0))
    together = np.concatenate(observed), np.concatenate(predicted, axis=1), pool_training(train, [9, 12])
    np.testing.assert_allclose(pooled, sign * score_predictions(name, *together))


def test_first_best_penalty_wins_and_no_score_means_the_largest():
    scores = np.array([[0.1, np.nan, 2.0], [0.5, np.nan, np.nan], [0.5, np.nan, 1.0]])
    np.testing.assert_array_equal(best_penalty(scores, np.array([0.1, 10.0, 1.0])), [1, 1, 0])


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


def test_corrected_t_reproduces_the_documented_example(shared):
    golden = json.loads((shared / "golden" / "stats" / "stats_golden.json").read_text())
    example, baycomp = golden["sklearn_example"], golden["baycomp"]
    result = corrected_resampled_t(example["diff"], example["n_train"], example["n_test"])
    one_sided = min(result["p_greater"], result["p_less"])
    assert abs(result["t"]) == pytest.approx(example["t"], rel=1e-10)
    assert [one_sided, result["p_two_sided"] / 2] == pytest.approx([example["p_one_sided"]] * 2, rel=1e-10)
    interval = stats.t.interval(0.95, result["df"], result["mean_difference"], baycomp["var"] ** 0.5)
    assert (result["ci_low"], result["ci_high"]) == pytest.approx(interval)
    assert round(abs(result["t"]), 3) == example["documented"]["t"]
    assert round(one_sided, 3) == example["documented"]["p"]
    assert result["df"] == baycomp["df"]
    assert abs(result["mean_difference"]) == pytest.approx(abs(baycomp["mean"]))
    assert (result["mean_difference"] / result["t"]) ** 2 == pytest.approx(baycomp["var"])
    p_values = sorted([baycomp["p_left"], baycomp["p_right"]])
    assert sorted([result["p_greater"], result["p_less"]]) == pytest.approx(p_values)


def test_repeats_of_leave_one_site_out_count_once():
    sites = [range(0, 30), range(30, 50), range(50, 60), range(60, 100)]
    n_test = np.array([len(site) for site in sites])
    d = np.array([0.03, 0.01, 0.05, 0.02])
    once = corrected_resampled_t(d, 100 - n_test, n_test)
    noise = np.array([0.01, -0.01])[:, None] * np.ones(4)
    sizes, tested = (np.tile(100 - n_test, 2), np.tile(n_test, 2)), [list(site)[::-1] for site in sites] * 2
    repeats = corrected_resampled_t((d + noise).ravel(), *sizes, tested)
    assert (repeats["n_folds"], repeats["n_distinct"], repeats["df"]) == (8, 4, 3)
    assert repeats["t"] == pytest.approx(once["t"])
    # Four sites: the ratio is 1/3 whatever their sizes.
    assert once["t"] == pytest.approx(d.mean() / np.sqrt((1 / 4 + 1 / 3) * d.var(ddof=1)))


def test_adjustments_by_hand_and_missing_tests_stay_missing():
    p = np.array([0.01, np.nan, 0.04, 0.03, 0.005])
    np.testing.assert_allclose(adjust_p_values(p), [0.03, np.nan, 0.06, 0.06, 0.02])
    assert np.isnan(adjust_p_values([np.nan])).all()


def test_bootstrap_has_the_standard_error_of_a_mean_and_resamples_people_with_all_their_rows():
    values = np.random.default_rng(2).standard_normal(200)
    low, high, draws = subject_bootstrap(values, seed=1, n_draws=4000)
    assert draws.std() == pytest.approx(values.std() / np.sqrt(200), rel=0.05)
    assert low < values.mean() < high
    people = np.repeat(np.arange(200).astype(str), 2)
    twice = subject_bootstrap(np.repeat(values, 2), people, seed=1, n_draws=4000)[2]
    # The same rows twice are no new evidence.
    assert twice.std() == pytest.approx(values.std() / np.sqrt(200), rel=0.05)
    np.testing.assert_array_equal(draws, subject_bootstrap(values, seed=1, n_draws=4000)[2])


def test_p_value_counts_the_observed_statistic_and_ties():
    null = np.array([0.1, 0.2, 0.3, -0.4])
    assert permutation_p_value(0.5, null) == 1 / 5
    assert permutation_p_value(0.3, null) == 2 / 5
    assert permutation_p_value(0.1 + 0.2, null) == 2 / 5
    with pytest.raises(ValueError, match="not a number"):
        permutation_p_value(np.nan, null)


@pytest.mark.parametrize(
    "values", [[1, 1, 1, -1], [2, 1, 0, -1, 2], [0.5, 1 / 3, -1, 1, 2], [1.0], [0.1234567, 2.7, -1]]
)
def test_all_flips_by_hand(values):
    sums = [abs(np.dot(signs, values)) for signs in product((-1, 1), repeat=len(values))]
    exact = np.mean(np.array(sums) >= abs(sum(values)) - 1e-9)
    assert sign_flip_p_value(values, n_flips=40_000) == pytest.approx(exact, abs=0.01 if 0.1234567 in values else 1e-12)


def test_the_papers_ceiling():
    # Reliability 0.830 of FC^alpha* and r = 0.624 give the ceiling 0.655, and 0.624 is 95 % of it.
    ceiling = disattenuated_ceiling(0.624, 0.830)
    assert round(ceiling, 3) == 0.655
    assert round(0.624 / ceiling, 2) == 0.95
    assert np.isnan(disattenuated_ceiling(0.5, -0.1))
    assert np.isnan(disattenuated_ceiling(-0.1, 0.5)), "what is not predicted has no ceiling"
    assert disattenuated_ceiling(0.4, 1.0) == pytest.approx(0.4)


PERSONS = np.array(["ann", "ben", "cem", "ann", "ben", "cem"])
SESSIONS = np.array(["1", "1", "1", "2", "2", "2"])


def full(block, back=None):
    """Similarity matrix of two sessions from what session 1 sees in session 2, and the reverse."""
    n = len(block)
    similarity = np.zeros((2 * n, 2 * n))
    similarity[:n, n:], similarity[n:, :n] = block, np.transpose(block) if back is None else back
    return similarity


def cohort(seed, n=8, sessions=2, noise=1.0):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n, 1, 20)) + noise * rng.standard_normal((n, sessions, 20))
    persons, session = np.repeat(np.arange(n), sessions).astype(str), np.tile(np.arange(sessions), n).astype(str)
    return np.corrcoef(features.reshape(-1, 20)), persons, session


def test_both_directions_by_hand():
    block = [[0.9, 0.1, 0.2], [0.8, 0.3, 0.4], [0.1, 0.35, 0.7]]
    result = identify(full(block), PERSONS, SESSIONS)
    # From 1 to 2 ben looks like ann; back from 2 to 1 ben looks like cem.
    assert result.by_direction() == {("1", "2"): pytest.approx(2 / 3), ("2", "1"): pytest.approx(2 / 3)}
    assert result.accuracy == pytest.approx(2 / 3)
    assert result.chance == pytest.approx(1 / 3)
    ben = (result.person == "ben") & (result.session == "1")
    assert (result.matched[ben], result.similarity[ben], result.own_similarity[ben]) == ("ann", 0.8, 0.3)
    assert (result.rank[ben], result.credit[ben], result.searched[ben]) == (3, 0, "2")
    assert result.matched[(result.person == "ben") & (result.session == "2")] == "cem"


def test_ties_earn_their_share():
    block = [[0.5, 0.5, 0.1], [0.2, 0.9, 0.1], [0.7, 0.7, 0.6]]
    result = identify(full(block, np.eye(3)), PERSONS, SESSIONS)
    np.testing.assert_allclose(result.credit, [0.5, 1, 0, 1, 1, 1])
    np.testing.assert_array_equal(result.matched[:3], ["ann", "ben", "ann"])
    np.testing.assert_array_equal(result.rank[:3], [1, 1, 3])
    constant = identify(np.ones((6, 6)), PERSONS, SESSIONS)
    assert constant.accuracy == pytest.approx(constant.chance) == pytest.approx(1 / 3)


def test_more_sessions_search_every_ordered_pair_among_the_people_who_have_both():
    similarity, persons, sessions = cohort(0, n=7, sessions=3, noise=0.8)
    kept = ~((persons == "0") & (sessions == "2")) & ~((persons == "1") & (sessions != "0"))
    similarity, persons, sessions = similarity[np.ix_(kept, kept)], persons[kept], sessions[kept]
    result = identify(similarity, persons, sessions)
    credits = []
    for scan, other in np.ndindex(len(persons), 3):
        a, b = sessions[scan], str(other)
        both = [p for p in np.unique(persons) if {a, b} <= set(sessions[persons == p])]
        if a == b or persons[scan] not in both:
            continue
        gallery = [np.flatnonzero((persons == p) & (sessions == b))[0] for p in both]
        credits.append(both[int(np.argmax(similarity[scan, gallery]))] == persons[scan])
    assert len(result.credit) == len(credits) == 6 * 2 + 4 * 5
    assert result.accuracy == pytest.approx(np.mean(credits))
    assert set(zip(result.session, result.searched, result.candidates, strict=True)) == {
        ("0", "1", 6), ("1", "0", 6), ("0", "2", 5), ("2", "0", 5), ("1", "2", 5), ("2", "1", 5),
    }  # fmt: skip


def test_the_interval_is_that_of_wilson_for_people_whose_searches_agree():
    """Both searches of each of 40 people end alike, so that there are 40 and not 80; t has 39 degrees of freedom."""
    names = np.array([f"p{number}" for number in range(40)])
    block = np.eye(40)
    block[np.arange(30), np.arange(1, 31)] = 2  # 30 people are missed from either side
    block = np.maximum(block, block.T)
    found = identify(full(block), np.tile(names, 2), np.repeat(["1", "2"], 40))
    assert found.accuracy == 9 / 40
    error, low, high = found.interval()
    assert error == pytest.approx(np.sqrt(9 / 40 * 31 / 40 / 39))
    ratio = (stats.norm.isf(0.025) / stats.t.isf(0.025, 39)) ** 2
    n, z = 40 * ratio, stats.norm.isf(0.025)
    for end in (low, high):  # Wilson's limits are where the score test has its critical value
        assert abs(end - 9 / 40) == pytest.approx(z * np.sqrt(end * (1 - end) / n))
    families = {name: f"f{number // 4}" for number, name in enumerate(names)}
    assert np.diff(found.interval(families)[1:]) > high - low


@pytest.mark.parametrize("sessions", [2, 3])
@pytest.mark.parametrize("decimals", [0, 8])  # with ties, without
@pytest.mark.parametrize("missing", [0, 3])  # scans: then another label changes who is compared with whom
def test_the_null_is_the_accuracy_of_shuffled_labels(sessions, decimals, missing):
    similarity, persons, days = cohort(5, n=7, sessions=sessions)
    kept = np.arange(len(persons)) >= missing
    similarity, persons, days = np.round(similarity[np.ix_(kept, kept)], decimals), persons[kept], days[kept]
    sites = np.where(persons < "3", "x", "y")
    for places in (None, sites):
        rng, cells = np.random.default_rng(2), days if places is None else np.char.add(np.char.add(days, "/"), places)
        for accuracy in permutation_null(similarity, persons, days, 20, seed=2, sites=places):
            shuffled = persons.copy()
            for cell in np.unique(cells):
                shuffled[cells == cell] = rng.permutation(persons[cells == cell])
            assert accuracy == identify(similarity, shuffled, days).accuracy
