"""Contract of transforms of connectomes, and the transforms of one connectome by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome import (
    ParcelError,
    clip_tolerance,
    counted_among_all,
    covered_parcels,
    covered_series,
    eigendecompose,
    fisher_z,
    full_rank,
    inverse,
    matrix_log,
    n_clipped,
    rank,
    spectral_power,
    spread,
    standardise,
)

Self = TypeVar("Self", bound="Transform")


@dataclass(kw_only=True, eq=False)
class Transform:
    """A map from the connectome or the series of a recording to a symmetric matrix of the same parcels.

    A subclass is a dataclass whose fields are its parameters; it gives the class attributes below, `_apply`, `label`
    where a parameter belongs to it, and where it has something to say `_describe`. Parcels without data never reach
    `_apply` and are NaN in the result.
    """

    # one of "connectivity", "series": whether a recording is handed over as its FC (P, P) or as its series (T, P)
    needs: ClassVar[Literal["connectivity", "series"]] = "connectivity"
    # true where nothing is estimated from other recordings, so that `transform` works without `fit`. The others are
    # refused at the participant level.
    stateless: ClassVar[bool] = True
    # whether the diagonal of the result holds information that its edges do not, so features should include it
    diagonal: ClassVar[bool] = False
    summary: ClassVar[str]  # one sentence for ``--help`` and for the methods text
    called: ClassVar[str] = ""  # `label` of a transform that has no main parameter
    title: ClassVar[str] = ""  # name on the pages, with facts of `_describe` in braces; the label where it is empty
    statistic: ClassVar[str] = "pearsoncorrelation"  # value of the BIDS entity ``stat``

    @property
    def label(self) -> str:
        """The transform and its main parameter in letters and digits, as BIDS entities need it."""
        if not self.called:
            raise TypeError(f"{type(self).__name__} has no label.")
        return self.called

    @property
    def entities(self) -> tuple[tuple[str, str], ...]:
        """The BIDS entities that distinguish its output from others of the recording."""
        desc = () if self.label == self.statistic else (("desc", self.label),)  # another statistic is no version of FC
        return (("stat", self.statistic), *desc)

    def _apply(self, recording: FloatArray) -> FloatArray:
        """Transform one recording of which every parcel is covered: (P, P) or (T, P) to (P, P)."""
        raise TypeError(f"{type(self).__name__} cannot be applied.")

    def _describe(self, recording: FloatArray) -> dict[str, Any]:
        """Describe what was done to one recording of which every parcel is covered."""
        return {}

    def select(self, recording: ArrayLike) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Return the part of a recording whose parcels are covered, and which they are: shape (P,)."""
        recording = np.asarray(recording)
        if self.needs == "series":
            covered = covered_series(recording)
            return recording[:, covered], covered
        covered = covered_parcels(recording)
        return recording if covered.all() else recording[np.ix_(covered, covered)], covered

    def fit(self: Self, X: Sequence[ArrayLike]) -> Self:
        """Estimate what is shared by the recordings; nothing for a stateless transform."""
        return self

    def transform(self, X: Sequence[ArrayLike]) -> FloatArray:
        """Transform recordings, (P, P) or (T, P) as `needs` says, each on its own: (n, P, P). Raises ValueError.

        Uncovered parcels are NaN; a `ParcelError` names those that the transform cannot take.
        """
        if not len(X):
            raise ValueError("There is no recording to transform.")
        transformed = []
        for recording in X:
            block, covered = self.select(recording)
            with counted_among_all(covered):
                transformed.append(spread(self._apply(block), covered))
        return np.stack(transformed)

    def fit_transform(self, X: Sequence[ArrayLike]) -> FloatArray:
        """Fit to the recordings and transform them."""
        return self.fit(X).transform(X)

    def metadata(self, recording: ArrayLike) -> dict[str, Any]:
        """Describe for the JSON sidecar what `transform` does to one recording, shape (P, P) or (T, P)."""
        block, covered = self.select(recording)
        with counted_among_all(covered):
            return self._describe(block)


def describe_rank(fc: FloatArray) -> tuple[dict[str, Any], FloatArray]:
    """Rank of FC (P, P) for a sidecar, and its eigenvalues (P,), descending."""
    eigenvalues, tolerance = eigendecompose(fc)[0], clip_tolerance(fc.dtype)
    return {"Rank": rank(eigenvalues, tolerance), "NumberClipped": n_clipped(eigenvalues, tolerance)}, eigenvalues


@dataclass(kw_only=True, eq=False)
class FullRankTransform(Transform):
    """A transform that exists for FC of full rank only; that of a short or band-passed scan is rank-deficient.

    It is refused unless one of the parameters says how to make it full rank, because that choice alone would then
    decide the result: lift smaller eigenvalues to a floor, or replace FC by (1 - s) FC + s I with s between 0 and 1.
    """

    eigenvalue_floor: float | None = None
    shrink_to_identity: float | None = None

    def _describe(self, recording: FloatArray) -> dict[str, Any]:
        choices = {"EigenvalueFloor": self.eigenvalue_floor, "ShrinkageIntensity": self.shrink_to_identity}
        return describe_rank(recording)[0] | choices


@dataclass(kw_only=True, eq=False)
class FittedTransform(Transform):
    """A transform that is fitted to recordings of the same parcels; one that any of them lacks is left out for all.

    `covered_` (P,): parcels that every fitted recording covers, after `fit`.
    """

    stateless: ClassVar[bool] = False
    fits: ClassVar[str]  # what is fitted, in words

    def _cover(self, X: Sequence[ArrayLike]) -> None:
        """Find the parcels that all cover. Raises ValueError."""
        if not len(X):
            raise ValueError(f"There is no recording to fit {self.fits} to.")
        if len({np.shape(recording) for recording in X}) > 1:
            raise ValueError("The recordings of a group must have the same parcels.")
        self.covered_ = np.all([covered_parcels(recording) for recording in X], axis=0)

    def select(self, recording: ArrayLike) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Return the parcels that were fitted, which the recording must cover."""
        if not hasattr(self, "covered_"):
            raise ValueError(f"Call fit with the recordings of the group first: {self.fits} is not there.")
        missing = self.covered_ & ~covered_parcels(recording)
        if missing.any():
            raise ParcelError(f"A parcel of {self.fits} is not covered here", np.flatnonzero(missing))
        return self._block(recording), self.covered_

    def _block(self, recording: ArrayLike) -> FloatArray:
        recording = np.asarray(recording)
        return recording if self.covered_.all() else recording[np.ix_(self.covered_, self.covered_)]


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
