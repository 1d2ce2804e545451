"""Kernel ridge regression and its nested loops by scikit-learn, and FC^alpha by numpy."""

import numpy as np
from sklearn.kernel_ridge import KernelRidge
from sklearn.preprocessing import KernelCenterer, StandardScaler

from fcpower_bids.core.scores import Training, best_penalty, selection_scores


def ridge(kernel, y, train, rows, penalty, intercept=True):
    """Predict some rows of a target (n,), or of several (n, m), from the training rows whose target is known."""
    train = train[np.isfinite(y[train]).reshape(len(train), -1).all(axis=1)]
    gram, cross, level = kernel[np.ix_(train, train)], kernel[np.ix_(rows, train)], 0.0
    if intercept:
        centre = KernelCenterer().fit(gram)
        gram, cross, level = centre.transform(gram), centre.transform(cross), y[train].mean(axis=0)
    return KernelRidge(alpha=penalty, kernel="precomputed").fit(gram, y[train] - level).predict(cross) + level


def nested(kernel_of, build, folds, penalties, selection="pooled_pearson", intercept=True):
    """Yield per fold and target: chosen penalty, predictions, inner scores; every loop written out.

    `kernel_of`: the kernel of all rows from the training rows with a known target; `build`: targets from training rows.
    """
    penalties = np.asarray(penalties)
    for fold in folds:
        for y in build(fold.train).T:
            kernel = kernel_of(fold.train[~np.isnan(y[fold.train])])
            observed, predicted, train = [], [], []
            for rows in fold.inner:
                rest = np.setdiff1d(fold.train, rows)
                rows = rows[~np.isnan(y[rows])]
                if not rows.size:
                    continue
                observed.append(y[rows, None])
                paths = [ridge(kernel, y, rest, rows, penalty, intercept) for penalty in penalties]
                predicted.append(np.stack(paths)[..., None])
                train.append(Training.of(y[rest][~np.isnan(y[rest])][:, None]))
            scores = selection_scores(selection, observed, predicted, train)
            penalty = penalties[best_penalty(scores, penalties)[0]]
            yield penalty, ridge(kernel, y, fold.train, fold.test, penalty, intercept), scores[:, 0]


def linear(features, fitted_on):
    """Kernel of z-scores whose means and deviations are those of some rows."""
    scaled = StandardScaler().fit(features[fitted_on]).transform(features)
    return scaled @ scaled.T


def identified(first, second):
    """Share of people (n, edges) whose nearest scan of the other session is their own: the mean of both directions."""
    r, own = np.corrcoef(first, second)[: len(first), len(first) :], np.arange(len(first))
    return np.mean([r.argmax(axis=0) == own, r.argmax(axis=1) == own])


def power_edges(fc, alpha):
    """Off-diagonal entries of the power of a correlation matrix (P, P)."""
    values, vectors = np.linalg.eigh(fc)
    values[values <= 1e-10 * values.max()] = 0
    return ((vectors * values**alpha) @ vectors.T)[np.triu_indices(len(fc), 1)]
