"""CPM against the published protocol written out, and against cccpm's masks and predictions."""

import numpy as np
import pytest
from scipy import stats

from fcpower_bids.core.regression.folds import replicated_folds
from fcpower_bids.core.regression.nested import nested_cv
from fcpower_bids.core.regression.ridge import Split
from fcpower_bids.core.regression.solvers.cpm import EdgeSums, critical_correlation


def fit_cpm(edges, target, train, test):
    """Shen et al. 2017, steps 2 to 5, edge by edge."""
    found = [stats.pearsonr(column, target[train]) for column in edges[train].T]
    r, p = np.array([(each.statistic, each.pvalue) for each in found]).T
    sums = [edges[:, (p < 0.01) & (np.sign(r) == sign)].sum(axis=1) for sign in (1, -1)]
    design = np.column_stack([np.ones(len(edges)), *sums])
    weights = np.linalg.lstsq(design[train], target[train], rcond=None)[0]
    return design[test] @ weights


def draw(n=60, n_edges=90, seed=0):
    rng = np.random.default_rng(seed)
    edges = 0.3 + 0.2 * rng.standard_normal((n, n_edges))
    return edges, edges[:, :5].sum(axis=1) - edges[:, 5:9].sum(axis=1) + 0.3 * rng.standard_normal(n), rng


def predict(edges, targets, train, test):
    solver = EdgeSums(edges)
    split = Split(test, train, tuple(np.array_split(train, 2)), np.array([], int))
    sides = solver.prepare(targets)
    return solver.predict(split, sides, [sides, sides])[0][0]


def test_it_is_the_published_protocol():
    edges, target, rng = draw()
    targets = np.column_stack([target, rng.standard_normal(60), -3 * target + 1])
    test, train = np.arange(12), np.arange(12, 60)
    expected = np.column_stack([fit_cpm(edges, each, train, test) for each in targets.T])
    np.testing.assert_allclose(predict(edges, targets, train, test), expected, atol=1e-10)


@pytest.mark.shared
def test_it_is_that_of_another_program(shared):
    golden = np.load(shared / "golden/cohort/cpm.npz")
    folds = golden["folds"]
    for fold in range(5):
        test = folds[folds[:, 1] == fold, 0]
        train = np.setdiff1d(np.arange(120), test)
        got = predict(golden["X"], golden["y"][:, None], train, test)[:, 0]
        np.testing.assert_allclose(got, golden["pred_both"][test], atol=1e-10)


def test_the_limit_of_r_is_that_of_p():
    x = np.random.default_rng(3).standard_normal((25, 2))
    r, p = stats.pearsonr(*x.T)
    assert critical_correlation(25, p) == pytest.approx(abs(r), abs=1e-12)
    assert critical_correlation(2, 0.01) == np.inf


def test_without_a_selected_edge_the_mean_is_predicted():
    edges, _, rng = draw()
    edges[:, 3] = 0.5  # correlates with nothing
    target = rng.standard_normal(60)
    train = np.arange(5, 60)
    few = predict(edges[:, 3:4], target[:, None], train, np.arange(5))
    np.testing.assert_allclose(few, target[train].mean())


def test_the_test_people_select_nothing():
    edges, target, _ = draw()
    folds = replicated_folds(60, 5, 2, 1)
    spoilt = edges.copy()
    spoilt[folds[0].test] += 10 * target[folds[0].test, None]
    mask = np.isin(np.arange(60), folds[0].train)
    first = EdgeSums(spoilt)
    split = Split(folds[0].test, folds[0].train, folds[0].inner, np.array([], int))
    changed = np.where(mask, target, -target)
    here, there = (first.predict(split, first.prepare(each[:, None]), [])[0] for each in (target, changed))
    np.testing.assert_array_equal(here, there)


def test_nothing_is_left_to_select():
    edges, target, _ = draw()
    folds = replicated_folds(60, 5, 2, 2)
    result = nested_cv(EdgeSums(edges), target, folds)
    assert np.isnan(result.chosen).all()
    assert not result.at_edge.any()
    assert result.notes == ()
    own = [fit_cpm(edges, target, fold.train, fold.test) for fold in folds]
    np.testing.assert_allclose(np.concatenate(result.predicted)[:, 0], np.concatenate(own), atol=1e-10)


def test_all_folds_together_are_each_fold_alone(monkeypatch):
    edges, target, rng = draw(n_edges=300)
    targets = np.column_stack([target, rng.standard_normal(60)])
    targets[3, 1] = np.nan  # this target has other training people
    folds = replicated_folds(60, 5, 2, 2)
    together = nested_cv(EdgeSums(edges), targets, folds)
    monkeypatch.setattr("fcpower_bids.core.regression.solvers.cpm.TOGETHER", 0)
    alone = nested_cv(EdgeSums(edges), targets, folds)
    for one, other in zip(together.predicted, alone.predicted, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


def test_features_are_read_once_for_all_folds():
    edges, target, _ = draw()
    reads = []

    class Counted:
        shape = edges.shape

        def __getitem__(self, key):
            reads.append(key)
            return edges[key]

    nested_cv(EdgeSums(Counted()), target, replicated_folds(60, 5, 2, 4))
    assert len(reads) == 1
