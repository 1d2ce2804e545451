"""Scores within sites, and over sites: what is left of a prediction when recognising the scanner does not help."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.regression.scores import score_predictions

FEWEST = 4
"""A site with fewer people has no correlation to speak of."""


@dataclass(frozen=True)
class SiteScore:
    """One site."""

    site: str
    # n, n_compared: people with a prediction and a known target; the same less one for each further fold that tests
    # them
    n: int
    n_compared: int
    score: float  # Pearson r, or AUC; NaN with fewer than four people, without variance, or with one class
    # mae, bias: mean absolute error, and mean of predicted minus observed, in the unit of the target
    mae: float
    bias: float


def site_scores(
    observed: ArrayLike,
    predicted: ArrayLike,
    sites: ArrayLike,
    score: str = "pearson",
    folds: ArrayLike | None = None,
) -> list[SiteScore]:
    """Score the people of each site by themselves, sites in the order of their names, within folds where given."""
    truth, guess = (np.asarray(each, dtype=np.float64) for each in (observed, predicted))
    labels = np.asarray(sites).astype(str)
    known = np.isfinite(truth) & np.isfinite(guess)
    fold = np.zeros(len(truth), dtype=np.intp) if folds is None else np.unique(folds, return_inverse=True)[1]
    found = []
    for site in np.unique(labels[known]).tolist():
        rows = known & (labels == site)
        error = guess[rows] - truth[rows]
        n = int(rows.sum())
        compared = n + 1 - len(set(fold[rows].tolist()))
        value = _score(truth[rows], guess[rows], fold[rows], score) if compared >= FEWEST else float("nan")
        found.append(SiteScore(site, n, compared, value, np.abs(error).mean(), error.mean()))
    return found


def _score(observed: FloatArray, predicted: FloatArray, folds: Rows, score: str) -> float:
    """Score among the people of each fold."""
    parts = [(observed[folds == fold], predicted[folds == fold]) for fold in np.unique(folds)]
    if score == "pearson":
        one, other = (np.concatenate([part[side] - part[side].mean() for part in parts]) for side in (0, 1))
        return float(_scores_of(one[:, None], other[:, None], score)[0])
    each = [float(_scores_of(truth[:, None], guess[:, None], score)[0]) for truth, guess in parts if len(truth) > 1]
    pairs = [float((truth > 0).sum() * (truth <= 0).sum()) for truth, _ in parts if len(truth) > 1]
    known = np.isfinite(each)
    return float(np.average(np.array(each)[known], weights=np.array(pairs)[known])) if known.any() else float("nan")


def weighted_score(scores: ArrayLike, n: ArrayLike, fisher: bool = True) -> float:
    """Mean of the scores of sites, weighted by their people: n - 3 on Fisher's z for correlations, n for an AUC."""
    values, sizes = (np.asarray(each, dtype=np.float64) for each in (scores, n))
    known = np.isfinite(values) & (sizes >= FEWEST)
    if not known.any():
        return float("nan")
    if not fisher:
        return float(np.average(values[known], weights=sizes[known]))
    z = np.arctanh(np.clip(values[known], -1 + 1e-12, 1 - 1e-12))
    return float(np.tanh(np.average(z, weights=sizes[known] - 3)))


def scores_within(observed: ArrayLike, predicted: ArrayLike, sites: ArrayLike, score: str = "pearson") -> FloatArray:
    """`weighted_score` of the sites (n,) for many pairs of columns (n, m) at once: (m,), NaN without a score."""
    truth, guess = (np.asarray(each, dtype=np.float64) for each in (observed, predicted))
    known = np.isfinite(truth).all(axis=1)
    labels = np.asarray(sites).astype(str)
    members = [known & (labels == site) for site in np.unique(labels[known])]
    members = [rows for rows in members if rows.sum() >= FEWEST]
    if not members:
        return np.full(truth.shape[1], np.nan)
    each = np.stack([_scores_of(truth[rows], guess[rows], score) for rows in members])
    sizes = [int(rows.sum()) for rows in members]
    if score == "auc_error":
        shares = np.where(np.isfinite(each), np.array(sizes)[:, None], np.nan)
        total, errors = np.nansum(shares, axis=0), np.sqrt(np.nansum((shares * each) ** 2, axis=0))
        return np.divide(errors, total, out=np.full_like(errors, np.nan), where=total > 0)
    return np.array([weighted_score(column, sizes, fisher=score == "pearson") for column in each.T])


def _scores_of(observed: FloatArray, predicted: FloatArray, score: str) -> FloatArray:
    flat = (np.ptp(observed, axis=0) == 0) | (np.ptp(predicted, axis=0) == 0)
    return np.where(flat, np.nan, score_predictions(score, observed, predicted))


def random_effects(scores: ArrayLike, n: ArrayLike, level: float = 0.95) -> tuple[float, float, float]:
    """Mean correlation over sites that may differ, and its interval (DerSimonian & Laird; Hartung & Knapp)."""
    values, sizes = (np.asarray(each, dtype=np.float64) for each in (scores, n))
    known = np.isfinite(values) & (sizes >= FEWEST)
    k = int(known.sum())
    if k < 2:
        return float("nan"), float("nan"), float("nan")
    z, weights = np.arctanh(np.clip(values[known], -1 + 1e-12, 1 - 1e-12)), sizes[known] - 3
    fixed = np.average(z, weights=weights)
    spare = weights.sum() - (weights**2).sum() / weights.sum()
    between = max(0.0, float((weights @ (z - fixed) ** 2 - (k - 1)) / spare))
    own = 1 / (1 / weights + between)
    mean = float(np.average(z, weights=own))
    error = float(np.sqrt(own @ (z - mean) ** 2 / ((k - 1) * own.sum())))
    alike = -special.ndtri((1 - level) / 2) / np.sqrt(own.sum())
    half = max(float(-special.stdtrit(k - 1, (1 - level) / 2)) * error, float(alike))
    low, middle, high = np.tanh([mean - half, mean, mean + half])
    return float(middle), float(low), float(high)
