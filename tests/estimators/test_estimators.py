"""The scikit-learn adapters: scikit-learn's own checks, its KernelRidge as referee, pipelines and searches."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from fcpower_bids.core.edges import vectorise_edges
from fcpower_bids.estimators import CorrelationKernelRidgeCV, FamilyFolds, SpectralPower
from tests.referee import ridge


@pytest.fixture(scope="module")
def cohort():
    """Connectomes whose hidden factor is the target."""
    rng = np.random.default_rng(0)
    y = rng.standard_normal(60)
    mixing = rng.standard_normal((10, 10)) + y[:, None, None] * rng.standard_normal((10, 10))
    return np.stack([np.corrcoef(m @ rng.standard_normal((10, 80))) for m in mixing]), y


@pytest.mark.filterwarnings("ignore:.*row.s. of constant features")
@pytest.mark.filterwarnings("ignore:Can't test estimator")
@pytest.mark.parametrize(
    "estimator",
    [CorrelationKernelRidgeCV(cv=2), CorrelationKernelRidgeCV([0.1], cv=2, fit_intercept=False)],
)
def test_scikit_learns_own_checks(estimator):
    failed = [check for check in check_estimator(estimator, on_fail=None) if check["status"] == "failed"]
    assert not [(check["check_name"], check["exception"]) for check in failed]


def test_the_transform_passes_the_checks_for_its_input():
    # For three-dimensional input scikit-learn runs only its first checks; the tests below do what is left out.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        check_estimator(SpectralPower())
    assert SpectralPower().__sklearn_tags__().input_tags.three_d_array
    assert not SpectralPower().__sklearn_tags__().input_tags.two_d_array


def test_regression_against_kernel_ridge():
    rng = np.random.default_rng(1)
    x, new, y = rng.standard_normal((30, 12)), rng.standard_normal((5, 12)), rng.standard_normal((30, 2))
    together, model = np.corrcoef(np.vstack([x, new])), CorrelationKernelRidgeCV([0.7], fit_intercept=False)
    expected = ridge(together, np.vstack([y, y[:5]]), np.arange(30), np.arange(30, 35), 0.7, intercept=False)
    np.testing.assert_allclose(model.fit(x, y).predict(new), expected, rtol=0, atol=1e-11)
    np.testing.assert_allclose(model.fit(x, y[:, 0]).predict(new), expected[:, 0], rtol=0, atol=1e-11)


def test_features_have_names_and_become_a_table_once_fitted(cohort):
    connectomes, _ = cohort
    parcels = [f"p{i}" for i in range(10)]
    with pytest.raises(NotFittedError):
        SpectralPower().transform(connectomes)
    names = SpectralPower().fit(connectomes).get_feature_names_out(parcels)
    assert names[:2].tolist() == ["p0--p1", "p0--p2"]
    table = SpectralPower().set_output(transform="pandas").fit_transform(connectomes)
    assert (table.columns[0], table.shape) == ("x0--x1", (60, 45))


def test_the_selected_penalty_is_the_best_of_a_search(cohort):
    connectomes, y = cohort
    edges = vectorise_edges(connectomes)
    folds, grid = FamilyFolds(5), [0.01, 0.1, 1.0, 10.0]
    model = CorrelationKernelRidgeCV(grid, cv=folds).fit(edges, y, groups=np.arange(60) // 2)
    scores = []
    for penalty in grid:
        held_out = np.empty(60)
        for train, test in folds.split(edges, groups=np.arange(60) // 2):
            held_out[test] = CorrelationKernelRidgeCV([penalty]).fit(edges[train], y[train]).predict(edges[test])
        scores.append(np.corrcoef(held_out, y)[0, 1])
    assert model.penalty_ == grid[int(np.argmax(scores))]
    assert model.score_ == pytest.approx(max(scores), abs=1e-9)
    both = CorrelationKernelRidgeCV(grid, cv=folds).fit(edges, np.column_stack([y, -y]), np.arange(60) // 2)
    np.testing.assert_allclose(both.penalty_, model.penalty_)
    with pytest.raises(ValueError, match="row 3 is never held out"):
        CorrelationKernelRidgeCV(cv=[(np.arange(3, 60), np.arange(3))]).fit(edges, y)
    for gap in (1, 6, 30):  # as where relatives, or a site, are left out of the training
        splits = [(np.setdiff1d(np.arange(60), np.arange(row, row + 1 + gap)), [row]) for row in range(60)]
        with pytest.raises(ValueError, match="must train on all rows that it does not hold out"):
            CorrelationKernelRidgeCV(cv=splits).fit(edges, y)


def test_families_reach_the_folds_by_metadata_routing(cohort):
    import sklearn

    connectomes, y = cohort
    family = np.arange(60) // 6
    with sklearn.config_context(enable_metadata_routing=True):
        model = make_pipeline(SpectralPower(), CorrelationKernelRidgeCV(cv=3).set_fit_request(groups=True))
        routed = cross_val_score(model, connectomes, y, params={"groups": family}, cv=FamilyFolds(4))
    by_hand = []
    edges = SpectralPower().fit_transform(connectomes)
    for train, test in FamilyFolds(4).split(edges, y, family):
        assert not set(family[train]) & set(family[test])
        own = CorrelationKernelRidgeCV(cv=3).fit(edges[train], y[train], groups=family[train])
        by_hand.append(own.score(edges[test], y[test]))
    np.testing.assert_allclose(routed, by_hand, rtol=0, atol=1e-12)
    assert FamilyFolds(4, 2).get_n_splits() == len(list(FamilyFolds(4, 2).split(edges))) == 8


@pytest.mark.parametrize("alpha", [-1, 0, 5])
def test_an_exponent_that_flattens_nothing_is_refused(cohort, alpha):
    connectomes, _ = cohort
    with pytest.raises(ValueError, match="alpha must be above 0 and at most 1"):
        SpectralPower(alpha).fit(connectomes)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda fc: 2.5 * fc,
        lambda fc: fc - np.eye(len(fc)),
        lambda fc: fc + np.triu(np.full(fc.shape, 0.1) * (np.abs(fc) < 0.8), 1),
    ],
    ids=["covariance", "z with an empty diagonal", "not symmetric"],
)
def test_what_is_no_correlation_matrix_is_refused(cohort, spoil):
    connectomes, _ = cohort
    transform = SpectralPower().fit(connectomes)
    with pytest.raises(ValueError, match="no symmetric matrix of correlations"):
        transform.transform(np.stack([spoil(fc) for fc in connectomes]))
