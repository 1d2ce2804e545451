"""Effects of a target on edges with their intervals, and t brought to common degrees of freedom."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from fcpower_bids.core.arrays import FloatArray

LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class Statistic:
    """The t of every edge, all arrays of shape (E,)."""

    t: FloatArray  # welch's, or Student's with one variance group; NaN for an edge that does not vary
    df: FloatArray  # its degrees of freedom, by Satterthwaite
    spread: FloatArray  # its standard error over the one that equal variances would give


def partial_correlation(found: Statistic, df: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Partial correlation of edge and target given the covariates, with its 95 % interval by Fisher's z.

    Returns r (E,), low (E,), high (E,).
    """
    t = found.t * found.spread
    r = t / np.sqrt(t**2 + df)
    z, wide = np.arctanh(np.clip(r, -1 + 1e-15, 1 - 1e-15)), special.stdtrit(found.df, (1 + LEVEL) / 2)
    wide *= found.spread / special.stdtrit(df, (1 + LEVEL) / 2)
    half = wide * stats.norm.ppf((1 + LEVEL) / 2) / np.sqrt(df - 1) if df > 1 else np.nan * wide
    return r, np.tanh(z - half), np.tanh(z + half)


def cohens_d(found: Statistic, length: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Difference of two classes given the covariates, in residual standard deviations, with its 95 % interval.

    Returns d (E,), low (E,), high (E,). t has a noncentral t distribution (Hedges and Olkin 1985); the limits are the
    two effects under which it is at its 97.5 and 2.5 per cent points.
    """
    per_t = found.spread / length
    low, high = (special.nctdtrinc(found.df, (1 + sign * LEVEL) / 2, found.t) * per_t for sign in (1, -1))
    return found.t * per_t, low, high


def comparable_t(t: FloatArray, df: FloatArray, common: int) -> FloatArray:
    """Bring t to common degrees of freedom: the t that is as far in the tail there.

    Source: the normal equivalent of Wallace 1959 (doi:10.1214/aoms/1177706093), which is inverted in closed form.

    Shapes and units: t and df alike; returns the same shape.
    """
    ratio = (8 * df + 1) / (8 * df + 3)
    ratio *= ratio
    ratio *= df * ((8 * common + 3) / (8 * common + 1)) ** 2 / common
    size = t * t
    size /= df
    np.log1p(size, out=size)
    size *= ratio
    np.expm1(size, out=size)
    size *= common
    np.sqrt(size, out=size)
    return np.asarray(np.copysign(size, t, out=size))
