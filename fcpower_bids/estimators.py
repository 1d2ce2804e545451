"""FC^alpha, kernel ridge regression and folds for families as scikit-learn estimators, for pipelines of one's own.

A score for each fold, families kept together, and a search over the exponent::

    model = make_pipeline(SpectralPower(0.35), CorrelationKernelRidgeCV())
    cross_val_score(model, connectomes, y, groups=family, cv=FamilyFolds(10))
    GridSearchCV(model, {"spectralpower__alpha": [0.2, 0.35, 1.0]}, cv=5).fit(connectomes, y)

`CorrelationKernelRidgeCV` selects the penalty by itself, as the group level does; one of `penalties` is taken as it is.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin, TransformerMixin
from sklearn.model_selection import BaseCrossValidator, check_cv
from sklearn.utils import Tags
from sklearn.utils.metadata_routing import _MetadataRequester
from sklearn.utils.validation import _num_samples, check_is_fitted, validate_data

from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.connectome import CLIP_TOLERANCE, pearson_connectivity, spectral_power
from fcpower_bids.core.edges import ROUNDING, edge_count, vectorise_edges
from fcpower_bids.core.folds import RECOMMENDED, deal_families, family_numbers
from fcpower_bids.core.kernels import normalise_rows
from fcpower_bids.core.krr import fit_weights, kernel_ridge
from fcpower_bids.core.nested import select_penalties


class FamilyFolds(_MetadataRequester):
    """Random folds of nearly equal size that never split a family; those of the group level with the same seed.

    `n_splits` folds, and everyone is dealt anew `n_repeats` times; `seed` is ``--random-seed`` of the group level. Rows
    must be in the order of the group level, that of the names of the people. Without groups everyone is a family of
    their own. Source: the paper, Appendix "Evaluation protocols" (20 x 10 folds).
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
        """Yield training and test rows of n people, whose families `groups` (n,) are. Raises ValueError."""
        family = family_numbers(groups, _num_samples(X))
        for repeat in range(self.n_repeats):
            labels = deal_families(family, self.n_splits, np.random.default_rng((self.seed, repeat)))
            for fold in range(self.n_splits):
                yield np.flatnonzero(labels != fold), np.flatnonzero(labels == fold)


class CorrelationKernelRidgeCV(RegressorMixin, BaseEstimator):
    """Kernel ridge regression with the Pearson correlation between feature vectors as kernel.

    The penalty is selected by folds of the rows that it is fitted on. With a single one this is
    ``sklearn.kernel_ridge.KernelRidge`` with ``kernel="precomputed"`` on ``numpy.corrcoef(X)``, plus the intercept.

    Inside a cross-validation of one's own this is the nested protocol of the group level: with its folds and its inner
    folds the predictions are the same (the paper, Appendix "Evaluation protocols").

    `penalties`: the grid; by default that of the preset `recommended`, powers of ten from 0.001 to 1000, going on to
    1e-6 or 1e6 while the best lies at the edge. `selection`: "pooled_pearson" (all held-out rows together), or another
    of `core.scores.selection_scores`. `cv`: folds that together hold out every row; a number stands for
    `FamilyFolds` with as many. `fit_intercept`: whether there is an unpenalised intercept. After `fit`: `penalty_` and
    `score_`, a number or (n_targets,), selected for each target and its selection score, NaN where no penalty had one;
    `coef_` (n_features,) or (n_targets, n_features), the weights of the centred, unit-norm feature vectors;
    `intercept_`; `n_features_in_`.
    """

    coef_: FloatArray
    intercept_: Any
    penalty_: Any
    score_: Any

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

        `groups` (n,): families, which no fold splits. Raises ValueError: a row is in no fold, or a family is larger
        than one.
        """
        features, targets = validate_data(
            self, X, y, multi_output=True, y_numeric=True, dtype=np.float64, ensure_min_features=2, ensure_min_samples=2
        )
        alone = targets.ndim == 1
        rows, columns = _normalise(features), np.asarray(targets[:, None] if alone else targets, dtype=np.float64)
        grid = RECOMMENDED.penalties if self.penalties is None else tuple(map(float, self.penalties))
        if not min(grid) >= 0:
            raise ValueError(f"A penalty must not be below 0, as {min(grid)} is.")
        solver = kernel_ridge(
            rows @ rows.T,
            dataclasses.replace(
                RECOMMENDED, penalties=grid, relative_penalties=self.penalties is None, intercept=self.fit_intercept
            ),
        )
        splitter = FamilyFolds(int(self.cv)) if isinstance(self.cv, (int, np.integer)) else check_cv(self.cv)
        splits = [tuple(map(np.asarray, split)) for split in splitter.split(rows, targets, groups)]
        if any(np.union1d(train, test).size < len(rows) for train, test in splits):
            raise ValueError("A fold must train on all rows that it does not hold out: every row has a part in it.")
        held_out = [test.astype(np.intp) for _, test in splits]
        lacking = np.setdiff1d(np.arange(len(rows)), np.concatenate(held_out))
        if lacking.size:
            raise ValueError(f"The folds must hold out every row in turn, and row {lacking[0]} is never held out.")
        penalties, scores = select_penalties(solver, columns, held_out, self.selection)
        weights, level = fit_weights(rows, columns, penalties, self.fit_intercept)
        self.penalty_, self.score_ = (float(penalties[0]), float(scores[0])) if alone else (penalties, scores)
        self.coef_, self.intercept_ = (weights[:, 0], level[0]) if alone else (weights.T, level)
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


def _normalise(features: FloatArray) -> FloatArray:
    constant = int(np.sum(np.ptp(features, axis=1) == 0))
    if constant:
        warnings.warn(
            f"{constant} row(s) of constant features correlate with nothing and are predicted by the intercept.",
            stacklevel=3,
        )
    return normalise_rows(features, keep_constant=True)


EXPECTED = {"matrices": "Connectomes must be an array (n, P, P)", "series": "Series must be n arrays (T, P)"}
CHOICES = {"input": tuple(EXPECTED), "output": ("edges", "matrices")}


class SpectralPower(TransformerMixin, BaseEstimator):
    """FC^alpha of every connectome by itself; nothing is learned from other people (the paper, Equation 1).

    `output`: "edges" (the triangle of ``numpy.triu_indices(P, 1)`` times sqrt(2), what a regression wants) or
    "matrices". `tolerance`: eigenvalues up to this share of the largest are outside the range of the matrix and stay
    0. `input` of each scan: "matrices" (P, P), or "series" (T, P), whose Pearson correlation is taken. After `fit`:
    `n_parcels_`.

    nilearn's `ConnectivityMeasure` shrinks by default (Ledoit-Wolf), which flattens the spectrum already; give it
    ``cov_estimator=EmpiricalCovariance()``.
    """

    def __init__(
        self,
        alpha: float = ALPHA_STAR,
        output: str = "edges",
        tolerance: float = CLIP_TOLERANCE,
        input: str = "matrices",
    ) -> None:
        self.alpha = alpha
        self.output = output
        self.tolerance = tolerance
        self.input = input

    def fit(self, X: Collection[ArrayLike], y: Any = None) -> SpectralPower:
        """Remember the number of parcels of the first of n scans."""
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                choices = " or ".join(map(repr, known))
                raise ValueError(f"The {name} must be {choices}, not {getattr(self, name)!r}.")
        if not 0 < self.alpha <= 1:
            raise ValueError(f"alpha must be above 0 and at most 1 (1 is FC itself), not {self.alpha}.")
        self.n_parcels_ = len(next(self._connectomes(X)))
        return self

    def transform(self, X: Collection[ArrayLike]) -> FloatArray:
        """Raise n scans, as `input` says, to the power alpha: (n, P (P - 1) / 2), or (n, P, P) for matrices."""
        check_is_fitted(self, "n_parcels_")
        n = self.n_parcels_
        raised = np.empty((len(X), *((n, n) if self.output == "matrices" else (edge_count(n),))))
        for row, connectome in enumerate(self._connectomes(X)):
            if len(connectome) != n:
                raise ValueError(f"Connectomes of {len(connectome)} parcels do not fit a transform of {n}.")
            power = spectral_power(connectome, self.alpha, self.tolerance)
            raised[row] = vectorise_edges(power) if self.output == "edges" else power
        return raised

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[np.object_]:
        """Name the edges after the two parcels that they join, ``A--B``; names (P,) of the parcels or ``x0``, ...."""
        check_is_fitted(self, "n_parcels_")
        if self.output != "edges":
            raise ValueError("Matrices have no names of features; choose output='edges'.")
        n = self.n_parcels_
        names = [f"x{i}" for i in range(n)] if input_features is None else list(map(str, np.asarray(input_features)))
        if len(names) != n:
            raise ValueError(f"{len(names)} names do not fit {n} parcels.")
        return np.array([f"{names[i]}--{names[j]}" for i, j in zip(*np.triu_indices(n, 1), strict=True)], dtype=object)

    def _connectomes(self, X: Collection[ArrayLike]) -> Iterator[FloatArray]:
        """Yield the connectomes (P, P) of all scans."""
        wanted = f"{EXPECTED[self.input]} with one or more of them, not "
        if not len(X):
            raise ValueError(f"{wanted}(0,).")
        for scan in X:
            values = np.asarray(scan, dtype=np.float64)
            if values.ndim != 2 or (self.input == "matrices" and len(set(values.shape)) > 1):
                raise ValueError(f"{wanted}{getattr(X, 'shape', values.shape)}.")
            if self.input == "matrices":
                faults = np.abs(np.diag(values) - 1), np.abs(values) - 1, np.abs(values - values.T)
                if any(np.nanmax(fault, initial=0.0) > ROUNDING for fault in faults):
                    raise ValueError(
                        "A connectome is no symmetric matrix of correlations with 1 on its diagonal: scale a "
                        "covariance first, undo Fisher z with tanh, and set the diagonal to 1."
                    )
            yield pearson_connectivity(values) if self.input == "series" else values

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        tags.requires_fit = False
        return tags
