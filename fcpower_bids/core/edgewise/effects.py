"""Size of the effect behind a t, with its interval: partial correlation, and Cohen's d of two classes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import special, stats

from fcpower_bids.core.arrays import FloatArray

LEVEL = 0.95


def partial_correlation(t: ArrayLike, df: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Partial correlation of edge and target given the covariates, with its 95 % interval by Fisher's z.

    Parameters
    ----------
    t : array_like, shape (E,)
    df : int
        Residual degrees of freedom of the model.

    Returns
    -------
    r, low, high : ndarray, shape (E,)
        The limits are NaN with fewer than two degrees of freedom.
    """
    values = np.asarray(t, dtype=np.float64)
    r = values / np.sqrt(values**2 + df)
    if df < 2:
        return r, np.full(r.shape, np.nan), np.full(r.shape, np.nan)
    z, half = np.arctanh(np.clip(r, -1 + 1e-15, 1 - 1e-15)), stats.norm.ppf((1 + LEVEL) / 2) / np.sqrt(df - 1)
    return r, np.tanh(z - half), np.tanh(z + half)


def cohens_d(t: ArrayLike, df: int, length: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Difference of two classes given the covariates, in residual standard deviations, with its exact 95 % interval.

    Parameters
    ----------
    t : array_like, shape (E,)
    df : int
        Residual degrees of freedom of the model.
    length : float
        `EdgeModel.length` of the class as 0 and 1; sqrt(n0 n1 / n) without covariates.

    Returns
    -------
    d, low, high : ndarray, shape (E,)

    Notes
    -----
    t has a noncentral t distribution with noncentrality d * length (Hedges and Olkin 1985); the limits are the two d
    under which it is at its 97.5 and 2.5 per cent points.
    """
    values = np.asarray(t, dtype=np.float64)
    low, high = (special.nctdtrinc(df, (1 + sign * LEVEL) / 2, values) / length for sign in (1, -1))
    return values / length, low, high
