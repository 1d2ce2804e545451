"""Transforms of one connectome by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome.connectivity import ParcelError, fisher_z, standardise
from fcpower_bids.core.connectome.spd import full_rank, inverse, matrix_log, spectral_power
from fcpower_bids.core.connectome.spectrum import clip_tolerance
from fcpower_bids.transforms.contract import FullRankTransform, Transform, describe_rank


@dataclass(kw_only=True, eq=False)
class Power(Transform):
    """FC^alpha = V diag(lambda^alpha) V' (the paper, Equation 1).

    Eigenvalues that are zero to rounding, or negative, get weight 0 and are counted; no other recording takes part.
    Raises ValueError.
    """

    title: ClassVar[str] = "FC^{Alpha:g}"
    summary: ClassVar[str] = (
        "FC^alpha: the eigenvalues of each recording's own Pearson FC raised to alpha, its eigenvectors kept."
    )
    alpha: float = ALPHA_STAR

    def __post_init__(self) -> None:
        if not 0 < self.alpha < np.inf:
            raise ValueError(
                f"The exponent alpha must be positive, and it is {self.alpha}. See log_euclidean for alpha 0."
            )

    @property
    def label(self) -> str:
        """``power0p35`` for alpha = 0.35."""
        return "power" + np.format_float_positional(self.alpha, trim="-").replace(".", "p")

    def _apply(self, recording: FloatArray) -> FloatArray:
        return spectral_power(recording, self.alpha)

    def _describe(self, recording: FloatArray) -> dict[str, Any]:
        facts, eigenvalues = describe_rank(recording)
        more = {"ClipTolerance": clip_tolerance(recording.dtype), "SmallestEigenvalue": float(eigenvalues[-1])}
        return {"Alpha": float(self.alpha)} | facts | more


@dataclass(kw_only=True, eq=False)
class LogEuclidean(FullRankTransform):
    """log FC = V diag(ln lambda) V' (Arsigny et al. 2006): the limit of (FC^alpha - I) / alpha at alpha -> 0."""

    title: ClassVar[str] = "Logarithm of FC"
    called: ClassVar[str] = "logeuclidean"
    summary: ClassVar[str] = "The matrix logarithm of each recording's own Pearson FC (log-Euclidean map)."

    def _apply(self, recording: FloatArray) -> FloatArray:
        return matrix_log(recording, self.eigenvalue_floor, self.shrink_to_identity)


@dataclass(kw_only=True, eq=False)
class Cholesky(FullRankTransform):
    """The triangular factor L of FC = L L', mirrored: L + L' - diag(L). It depends on the order of the parcels."""

    diagonal: ClassVar[bool] = True
    title: ClassVar[str] = "Cholesky factor of FC"
    called: ClassVar[str] = "cholesky"
    summary: ClassVar[str] = "The Cholesky factor of each recording's own Pearson FC, mirrored to a symmetric matrix."

    def _apply(self, recording: FloatArray) -> FloatArray:
        regular = full_rank(recording, self.eigenvalue_floor, self.shrink_to_identity)
        from scipy import linalg  # a dry run has no need of it

        factor = linalg.cholesky(regular, lower=True, check_finite=False)
        return factor + np.tril(factor, -1).T


@dataclass(kw_only=True, eq=False)
class LogCholesky(Cholesky):
    """The Cholesky factor with the logarithm of its diagonal (Lin 2019): its edges are those of `Cholesky`."""

    title: ClassVar[str] = "Log-Cholesky factor of FC"
    called: ClassVar[str] = "logcholesky"
    summary: ClassVar[str] = "The Cholesky factor of each recording's own Pearson FC, its diagonal on a log scale."

    def _apply(self, recording: FloatArray) -> FloatArray:
        mirrored = super()._apply(recording)
        np.fill_diagonal(mirrored, np.log(np.diag(mirrored)))
        return mirrored


@dataclass(kw_only=True, eq=False)
class FisherZ(Transform):
    """z = arctanh(r) for every edge; the diagonal, where z is infinite, is 0.

    Two parcels that correlate perfectly are an error that names them.
    """

    title: ClassVar[str] = "Fisher z of FC"
    called: ClassVar[str] = "fisherz"
    summary: ClassVar[str] = "Fisher z of each Pearson correlation, z = arctanh(r); the diagonal is set to 0."

    def _apply(self, recording: FloatArray) -> FloatArray:
        return fisher_z(recording)


@dataclass(kw_only=True, eq=False)
class Degree(Transform):
    """A_ij / sqrt(d_i d_j) with A = FC without its diagonal and d_i = sum_j |A_ij|.

    The symmetric normalisation of graph signal processing; the paper screens "degree normalisation" without a formula,
    and the absolute value, which keeps the degrees of correlations positive, is our choice.
    """

    title: ClassVar[str] = "FC over its degrees"
    called: ClassVar[str] = "degree"
    summary: ClassVar[str] = (
        "Degree normalisation: each Pearson correlation over the root of the product of its parcels' absolute degrees."
    )

    def _apply(self, recording: FloatArray) -> FloatArray:
        edges = np.array(recording, dtype=np.float64)
        np.fill_diagonal(edges, 0.0)
        degrees = np.abs(edges).sum(axis=0)
        if not degrees.all():
            raise ParcelError("A parcel correlates with no other, so its degree is zero", np.flatnonzero(degrees == 0))
        scale = 1 / np.sqrt(degrees)
        return edges * np.outer(scale, scale)


def shrunk_covariance(series: FloatArray) -> tuple[FloatArray, float]:
    """Ledoit-Wolf (2004) covariance (P, P) of the z-scored series (T, P), and its shrinkage intensity."""
    from sklearn.covariance import ledoit_wolf  # takes a second to load

    covariance, intensity = ledoit_wolf(standardise(series), assume_centered=True)
    return covariance, float(intensity)


@dataclass(kw_only=True, eq=False)
class Precision(Transform):
    """Inverse of the Ledoit-Wolf shrunk covariance of the z-scored series."""

    needs: ClassVar[Literal["connectivity", "series"]] = "series"
    statistic: ClassVar[str] = "precision"
    title: ClassVar[str] = "Precision"
    called: ClassVar[str] = "precision"
    summary: ClassVar[str] = "Precision: the inverse of the Ledoit-Wolf shrunk covariance of the z-scored series."

    def _apply(self, recording: FloatArray) -> FloatArray:
        return inverse(shrunk_covariance(recording)[0])

    def _describe(self, recording: FloatArray) -> dict[str, Any]:
        return {"Estimator": "Ledoit-Wolf", "ShrinkageIntensity": shrunk_covariance(recording)[1]}


@dataclass(kw_only=True, eq=False)
class PartialCorrelation(Precision):
    """-p_ij / sqrt(p_ii p_jj) of the inverse P of the Ledoit-Wolf shrunk covariance (the paper, Appendix E)."""

    statistic: ClassVar[str] = "partialcorrelation"
    title: ClassVar[str] = "Partial correlation"
    called: ClassVar[str] = "partialcorrelation"
    summary: ClassVar[str] = (
        "Partial correlation from the inverse of the Ledoit-Wolf shrunk covariance of the z-scored series."
    )

    def _apply(self, recording: FloatArray) -> FloatArray:
        precision = super()._apply(recording)
        scale = 1 / np.sqrt(np.diag(precision))
        partial = -precision * np.outer(scale, scale)
        np.fill_diagonal(partial, 1.0)
        return np.asarray(partial)
