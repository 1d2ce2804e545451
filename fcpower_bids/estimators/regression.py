"""Kernel ridge regression on the correlation between people as scikit-learn estimators."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.model_selection import BaseCrossValidator, check_cv
from sklearn.utils import Tags
from sklearn.utils.metadata_routing import _MetadataRequester
from sklearn.utils.validation import _num_samples, check_is_fitted, validate_data

from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.regression.folds import deal_families, family_numbers
from fcpower_bids.core.regression.kernels import normalise_rows
from fcpower_bids.core.regression.krr import kernel_ridge
from fcpower_bids.core.regression.nested import select_penalties
from fcpower_bids.core.regression.presets import RECOMMENDED, PredictionPreset
from fcpower_bids.core.regression.probe import fit_weights


class FamilyFolds(_MetadataRequester):
    """Random folds of nearly equal size that never split a family; those of the group level with the same seed.

    Parameters
    ----------
    n_splits : int
        Folds.
    n_repeats : int
        How often everyone is dealt into folds anew.
    seed : int
        ``--random-seed`` of the group level.

    Notes
    -----
    Rows must be in the order of the group level, that of the names of the people. Without groups everyone is a family
    of their own. Source: the paper, Appendix "Evaluation protocols" (20 x 10 folds).
    """

    __metadata_request__split = {"groups": True}  # noqa: RUF012

    def __init__(self, n_splits: int = 10, n_repeats: int = 1, seed: int = 0) -> None:
        self.n_splits = n_splits
        self.n_repeats = n_repeats
        self.seed = seed

    def __repr__(self) -> str:
        return f"FamilyFolds(n_splits={self.n_splits}, n_repeats={self.n_repeats}, seed={self.seed})"

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of splits, repeats included."""
        return self.n_splits * self.n_repeats

    def split(self, X: Any, y: Any = None, groups: ArrayLike | None = None) -> Iterator[tuple[Rows, Rows]]:
        """Yield training and test rows of n people, whose families `groups` (n,) are.

        Raises
        ------
        ValueError
            If a family is larger than a fold, or a person has none.
        """
        family = family_numbers(groups, _num_samples(X))
        for repeat in range(self.n_repeats):
            labels = deal_families(family, self.n_splits, np.random.default_rng((self.seed, repeat)))
            for fold in range(self.n_splits):
                yield np.flatnonzero(labels != fold), np.flatnonzero(labels == fold)


class _Fitted(RegressorMixin, BaseEstimator):
    """Prediction from weights, shared by both regressions."""

    coef_: FloatArray
    intercept_: Any

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


class CorrelationKernelRidge(_Fitted):
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


class CorrelationKernelRidgeCV(_Fitted):
    """`CorrelationKernelRidge` whose penalty is selected by folds of the rows that it is fitted on.

    Inside a cross-validation of one's own this is the nested protocol of the group level: with its folds and its inner
    folds the predictions are the same.

    Parameters
    ----------
    penalties : sequence of float, optional
        The grid. By default powers of ten from 0.001 to 1000, going on to 1e-6 or 1e6 while the best lies at the edge.
    selection : str
        Score that selects: "pooled_pearson" (all held-out rows together), or another of
        `fcpower_bids.core.regression.scores.selection_scores`.
    cv : int, splitter or iterable
        Folds that together hold out every row; a number stands for `FamilyFolds` with as many.
    fit_intercept : bool
        Whether there is an unpenalised intercept.

    Attributes
    ----------
    penalty_ : float or ndarray, shape (n_targets,)
        Selected for each target.
    score_ : float or ndarray, shape (n_targets,)
        Its selection score, NaN where no penalty had one.
    coef_, intercept_, n_features_in_
        As of `CorrelationKernelRidge`.

    Notes
    -----
    Source: the paper, Appendix "Evaluation protocols"; the grid is that of the preset `recommended`.
    """

    def __init__(
        self,
        penalties: Sequence[float] | None = None,
        selection: str = "pooled_pearson",
        cv: int | BaseCrossValidator | Iterable[tuple[Rows, Rows]] = 5,
        fit_intercept: bool = True,
    ) -> None:
        self.penalties = penalties
        self.selection = selection
        self.cv = cv
        self.fit_intercept = fit_intercept

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> CorrelationKernelRidgeCV:
        """Select the penalty and fit on feature vectors (n, n_features) and targets (n,) or (n, n_targets).

        Parameters
        ----------
        X, y : array_like
            None missing.
        groups : array_like, shape (n,), optional
            Families, which no fold splits.

        Raises
        ------
        ValueError
            If a row is in no fold, or a family is larger than one.
        """
        features, targets = validate_data(
            self, X, y, multi_output=True, y_numeric=True, dtype=np.float64, ensure_min_features=2, ensure_min_samples=2
        )
        rows = _normalise(features)
        columns = np.asarray(targets[:, None] if targets.ndim == 1 else targets, dtype=np.float64)
        solver = kernel_ridge(rows @ rows.T, self._protocol())
        splitter = FamilyFolds(int(self.cv)) if isinstance(self.cv, (int, np.integer)) else check_cv(self.cv)
        held_out = [np.asarray(test, dtype=np.intp) for _, test in splitter.split(features, groups=groups)]
        lacking = np.setdiff1d(np.arange(len(features)), np.concatenate(held_out))
        if lacking.size:
            raise ValueError(f"The folds must hold out every row in turn, and row {lacking[0]} is never held out.")
        penalties, scores = select_penalties(solver, columns, held_out, self.selection)
        weights, level = fit_weights(rows, columns, penalties, self.fit_intercept)
        one = targets.ndim == 1
        self.penalty_: float | FloatArray = float(penalties[0]) if one else penalties
        self.score_: float | FloatArray = float(scores[0]) if one else scores
        self.coef_, self.intercept_ = (weights[:, 0], level[0]) if one else (weights.T, level)
        return self

    def _protocol(self) -> PredictionPreset:
        grid = RECOMMENDED.penalties if self.penalties is None else tuple(map(float, self.penalties))
        return dataclasses.replace(
            RECOMMENDED, penalties=grid, relative_penalties=self.penalties is None, intercept=self.fit_intercept
        )


def _normalise(features: FloatArray) -> FloatArray:
    constant = int(np.sum(np.ptp(features, axis=1) == 0))
    if constant:
        warnings.warn(
            f"{constant} row(s) of constant features correlate with nothing and are predicted by the intercept.",
            stacklevel=3,
        )
    return normalise_rows(features, keep_constant=True)
