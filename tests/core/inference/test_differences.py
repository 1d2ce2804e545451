"""Inference against published examples, closed forms and simulation."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats

from fcpower_bids.core.differences import (
    adjust_p_values,
    corrected_resampled_t,
    exact_mcnemar,
    subject_bootstrap,
)


@pytest.fixture(scope="module")
def golden(shared):
    return json.loads((shared / "golden" / "stats" / "stats_golden.json").read_text())


def test_corrected_t_reproduces_the_documented_example(golden):
    example, baycomp = golden["sklearn_example"], golden["baycomp"]
    result = corrected_resampled_t(example["diff"], example["n_train"], example["n_test"])
    one_sided = min(result.p_greater, result.p_less)
    assert abs(result.t) == pytest.approx(example["t"], rel=1e-10)
    assert one_sided == pytest.approx(example["p_one_sided"], rel=1e-10)
    assert round(abs(result.t), 3) == example["documented"]["t"]
    assert round(one_sided, 3) == example["documented"]["p"]
    assert result.df == baycomp["df"]
    assert abs(result.mean) == pytest.approx(abs(baycomp["mean"]))
    assert (result.mean / result.t) ** 2 == pytest.approx(baycomp["var"])
    assert sorted([result.p_greater, result.p_less]) == pytest.approx(sorted([baycomp["p_left"], baycomp["p_right"]]))


def test_without_a_test_set_to_correct_for_it_is_the_paired_t_test():
    d = np.random.default_rng(0).standard_normal(12)
    result, expected = corrected_resampled_t(d, 10**12, 1), stats.ttest_1samp(d, 0)
    assert result.t == pytest.approx(expected.statistic, rel=1e-6)
    assert result.p_two_sided == pytest.approx(expected.pvalue, rel=1e-6)
    interval = expected.confidence_interval()
    np.testing.assert_allclose([result.low, result.high], [interval.low, interval.high], rtol=1e-6)


def test_repeats_of_leave_one_site_out_count_once():
    sites = [range(0, 30), range(30, 50), range(50, 60), range(60, 100)]
    n_test = np.array([len(site) for site in sites])
    d = np.array([0.03, 0.01, 0.05, 0.02])
    once = corrected_resampled_t(d, 100 - n_test, n_test)
    noise = np.array([0.01, -0.01])[:, None] * np.ones(4)
    repeats = corrected_resampled_t(
        (d + noise).ravel(), np.tile(100 - n_test, 2), np.tile(n_test, 2), [list(site)[::-1] for site in sites] * 2
    )
    assert (repeats.n_folds, repeats.n_distinct, repeats.df) == (8, 4, 3)
    assert repeats.t == pytest.approx(once.t)
    # Four sites: the ratio is 1/3 whatever their sizes.
    assert once.t == pytest.approx(d.mean() / np.sqrt((1 / 4 + 1 / 3) * d.var(ddof=1)))


def test_folds_without_a_score_are_left_out_and_counted():
    d = np.array([0.1, np.nan, 0.2, 0.4])
    result, without = corrected_resampled_t(d, 9, 1), corrected_resampled_t(d[[0, 2, 3]], 9, 1)
    assert (result.n_skipped, result.n_distinct) == (1, 3)
    assert result.t == without.t


def test_differences_without_spread_are_decided_by_their_sign():
    nothing = corrected_resampled_t(np.zeros(5), 9, 1)
    assert (nothing.t, nothing.p_two_sided, nothing.p_greater) == (0, 1, 0.5)
    always = corrected_resampled_t(np.full(5, 0.1), 9, 1)
    assert (always.t, always.p_two_sided, always.p_less) == (np.inf, 0, 1)
    assert np.isnan(corrected_resampled_t([0.1], 9, 1).p_two_sided)
    assert np.isnan(corrected_resampled_t([np.nan, np.nan], 9, 1).mean)


def test_numbers_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="2 test sets"):
        corrected_resampled_t([1.0, 2.0, 3.0], 9, 1, [[1], [2]])
    with pytest.raises(ValueError, match="subjects to train"):
        corrected_resampled_t([1.0, 2.0, 3.0], 9, 0)


def test_exact_mcnemar_reproduces_statsmodels(golden):
    for case in golden["mcnemar"]:
        assert exact_mcnemar(case["b"], case["c"]) == pytest.approx(case["p_exact"], rel=1e-10)
        assert exact_mcnemar(case["c"], case["b"]) == pytest.approx(case["p_exact"], rel=1e-10)
    assert exact_mcnemar(0, 0) == 1


def test_adjustments_by_hand_and_missing_tests_stay_missing():
    p = np.array([0.01, np.nan, 0.04, 0.03, 0.005])
    np.testing.assert_allclose(adjust_p_values(p), [0.03, np.nan, 0.06, 0.06, 0.02])
    assert np.isnan(adjust_p_values([np.nan])).all()


@pytest.mark.parametrize("p", [[0.5, 1.5], [-0.1, 0.2]])
def test_impossible_p_values_are_refused(p):
    with pytest.raises(ValueError, match=r"outside \[0, 1\]"):
        adjust_p_values(p)


def test_bootstrap_has_the_standard_error_of_a_mean_and_resamples_people_with_all_their_rows():
    values = np.random.default_rng(2).standard_normal(200)
    once = subject_bootstrap(values, seed=1, n_draws=4000)
    assert once.sd == pytest.approx(values.std() / np.sqrt(200), rel=0.05)
    assert once.low < once.mean < once.high
    people = np.repeat(np.arange(200).astype(str), 2)
    twice = subject_bootstrap(np.repeat(values, 2), people, seed=1, n_draws=4000)
    # The same rows twice are no new evidence.
    assert twice.sd == pytest.approx(values.std() / np.sqrt(200), rel=0.05)
    np.testing.assert_array_equal(once.draws, subject_bootstrap(values, seed=1, n_draws=4000).draws)


def test_bootstrap_works_on_columns_and_refuses_missing_values():
    values = np.stack([np.ones(6), np.arange(6.0)], axis=1)
    result = subject_bootstrap(values, n_draws=50)
    assert result.draws.shape == (50, 2)
    np.testing.assert_allclose(result.mean, [1, 2.5])
    assert result.sd[0] == pytest.approx(0, abs=1e-12)
    with pytest.raises(ValueError, match="missing values"):
        subject_bootstrap([1.0, np.nan])
    with pytest.raises(ValueError, match="one subject for each"):
        subject_bootstrap([1.0, 2.0], ["a"])
