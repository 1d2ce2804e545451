"""Contract of transforms of connectomes, and the transforms of one connectome by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

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

Function = Callable[..., Any]
"""Of the covered parcels of a recording, (P, P) or (T, P), and the parameters by name."""


@dataclass(frozen=True)
class Transform:
    """A map from the connectome or the series of a recording to a symmetric matrix of the same parcels.

    Parcels without data never reach `function` and `facts`, and are NaN in the result.
    """

    name: str
    title: str  # on the pages, with facts in braces
    summary: str  # one sentence for ``--help`` and for the methods text
    function: Function
    facts: Function = lambda recording: {}  # what the sidecar says of one recording
    parameters: Mapping[str, Any] = field(default_factory=dict)
    # whether a recording is handed over as its FC (P, P) or as its series (T, P)
    needs: Literal["connectivity", "series"] = "connectivity"
    diagonal: bool = False  # whether the diagonal of the result holds what its edges do not: features include it
    statistic: str = "pearsoncorrelation"  # value of the BIDS entity ``stat``

    @property
    def label(self) -> str:
        """The transform and its main parameter in letters and digits, as BIDS entities need it: ``power0p35``."""
        alpha = self.parameters.get("alpha")
        exponent = "" if alpha is None else np.format_float_positional(alpha, trim="-").replace(".", "p")
        return self.name.replace("_", "") + exponent

    @property
    def entities(self) -> tuple[tuple[str, str], ...]:
        """The BIDS entities that distinguish its output from others of the recording."""
        desc = () if self.label == self.statistic else (("desc", self.label),)  # another statistic is no version of FC
        return (("stat", self.statistic), *desc)

    def select(self, recording: ArrayLike) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Return the part of a recording whose parcels are covered, and which they are: shape (P,)."""
        recording = np.asarray(recording)
        if self.needs == "series":
            covered = covered_series(recording)
            return recording[:, covered], covered
        covered = covered_parcels(recording)
        return recording if covered.all() else recording[np.ix_(covered, covered)], covered

    def transform(self, recording: ArrayLike) -> FloatArray:
        """Transform a recording, (P, P) or (T, P) as `needs` says: (P, P). Raises ValueError.

        Uncovered parcels are NaN; a `ParcelError` names those that the transform cannot take.
        """
        block, covered = self.select(recording)
        with counted_among_all(covered):
            return spread(self.function(block, **self.parameters), covered)

    def metadata(self, recording: ArrayLike) -> dict[str, Any]:
        """Describe for the JSON sidecar what `transform` does to one recording, shape (P, P) or (T, P)."""
        block, covered = self.select(recording)
        with counted_among_all(covered):
            return dict(self.facts(block, **self.parameters))


REMEDY = {"eigenvalue_floor": None, "shrink_to_identity": None}
"""Parameters of a transform that exists for FC of full rank only; that of a short or band-passed scan is refused.

Unless one says how to make it full rank, since that choice alone would decide the result: lift smaller eigenvalues to a
floor, or replace FC by (1 - s) FC + s I with s between 0 and 1.
"""


def describe_rank(fc: FloatArray) -> tuple[dict[str, Any], FloatArray]:
    """Rank of FC (P, P) for a sidecar, and its eigenvalues (P,), descending."""
    eigenvalues, tolerance = eigendecompose(fc)[0], clip_tolerance(fc.dtype)
    return {"Rank": rank(eigenvalues, tolerance), "NumberClipped": n_clipped(eigenvalues, tolerance)}, eigenvalues


def describe_remedy(fc: FloatArray, eigenvalue_floor: float | None, shrink_to_identity: float | None) -> dict[str, Any]:
    """Rank of FC (P, P) and how it was made full, for a sidecar."""
    return describe_rank(fc)[0] | {"EigenvalueFloor": eigenvalue_floor, "ShrinkageIntensity": shrink_to_identity}


def power(fc: FloatArray, alpha: float) -> FloatArray:
    """FC^alpha = V diag(lambda^alpha) V' (the paper, Equation 1). Raises ValueError.

    Eigenvalues that are zero to rounding, or negative, get weight 0 and are counted; no other recording takes part.
    """
    if not 0 < alpha < np.inf:
        raise ValueError(f"The exponent alpha must be positive, and it is {alpha}. See log_euclidean for alpha 0.")
    return spectral_power(fc, alpha)


def _describe_power(fc: FloatArray, alpha: float) -> dict[str, Any]:
    facts, eigenvalues = describe_rank(fc)
    more = {"ClipTolerance": clip_tolerance(fc.dtype), "SmallestEigenvalue": float(eigenvalues[-1])}
    return {"Alpha": float(alpha)} | facts | more


def cholesky(
    fc: FloatArray, eigenvalue_floor: float | None, shrink_to_identity: float | None, logarithm: bool = False
) -> FloatArray:
    """The factor L of FC = L L', mirrored: L + L' - diag(L), or with the logarithm of its diagonal (Lin 2019)."""
    regular = full_rank(fc, eigenvalue_floor, shrink_to_identity)
    from scipy import linalg  # a dry run has no need of it

    factor = linalg.cholesky(regular, lower=True, check_finite=False)
    mirrored = factor + np.tril(factor, -1).T
    if logarithm:
        np.fill_diagonal(mirrored, np.log(np.diag(mirrored)))
    return mirrored


def _degree(fc: FloatArray) -> FloatArray:
    """A_ij / sqrt(d_i d_j) with A = FC without its diagonal and d_i = sum_j |A_ij|.

    The symmetric normalisation of graph signal processing; the paper screens "degree normalisation" without a formula,
    and the absolute value, which keeps the degrees of correlations positive, is our choice.
    """
    edges = np.array(fc, dtype=np.float64)
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


def _describe_shrinkage(series: FloatArray) -> dict[str, Any]:
    return {"Estimator": "Ledoit-Wolf", "ShrinkageIntensity": shrunk_covariance(series)[1]}


def _partial_correlation(series: FloatArray) -> FloatArray:
    """-p_ij / sqrt(p_ii p_jj) of the inverse P of the Ledoit-Wolf shrunk covariance (the paper, Appendix E)."""
    precision = inverse(shrunk_covariance(series)[0])
    scale = 1 / np.sqrt(np.diag(precision))
    partial = -precision * np.outer(scale, scale)
    np.fill_diagonal(partial, 1.0)
    return np.asarray(partial)


SHRUNK = "the inverse of the Ledoit-Wolf shrunk covariance of the z-scored series."
OWN = "each recording's own Pearson FC"
STATELESS = (
    Transform(
        name="power",
        title="FC^{Alpha:g}",
        summary=f"FC^alpha: the eigenvalues of {OWN} raised to alpha, its eigenvectors kept.",
        function=power,
        facts=_describe_power,
        parameters={"alpha": ALPHA_STAR},
    ),
    Transform(
        name="fisher_z",
        title="Fisher z of FC",
        summary="Fisher z of each Pearson correlation, z = arctanh(r); the diagonal is set to 0.",
        function=fisher_z,
    ),
    Transform(
        name="log_euclidean",  # (Arsigny et al. 2006): the limit of (FC^alpha - I) / alpha at alpha -> 0
        title="Logarithm of FC",
        summary=f"The matrix logarithm of {OWN} (log-Euclidean map).",
        function=lambda fc, eigenvalue_floor, shrink_to_identity: matrix_log(fc, eigenvalue_floor, shrink_to_identity),
        facts=describe_remedy,
        parameters=REMEDY,
    ),
    Transform(
        name="cholesky",
        title="Cholesky factor of FC",
        summary=f"The Cholesky factor of {OWN}, mirrored to a symmetric matrix.",
        function=cholesky,
        facts=describe_remedy,
        parameters=REMEDY,
        diagonal=True,
    ),
    Transform(
        name="log_cholesky",
        title="Log-Cholesky factor of FC",
        summary=f"The Cholesky factor of {OWN}, its diagonal on a log scale.",
        function=partial(cholesky, logarithm=True),
        facts=describe_remedy,
        parameters=REMEDY,
        diagonal=True,
    ),
    Transform(
        name="degree",
        title="FC over its degrees",
        summary=(
            "Degree normalisation: each Pearson correlation over the root of the product of its parcels' absolute "
            "degrees."
        ),
        function=_degree,
    ),
    Transform(
        name="precision",
        title="Precision",
        summary=f"Precision: {SHRUNK}",
        function=lambda series: inverse(shrunk_covariance(series)[0]),
        facts=_describe_shrinkage,
        needs="series",
        statistic="precision",
    ),
    Transform(
        name="partial_correlation",
        title="Partial correlation",
        summary=f"Partial correlation from {SHRUNK}",
        function=_partial_correlation,
        facts=_describe_shrinkage,
        needs="series",
        statistic="partialcorrelation",
    ),
)
