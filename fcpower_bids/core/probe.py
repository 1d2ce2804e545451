"""Linear regression on features: the probe, z-scored inside the fold, and a fitted model as plain arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import lapack

from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.kernels import PANEL, FeatureSource, normalise_rows, refuse_missing
from fcpower_bids.core.krr import BlockRidge, Regression, Sides, Split, check_penalties, fit_weights
from fcpower_bids.errors import Unfit

PRIMAL_WIDTH = 512
"""Up to this many features the regression is solved for the weights, above it for one coefficient per person."""
SINGLE = 20_000_000
"""Numbers (people x features) above which wide features are multiplied in single precision: hours become half."""


class LinearProbe(Regression):
    """Linear-kernel ridge regression on z-scored features, to be given to `nested.nested_cv`.

    The scaler depends on the training rows, so every fold is solved anew: for the weights of up to 512 features (and no
    more than people), above that by `BlockRidge` on the kernel. `features` (n, d), perhaps on disk, or a function from
    training rows to features that are fitted to these. Penalty 0 is dropped, with a note, unless the features have full
    column rank. `everyone`: fit the scaler to all people, else to the training rows of the outer fold; a feature that
    is constant there is centred and not scaled, as by scikit-learn. Raises ValueError.
    """

    def __init__(
        self,
        features: FeatureSource | Callable[[Rows], FeatureSource],
        penalties: ArrayLike,
        intercept: bool = True,
        everyone: bool = False,
        unit: float = 0.0,
    ) -> None:
        self.penalties = check_penalties(penalties)
        self.intercept, self.everyone, self.unit, self.fitted = intercept, everyone, unit, callable(features)
        self.make = features if callable(features) else None
        if callable(features):
            return
        self.features: FeatureSource = features
        n, width = features.shape
        for start in range(0, width, PANEL):
            refuse_missing(np.asarray(features[:, start : start + PANEL]), start)
        if 0 in self.penalties and not (
            width < n and int(np.linalg.matrix_rank(features[:] - np.mean(features[:], axis=0))) == width
        ):
            self.notes = ("Penalty 0 was dropped: without one the features do not determine the weights.",)
            self.penalties = check_penalties(self.penalties[self.penalties > 0])

    def predict(self, split: Split, sides: Sides) -> tuple[FloatArray, list[FloatArray]]:
        """Predict the test rows and each inner validation set: (n_penalties, rows, m)."""
        if self.make:
            return LinearProbe(self.make(split.train)[:], self.penalties, self.intercept).predict(split, sides)
        n, width = self.features.shape
        scaled_on = np.arange(n) if self.everyone else split.train
        if width <= min(PRIMAL_WIDTH, split.train.size):
            mean, scale = standardising_scale(np.asarray(self.features[:], dtype=float)[scaled_on])
            standard, paths = (self.features[:] - mean) / scale, []
            sets = [(split.train, split.test)]
            sets += [(np.setdiff1d(split.train, rows, assume_unique=True), rows) for rows in split.inner]
            for train, rows in sets:
                x, y, at, level = standard[train], sides.values[train], standard[rows], 0.0
                if self.intercept:
                    centre, level = x.mean(axis=0), y.mean(axis=0)
                    x, y, at = x - centre, y - level, at - centre
                paths.append(solve_path(x.T @ x, at, x.T @ y, self.penalties) + level)
            return paths[0], paths[1:]
        used = np.union1d(split.train, split.test)
        # An intercept lets no eigenvalue of the kernel be so small that an error of 1e-7 counts.
        single = self.intercept and n * width > SINGLE and width > n
        kernel = standard_kernel(self.features, scaled_on, used, np.float32 if single else np.float64)
        place = np.empty(n, np.intp)
        place[used] = np.arange(used.size)
        within = Split(place[split.test], place[split.train], tuple(place[rows] for rows in split.inner), split.others)
        return BlockRidge(kernel, self.penalties, self.intercept).predict(within, Sides(sides.values[used]))


def standard_kernel(
    features: FeatureSource, scaled_on: Rows, used: Rows, dtype: type[np.floating] = np.float64
) -> FloatArray:
    """Inner products (u, u) of the features (n, d) of some rows, z-scored by those of others, a panel at a time."""
    kernel, share = np.zeros((used.size, used.size)), np.zeros(features.shape[0])
    share[scaled_on] = 1 / scaled_on.size
    for start in range(0, features.shape[1], PANEL):
        block = np.asarray(features[:, start : start + PANEL], dtype=float)
        mean = share @ block
        block = block - mean
        scale = np.sqrt(np.einsum("i,ij,ij->j", share, block, block))
        scale[scale <= 10 * np.finfo(float).eps * np.abs(mean)] = 1.0  # constant
        standard = (block if used.size == len(block) else block[used]).astype(dtype, copy=False)
        standard *= (1 / scale).astype(dtype)
        kernel += standard @ standard.T
    return kernel


def standardising_scale(features: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation of every feature (columns); the deviation of a constant feature is given as 1."""
    mean, scale = features.mean(axis=0), features.std(axis=0)
    constant = scale <= 10 * np.finfo(float).eps * np.abs(mean)
    return mean, np.where(constant, 1.0, scale)


def solve_path(gram: FloatArray, cross: FloatArray, right: FloatArray, penalties: FloatArray) -> FloatArray:
    """Return cross (gram + l I)^-1 right for every penalty l, shape (n_penalties, rows, m)."""
    path = np.empty((penalties.size, cross.shape[0], right.shape[1]))
    for i, penalty in enumerate(penalties):
        penalised = gram.copy()
        penalised.flat[:: gram.shape[0] + 1] += penalty
        _, solution, failed = lapack.dposv(penalised.T, right, lower=1, overwrite_a=1)
        if failed:
            raise Unfit(f"Penalty {penalty:g} is too small for these features; remove it from the grid.")
        path[i] = cross @ solution
    return path


ModelArrays = dict[str, NDArray[np.generic]]


def ridge_model_arrays(
    features: ArrayLike, targets: ArrayLike, penalty: ArrayLike, kind: str = "correlation", intercept: bool = True
) -> ModelArrays:
    """Fit a kernel ridge regression on all rows and describe it by arrays of plain types, for ``numpy.savez``.

    Both kernels are linear in the features, row-normalised ("correlation") or z-scored ("linear"), so the model is one
    weight per feature, without the data of any single person. `features` (n, E), `targets` (n,) or (n, m), none
    missing; `penalty` of each target, above 0. Returns ``kind``, ``penalty`` (m,), ``weights`` (E, m), ``intercept``
    (m,), and ``mean_features`` or ``centre`` and ``scale`` (E,).
    """
    y = np.asarray(targets, dtype=float)
    y = y[:, None] if y.ndim == 1 else y
    x = np.asarray(features, dtype=float)
    penalties = np.broadcast_to(np.asarray(penalty, dtype=float), (y.shape[1],))
    mean, scale = standardising_scale(x)
    rows = normalise_rows(x) if kind == "correlation" else (x - mean) / scale
    weights, level = fit_weights(rows, y, penalties, intercept)
    arrays: ModelArrays = {
        "kind": np.asarray(kind),
        "penalty": penalties.copy(),
        "weights": weights,
        "intercept": level,
    }
    if kind == "correlation":
        arrays["mean_features"] = rows.mean(axis=0)
    else:
        arrays["centre"], arrays["scale"] = mean, scale
    return arrays


def predict_from_arrays(
    arrays: Mapping[str, NDArray[np.generic]], features: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Predict new scans (n, E) from the arrays of `ridge_model_arrays`, also as an open file. Raises ValueError.

    Returns predictions (n, m), in the unit of the targets, and the likeness (n,) to the training scans: with the
    correlation kernel the mean correlation, with the linear one the mean squared z-score.
    """
    x = np.asarray(features, dtype=float)
    model = {name: np.asarray(arrays[name]) for name in arrays}
    weights = model["weights"].astype(float)
    if not np.isfinite(x).all():
        raise ValueError(f"Scan {np.argmin(np.isfinite(x).all(axis=1))} has missing or infinite features.")
    if str(model["kind"]) == "correlation":
        rows = normalise_rows(x)
        similarity = rows @ model["mean_features"].astype(float)
    else:
        rows = (x - model["centre"].astype(float)) / model["scale"].astype(float)
        similarity = np.mean(rows**2, axis=1)
    return rows @ weights + model["intercept"].astype(float), similarity
