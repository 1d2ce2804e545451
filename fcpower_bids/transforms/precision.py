"""The inverse of the shrunk covariance of a recording, and partial correlations from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome.connectivity import standardise
from fcpower_bids.core.connectome.spd import inverse
from fcpower_bids.transforms.contract import Transform


def shrunk_covariance(series: FloatArray) -> tuple[FloatArray, float]:
    """Ledoit-Wolf covariance, shape (P, P), of the z-scored series (T, P), and its shrinkage intensity.

    (1 - s) S + s tr(S)/P I with S = Z' Z / T and s of Ledoit and Wolf (2004): the sum of the squared distances of the
    products z z' of single volumes from S, over T^2, over the squared distance of S from tr(S)/P I. It equals
    scikit-learn's, at half the time: sum_t ||z_t z_t'||^2 = sum_t (z_t' z_t)^2 needs no matrix product.
    """
    standard = standardise(series)
    n_volumes, n_parcels = standard.shape
    covariance = standard.T @ standard / n_volumes
    level, square = np.trace(covariance) / n_parcels, float((covariance**2).sum())
    scatter = float((np.einsum("tp,tp->t", standard, standard) ** 2).sum()) / n_volumes - square
    spread = square - n_parcels * level**2
    intensity = min(scatter / n_volumes / spread, 1.0) if spread > 0 else 0.0
    covariance *= 1 - intensity
    covariance.flat[:: n_parcels + 1] += intensity * level
    return covariance, intensity


def shrunk_precision(series: FloatArray) -> FloatArray:
    """Inverse of `shrunk_covariance`, shape (P, P)."""
    return inverse(shrunk_covariance(series)[0])


@dataclass(kw_only=True, eq=False)
class Precision(Transform):
    """Inverse of the Ledoit-Wolf shrunk covariance of the z-scored series."""

    needs: ClassVar[Literal["connectivity", "series"]] = "series"
    statistic: ClassVar[str] = "precision"
    title: ClassVar[str] = "Precision"
    called: ClassVar[str] = "precision"
    summary: ClassVar[str] = "Precision: the inverse of the Ledoit-Wolf shrunk covariance of the z-scored series."

    def apply(self, recording: FloatArray) -> FloatArray:
        """Series (T, P) to precision (P, P)."""
        return shrunk_precision(recording)

    def describe(self, recording: FloatArray) -> dict[str, Any]:
        """The shrinkage that the series asked for."""
        return {"Estimator": "Ledoit-Wolf", "ShrinkageIntensity": shrunk_covariance(recording)[1]}


def partial_of_precision(precision: FloatArray) -> FloatArray:
    """Turn a precision (P, P) into partial correlations (P, P)."""
    scale = 1 / np.sqrt(np.diag(precision))
    partial = -precision * np.outer(scale, scale)
    np.fill_diagonal(partial, 1.0)
    return np.asarray(partial)


@dataclass(kw_only=True, eq=False)
class PartialCorrelation(Precision):
    """-p_ij / sqrt(p_ii p_jj) of the inverse P of the Ledoit-Wolf shrunk covariance (the paper, Appendix E)."""

    statistic: ClassVar[str] = "partialcorrelation"
    title: ClassVar[str] = "Partial correlation"
    called: ClassVar[str] = "partialcorrelation"
    summary: ClassVar[str] = (
        "Partial correlation from the inverse of the Ledoit-Wolf shrunk covariance of the z-scored series."
    )

    def apply(self, recording: FloatArray) -> FloatArray:
        """Series (T, P) to partial correlations (P, P) with a diagonal of 1."""
        return partial_of_precision(shrunk_precision(recording))
