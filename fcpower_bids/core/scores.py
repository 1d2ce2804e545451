"""How good predictions are: the seven measures of CBIG, and AUC and balanced accuracy for two classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fcpower_bids.core.arrays import FloatArray, Rows


class Training(NamedTuple):
    """Mean and standard deviation (n - 1) of the training targets: shape (m,), or one per row of pooled predictions."""

    mean: FloatArray
    std: FloatArray

    @classmethod
    def of(cls, targets: FloatArray) -> Training:
        """Describe training targets (n, m)."""
        return cls(
            targets.mean(axis=0), targets.std(axis=0, ddof=1) if len(targets) > 1 else np.zeros(targets.shape[1])
        )


Metric = Callable[[FloatArray, FloatArray, Training], FloatArray]
FLAT = 1e-12
"""A column whose range is below this share of its largest magnitude is constant up to rounding."""


def pearson(observed: FloatArray, predicted: FloatArray, train: Training) -> FloatArray:
    """Pearson correlation over rows; NaN where the target or the prediction is constant."""
    x, y = observed - _mean(observed), predicted - _mean(predicted)
    scale = np.sqrt(_inner(x, x) * _inner(y, y))
    return _quotient(_inner(x, y), scale, _constant(observed) | _constant(predicted))


def auc(observed: FloatArray, predicted: FloatArray, train: Training) -> FloatArray:
    """Area under the ROC curve of 0/1 targets, ties counted half (Mann-Whitney); NaN where only one class is present.

    Residuals of classes (`targets.remove_covariates`) weigh by their size, in the class of their sign.
    """
    positive, other = _weights(observed)
    wins = np.sum(positive * _outranked(other, predicted), axis=-2)
    return _quotient(wins, positive.sum(axis=-2) * other.sum(axis=-2), _one_class(positive > 0))


def auc_error(observed: FloatArray, predicted: FloatArray, train: Training) -> FloatArray:
    """Standard error of `auc`, which holds where the classes are spread differently (DeLong et al. 1988).

    A variance of 1/12, that of chance, for one further person in each class keeps the error above 0.
    """
    positive, other = _weights(observed)
    area, variance = auc(observed, predicted, train), 0.0
    for weight, share in (
        (positive, _outranked(other, predicted) / np.maximum(other.sum(axis=-2), FLAT)[..., None, :]),
        (other, 1 - _outranked(positive, predicted) / np.maximum(positive.sum(axis=-2), FLAT)[..., None, :]),
    ):
        part = weight / np.maximum(weight.sum(axis=-2, keepdims=True), FLAT)
        size = np.sum(part**2, axis=-2)  # of equal weights 1 / people
        variance = variance + np.sum((part * (share - area[..., None, :])) ** 2, axis=-2) + size**2 / 12
    return np.asarray(np.sqrt(variance))


def balanced_accuracy(observed: FloatArray, predicted: FloatArray, train: Training) -> FloatArray:
    """Mean of sensitivity and specificity of 0/1 targets; NaN where only one class is present.

    A regression on 0 and 1 predicts values about the share of ones it was trained on, so the threshold is that share
    (the mean of `train`): at 0.5 a rare class would never be predicted.
    """
    positive, other = _weights(observed)
    called, alone = predicted > train.mean, _one_class(positive > 0)
    sensitivity = _quotient(np.sum(called * positive, axis=-2), positive.sum(axis=-2), alone)
    specificity = _quotient(np.sum(~called * other, axis=-2), other.sum(axis=-2), alone)
    return (sensitivity + specificity) / 2


SCORES: dict[str, Metric] = {
    "pearson": pearson,
    # about the mean of the test rows (NaN where the target is constant), and about that of the training rows
    "cod": lambda y, f, train: _explained(y, f, _mean(y), _constant(y)),
    "predictive_cod": lambda y, f, train: _explained(y, f, train.mean, (y == train.mean).all(axis=-2)),
    # mean absolute and squared error, as they are and over the standard deviation of the training targets
    "mae": lambda y, f, train: np.mean(np.abs(f - y), axis=-2),
    "mae_norm": lambda y, f, train: np.mean(_normalise(np.abs(f - y), train.std), axis=-2),
    "mse": lambda y, f, train: np.mean((f - y) ** 2, axis=-2),
    "mse_norm": lambda y, f, train: np.mean(_normalise(f - y, train.std) ** 2, axis=-2),
    "auc": auc,
    "auc_error": auc_error,
    "balanced_accuracy": balanced_accuracy,
}
"""Names and functions of (observed, predicted, train), rows on the second-last axis, without missing values."""
CONTINUOUS_SCORES = ("pearson", "cod", "predictive_cod", "mae", "mae_norm", "mse", "mse_norm")
"""The seven measures of CBIG, in its order."""
BINARY_SCORES = ("auc", "balanced_accuracy")
"""The measures of 0/1 targets."""
NEEDS_TRAINING = frozenset({"predictive_cod", "mae_norm", "mse_norm", "balanced_accuracy"})
"""The measures that compare with the training targets."""
LOSSES = frozenset({"mae", "mae_norm", "mse", "mse_norm"})
"""The measures of which less is better."""


def score_predictions(
    name: str, observed: ArrayLike, predicted: ArrayLike, train: Training | None = None
) -> FloatArray:
    """Score predictions by a name of `SCORES`; rows whose target is missing (NaN) are left out, target by target.

    `observed` (n,) or (n, m), `predicted` (..., n, m) or (n,); `train`, which `NEEDS_TRAINING` need: one per target, or
    one per row of predictions that are pooled over folds. Returns (..., m), or () for (n,): NaN where the score is not
    defined (constant target or prediction, one class only, fewer than two rows). Raises ValueError.
    """
    if name not in SCORES:
        raise ValueError(f"There is no score called '{name}'. Choose from: {', '.join(SCORES)}.")
    metric = SCORES[name]
    y, f = np.asarray(observed, dtype=float), np.asarray(predicted, dtype=float)
    if y.ndim == 1:
        alone = (
            None if train is None else Training(*(np.asarray(values, dtype=float).reshape(-1, 1) for values in train))
        )
        return score_predictions(name, y[:, None], f[..., None], alone)[..., 0]
    if train is None and name in NEEDS_TRAINING:
        raise ValueError(f"The score {name} needs the mean and standard deviation of the training targets.")
    train = Training(*(np.asarray(values, dtype=float) for values in train or (0.0, 1.0)))
    present = ~np.isnan(y)
    if (np.isnan(f) & present).any():
        raise ValueError("A prediction is missing (NaN) for a row whose target is known.")
    if present.all() and y.shape[0] > 1:
        return metric(y, f, train)
    mean, std = (np.broadcast_to(values, y.shape) for values in train)
    scores = np.full((*f.shape[:-2], y.shape[1]), np.nan)
    for j, rows in enumerate(present.T):
        if rows.sum() > 1:
            here = (rows, slice(j, j + 1))
            scores[..., j] = metric(y[here], f[..., rows, j : j + 1], Training(mean[here], std[here]))[..., 0]
    return scores


def selection_scores(
    selection: str,
    observed: Sequence[FloatArray],
    predicted: Sequence[FloatArray],
    train: Sequence[Training] | None = None,
) -> FloatArray:
    """Score each penalty by its inner predictions: (n_penalties, m), more is better (losses change sign).

    `selection`: ``pooled_<score>`` of all inner folds together, or ``mean_<score>`` over those that have one.
    `observed` (n_v, m) and `predicted` (n_penalties, n_v, m) of each inner fold, none missing; `train`: of its training
    targets, for `NEEDS_TRAINING`. NaN where no inner fold can be scored. Raises ValueError.
    """
    how, _, name = selection.partition("_")
    if how not in ("pooled", "mean"):
        raise ValueError(f"The selection score '{selection}' must start with pooled_ or mean_, as in pooled_pearson.")
    if how == "pooled":
        pooled = None if train is None else pool_training(train, [len(rows) for rows in observed])
        scores = score_predictions(name, np.concatenate(observed), np.concatenate(predicted, axis=-2), pooled)
    else:
        folds = zip(observed, predicted, repeat(None) if train is None else train, strict=train is not None)
        by_fold = np.stack([score_predictions(name, *fold) for fold in folds])
        scored = np.sum(~np.isnan(by_fold), axis=0)
        scores = _quotient(np.nansum(by_fold, axis=0), scored, np.equal(scored, 0))
    return -scores if name in LOSSES else scores


def pool_training(train: Sequence[Training], n_rows: Sequence[int]) -> Training:
    """Repeat the training statistics of each fold for its rows, so that folds can be scored together."""
    means, deviations = zip(*train, strict=True)
    return Training(np.repeat(np.stack(means), n_rows, axis=0), np.repeat(np.stack(deviations), n_rows, axis=0))


def best_penalty(scores: FloatArray, penalties: FloatArray) -> NDArray[np.intp]:
    """Index of the first best penalty of each target by scores (n_penalties, m); the largest where none has a score.

    Without a score nothing is known, and the largest penalty predicts nearest to the training mean.
    """
    best = np.argmax(np.where(np.isnan(scores), -np.inf, scores), axis=0)
    return np.where(np.isnan(scores).all(axis=0), int(np.argmax(penalties)), best)


def _mean(values: FloatArray) -> FloatArray:
    return np.mean(values, axis=-2, keepdims=True)


def _normalise(errors: FloatArray, std: FloatArray) -> FloatArray:
    spread = np.broadcast_to(np.asarray(std), errors.shape)
    return _quotient(errors, spread, spread == 0)


def _inner(x: FloatArray, y: FloatArray) -> FloatArray:
    """Inner products over rows, without their products in memory."""
    return np.einsum("...ij,...ij->...j", x, y)


def _constant(values: FloatArray) -> NDArray[np.bool_]:
    low, high = np.min(values, axis=-2), np.max(values, axis=-2)
    return high - low <= FLAT * np.maximum(np.abs(low), np.abs(high))


def _quotient(numerator: NDArray, denominator: NDArray, undefined: NDArray[np.bool_]) -> FloatArray:
    result = np.full(np.broadcast_shapes(numerator.shape, undefined.shape), np.nan)
    return np.divide(numerator, denominator, out=result, where=~undefined)


def _explained(
    observed: FloatArray, predicted: FloatArray, centre: FloatArray, undefined: NDArray[np.bool_]
) -> FloatArray:
    error = np.sum((predicted - observed) ** 2, axis=-2)
    return 1 - _quotient(error, np.sum((observed - centre) ** 2, axis=-2), undefined)


def _weights(observed: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weights in class 1 and in class 0: 1, or the size of the residual of a class; 0 in the other class."""
    if np.isin(observed, (0.0, 1.0)).all():
        return observed, 1 - observed
    return np.maximum(observed, 0.0), np.maximum(-observed, 0.0)


def _outranked(weight: FloatArray, predicted: FloatArray) -> FloatArray:
    """Weight of the rows that are predicted below each row, ties counted half; the shape of predicted."""
    from scipy.stats import rankdata  # takes half a second, and only classes need it

    weight = np.broadcast_to(weight, predicted.shape)
    ordered = np.take_along_axis(weight, np.argsort(predicted, axis=-2), axis=-2)
    below = np.concatenate([np.zeros_like(ordered[..., :1, :]), np.cumsum(ordered, axis=-2)], axis=-2)
    ranks = [rankdata(predicted, how, axis=-2).astype(np.intp) - less for how, less in (("min", 1), ("max", 0))]
    return np.asarray(sum(np.take_along_axis(below, rank, axis=-2) for rank in ranks) / 2)


def _one_class(positive: NDArray[np.bool_]) -> NDArray[np.bool_]:
    return np.asarray(positive.all(axis=-2) | ~positive.any(axis=-2))


# --- Scores within sites, and over sites ----------------------------------------------------------------------------


FEWEST = 4
"""A site with fewer people has no correlation to speak of."""


def site_scores(
    observed: ArrayLike, predicted: ArrayLike, sites: ArrayLike, score: str = "pearson", folds: ArrayLike | None = None
) -> list[dict[str, Any]]:
    """Score the people of each site by themselves, sites in the order of their names, within folds where given.

    ``n`` have a prediction and a known target; ``n_compared`` is one less for each further fold that tests them.
    ``score``: NaN with fewer than four people, without variance, or with one class. ``mae`` and ``bias`` (mean of
    predicted minus observed) are in the unit of the target.
    """
    truth, guess = (np.asarray(values, dtype=np.float64) for values in (observed, predicted))
    labels = np.asarray(sites).astype(str)
    known = np.isfinite(truth) & np.isfinite(guess)
    fold = np.zeros(len(truth), dtype=np.intp) if folds is None else np.unique(folds, return_inverse=True)[1]
    table = []
    for site in np.unique(labels[known]).tolist():
        rows = known & (labels == site)
        error = guess[rows] - truth[rows]
        n = int(rows.sum())
        compared = n + 1 - len(set(fold[rows].tolist()))
        value = _score(truth[rows], guess[rows], fold[rows], score) if compared >= FEWEST else float("nan")
        row = {"site": site, "n": n, "n_compared": compared, "score": value}
        table.append(row | {"mae": np.abs(error).mean(), "bias": error.mean()})
    return table


def _score(observed: FloatArray, predicted: FloatArray, folds: Rows, score: str) -> float:
    """Score among the people of each fold."""
    parts = [(observed[folds == fold], predicted[folds == fold]) for fold in np.unique(folds)]
    if score == "pearson":
        first, other = (np.concatenate([part[side] - part[side].mean() for part in parts]) for side in (0, 1))
        return float(_scores_of(first[:, None], other[:, None], score)[0])
    scores = [float(_scores_of(truth[:, None], guess[:, None], score)[0]) for truth, guess in parts if len(truth) > 1]
    pairs = [float((truth > 0).sum() * (truth <= 0).sum()) for truth, _ in parts if len(truth) > 1]
    known = np.isfinite(scores)
    return float(np.average(np.array(scores)[known], weights=np.array(pairs)[known])) if known.any() else float("nan")


def weighted_score(scores: ArrayLike, n: ArrayLike, fisher: bool = True) -> float:
    """Mean of the scores of sites, weighted by their people: n - 3 on Fisher's z for correlations, n for an AUC."""
    values, sizes = (np.asarray(array, dtype=np.float64) for array in (scores, n))
    known = np.isfinite(values) & (sizes >= FEWEST)
    if not known.any():
        return float("nan")
    if not fisher:
        return float(np.average(values[known], weights=sizes[known]))
    z = np.arctanh(np.clip(values[known], -1 + 1e-12, 1 - 1e-12))
    return float(np.tanh(np.average(z, weights=sizes[known] - 3)))


def scores_within(observed: ArrayLike, predicted: ArrayLike, sites: ArrayLike, score: str = "pearson") -> FloatArray:
    """`weighted_score` of the sites (n,) for many pairs of columns (n, m) at once: (m,), NaN without a score."""
    truth, guess = (np.asarray(values, dtype=np.float64) for values in (observed, predicted))
    known = np.isfinite(truth).all(axis=1)
    labels = np.asarray(sites).astype(str)
    members = [known & (labels == site) for site in np.unique(labels[known])]
    members = [rows for rows in members if rows.sum() >= FEWEST]
    if not members:
        return np.full(truth.shape[1], np.nan)
    by_site = np.stack([_scores_of(truth[rows], guess[rows], score) for rows in members])
    sizes = [int(rows.sum()) for rows in members]
    if score == "auc_error":
        shares = np.where(np.isfinite(by_site), np.array(sizes)[:, None], np.nan)
        total, errors = np.nansum(shares, axis=0), np.sqrt(np.nansum((shares * by_site) ** 2, axis=0))
        return np.divide(errors, total, out=np.full_like(errors, np.nan), where=total > 0)
    return np.array([weighted_score(column, sizes, fisher=score == "pearson") for column in by_site.T])


def _scores_of(observed: FloatArray, predicted: FloatArray, score: str) -> FloatArray:
    flat = (np.ptp(observed, axis=0) == 0) | (np.ptp(predicted, axis=0) == 0)
    return np.where(flat, np.nan, score_predictions(score, observed, predicted))
