"""Kernel ridge regression by scikit-learn, against which predictions are held."""

import numpy as np
from sklearn.kernel_ridge import KernelRidge
from sklearn.preprocessing import KernelCenterer


def ridge(kernel, y, train, rows, penalty, intercept=True):
    """Predict some rows of a target (n,), or of several (n, m), from the training rows whose target is known."""
    train = train[np.isfinite(y[train]).reshape(len(train), -1).all(axis=1)]
    gram, cross, level = kernel[np.ix_(train, train)], kernel[np.ix_(rows, train)], 0.0
    if intercept:
        centre = KernelCenterer().fit(gram)
        gram, cross, level = centre.transform(gram), centre.transform(cross), y[train].mean(axis=0)
    return KernelRidge(alpha=penalty, kernel="precomputed").fit(gram, y[train] - level).predict(cross) + level
