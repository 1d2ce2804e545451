"""The transform and the regression as scikit-learn estimators, for pipelines of one's own.

A score for each fold, families kept together, and a search over the exponent and the penalty::

    model = make_pipeline(SpectralPower(0.35), CorrelationKernelRidge(penalty=1.0))
    cross_val_score(model, connectomes, y, groups=family, cv=GroupKFold(10))
    grid = {"spectralpower__alpha": [0.2, 0.35, 1.0], "correlationkernelridge__penalty": [0.1, 1.0, 10.0]}
    GridSearchCV(model, grid, cv=5).fit(connectomes, y)

For the nested, family-aware protocol of the paper use `core.nested`, which is exact and many times faster.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from fcpower_bids.core.connectome.edges import edge_count, vectorise_edges
from fcpower_bids.core.connectome.spd import ALPHA_STAR, CLIP_TOLERANCE, spectral_power
from fcpower_bids.core.regression.kernels import normalise_rows
from fcpower_bids.core.regression.ridge_model import fit_weights

FloatArray = NDArray[np.float64]


class CorrelationKernelRidge(RegressorMixin, BaseEstimator):
    """Kernel ridge regression with the Pearson correlation between feature vectors as kernel.

    Parameters
    ----------
    penalty : float
        Ridge penalty, above 0.
    fit_intercept : bool
        Whether there is an unpenalised intercept.

    Attributes
    ----------
    coef_ : ndarray, shape (n_features,) or (n_targets, n_features)
        Weights of the centred, unit-norm feature vectors.
    intercept_ : float or ndarray, shape (n_targets,)
        The unpenalised intercept, 0 without one.
    n_features_in_ : int
        Number of features seen in `fit`.

    Notes
    -----
    Source: the paper, Section "Predicting from the connectome". Equal to ``sklearn.kernel_ridge.KernelRidge`` with
    ``kernel="precomputed"`` on ``numpy.corrcoef(X)``, plus the intercept.
    """

    def __init__(self, penalty: float = 1.0, fit_intercept: bool = True) -> None:
        self.penalty = penalty
        self.fit_intercept = fit_intercept

    def fit(self, X: ArrayLike, y: ArrayLike) -> CorrelationKernelRidge:
        """Fit on feature vectors (n, n_features), two features or more, and targets (n,) or (n, n_targets)."""
        features, targets = validate_data(
            self, X, y, multi_output=True, y_numeric=True, dtype=np.float64, ensure_min_features=2, ensure_min_samples=2
        )
        if not self.penalty > 0:
            raise ValueError(f"The penalty must be above 0, not {self.penalty}.")
        columns = targets[:, None] if targets.ndim == 1 else targets
        penalties = np.full(columns.shape[1], float(self.penalty))
        weights, level = fit_weights(_normalise(features), columns, penalties, self.fit_intercept)
        self.coef_ = weights[:, 0] if targets.ndim == 1 else weights.T
        self.intercept_ = level[0] if targets.ndim == 1 else level
        return self

    def predict(self, X: ArrayLike) -> FloatArray:
        """Predict the targets of feature vectors (n, n_features): (n,) or (n, n_targets)."""
        check_is_fitted(self)
        features = validate_data(self, X, dtype=np.float64, reset=False)
        predicted: FloatArray = _normalise(features) @ self.coef_.T + self.intercept_
        return predicted

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class SpectralPower(TransformerMixin, BaseEstimator):
    """FC^alpha of every connectome by itself; nothing is learned from other people.

    Parameters
    ----------
    alpha : float
        The exponent.
    output : str
        "edges" (upper triangle times sqrt(2), what a regression wants) or "matrices".
    tolerance : float
        Eigenvalues up to this share of the largest are outside the range of the matrix and stay 0.

    Attributes
    ----------
    n_parcels_ : int
        Number of parcels seen in `fit`.

    Notes
    -----
    Source: the paper, Equation 1.
    """

    def __init__(self, alpha: float = ALPHA_STAR, output: str = "edges", tolerance: float = CLIP_TOLERANCE) -> None:
        self.alpha = alpha
        self.output = output
        self.tolerance = tolerance

    def fit(self, X: ArrayLike, y: Any = None) -> SpectralPower:
        """Remember the number of parcels of connectomes (n, P, P)."""
        if self.output not in ("edges", "matrices"):
            raise ValueError(f"The output must be 'edges' or 'matrices', not {self.output!r}.")
        self.n_parcels_ = _check_connectomes(X).shape[1]
        return self

    def transform(self, X: ArrayLike) -> FloatArray:
        """Raise connectomes (n, P, P) to the power alpha: (n, P (P - 1) / 2), or (n, P, P) for matrices."""
        check_is_fitted(self)
        connectomes = _check_connectomes(X)
        n, n_parcels = connectomes.shape[:2]
        if n_parcels != self.n_parcels_:
            raise ValueError(f"Connectomes of {n_parcels} parcels do not fit a transform of {self.n_parcels_}.")
        as_edges = self.output == "edges"
        raised = np.empty((n, edge_count(n_parcels)) if as_edges else connectomes.shape)
        for i, connectome in enumerate(connectomes):
            power = spectral_power(connectome, self.alpha, self.tolerance)
            raised[i] = vectorise_edges(power) if as_edges else power
        return raised

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        tags.requires_fit = False
        return tags


def _normalise(features: FloatArray) -> FloatArray:
    constant = int(np.sum(np.ptp(features, axis=1) == 0))
    if constant:
        warnings.warn(
            f"{constant} row(s) of constant features correlate with nothing and are predicted by the intercept.",
            stacklevel=3,
        )
    return normalise_rows(features, keep_constant=True)


def _check_connectomes(connectomes: ArrayLike) -> FloatArray:
    checked = np.asarray(connectomes, dtype=np.float64)
    if checked.ndim != 3 or checked.shape[1] != checked.shape[2] or not len(checked):
        raise ValueError(f"Connectomes must be an array (n, P, P) with one or more of them, not {checked.shape}.")
    return checked
