"""A fitted regression as plain arrays: weights of the features, to be saved without pickle and used on new scans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.regression.kernels import normalise_rows
from fcpower_bids.core.regression.krr import fit_weights
from fcpower_bids.core.regression.probe import standardising_scale

ModelArrays = dict[str, NDArray[np.generic]]
KINDS = ("correlation", "linear")


@dataclass(frozen=True, eq=False)
class NewPredictions:
    """Predictions for new scans, and their likeness to the scans that the model was fitted on."""

    predicted: FloatArray  # (n, m): in the unit of the targets
    # (n,): correlation kernel: mean correlation with the training scans. Linear kernel: mean squared z-score.
    similarity: FloatArray


def ridge_model_arrays(
    features: ArrayLike, targets: ArrayLike, penalty: ArrayLike, kind: str = "correlation", intercept: bool = True
) -> ModelArrays:
    """Fit a kernel ridge regression on all rows and describe it by arrays.

    Both kernels are linear in the (row-normalised or z-scored) features, so the model is one weight per feature: small,
    and without the data of any single person. `features` (n, E): one scan per row. `targets` (n,) or (n, m): none
    missing. `penalty` (m,): ridge penalty of each target, above 0. `kind`: "correlation" (rows centred and of unit
    norm) or "linear" (columns z-scored). `intercept`: whether there is an unpenalised intercept. Returns ``kind``,
    ``penalty`` (m,), ``weights`` (E, m), ``intercept`` (m,), ``target_range`` (2, m), ``similarity_range`` (2,),
    ``n_train``; "correlation": ``mean_features`` (E,); "linear": ``centre``, ``scale`` (E,). Plain types, for
    ``numpy.savez``. Raises ValueError: if the kind is unknown, a value is missing, or a penalty is not positive.
    """
    y = np.asarray(targets, dtype=float)
    y = y[:, None] if y.ndim == 1 else y
    x = np.asarray(features, dtype=float)
    penalties = np.broadcast_to(np.asarray(penalty, dtype=float), (y.shape[1],))
    if kind not in KINDS:
        raise ValueError(f"There is no kernel called '{kind}'. Choose from: {', '.join(KINDS)}.")
    if not np.isfinite(y).all() or not np.isfinite(x).all() or x.shape[0] != y.shape[0]:
        raise ValueError("A model is fitted on rows whose features and targets are both known.")
    if not (penalties > 0).all():
        raise ValueError("The penalty of a model must be above 0.")
    mean, scale = standardising_scale(x)
    rows = normalise_rows(x) if kind == "correlation" else (x - mean) / scale
    weights, level = fit_weights(rows, y, penalties, intercept)
    arrays: ModelArrays = {
        "kind": np.asarray(kind),
        "penalty": penalties.copy(),
        "weights": weights,
        "intercept": level,
        "target_range": np.stack([y.min(axis=0), y.max(axis=0)]),
        "n_train": np.asarray(len(y)),
    }
    if kind == "correlation":
        arrays["mean_features"] = rows.mean(axis=0)
        # A training scan is compared with the others, not with itself.
        similarity = (rows @ rows.sum(axis=0) - 1) / (len(rows) - 1)
    else:
        arrays["centre"], arrays["scale"] = mean, scale
        similarity = np.mean(rows**2, axis=1)
    arrays["similarity_range"] = np.array([similarity.min(), similarity.max()])
    return arrays


def predict_from_arrays(arrays: Mapping[str, NDArray[np.generic]], features: ArrayLike) -> NewPredictions:
    """Predict new scans from the arrays of `ridge_model_arrays`.

    `arrays`: as written; an open ``.npz`` file will do. `features` (n, E): one scan per row, made as the training
    features were. Raises ValueError: if the number of features differs, or one is missing.
    """
    x = np.asarray(features, dtype=float)
    model = {name: np.asarray(arrays[name]) for name in arrays}
    weights = model["weights"].astype(float)
    if x.ndim != 2 or x.shape[1] != weights.shape[0]:
        raise ValueError(f"The model has {weights.shape[0]} features per scan; the new scans are of shape {x.shape}.")
    if not np.isfinite(x).all():
        raise ValueError(f"Scan {np.argmin(np.isfinite(x).all(axis=1))} has missing or infinite features.")
    if str(model["kind"]) == "correlation":
        rows = normalise_rows(x)
        similarity = rows @ model["mean_features"].astype(float)
    else:
        rows = (x - model["centre"].astype(float)) / model["scale"].astype(float)
        similarity = np.mean(rows**2, axis=1)
    return NewPredictions(rows @ weights + model["intercept"].astype(float), similarity)
