"""Maps of full-rank connectomes: matrix logarithm, off-log and log-scaled geometries, Cholesky factors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import linalg

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome.spd import full_rank, matrix_log
from fcpower_bids.errors import Unfit
from fcpower_bids.transforms.contract import FullRankTransform


@dataclass(kw_only=True, eq=False)
class LogEuclidean(FullRankTransform):
    """log FC = V diag(ln lambda) V' (Arsigny et al. 2006): the limit of (FC^alpha - I) / alpha at alpha -> 0."""

    title: ClassVar[str] = "Logarithm of FC"
    called: ClassVar[str] = "logeuclidean"
    summary: ClassVar[str] = "The matrix logarithm of each recording's own Pearson FC (log-Euclidean map)."

    def apply(self, recording: FloatArray) -> FloatArray:
        """FC (P, P) to log FC (P, P)."""
        return matrix_log(recording, self.eigenvalue_floor, self.shrink_to_identity)


STEPS, NEAR = 100, 1e-12
"""Most Newton steps of the scaling, and the deviation of a row sum from 1 at which it is done."""


@dataclass(kw_only=True, eq=False)
class OffLog(LogEuclidean):
    """Off(log FC): the logarithm without its diagonal (Archakov and Hansen 2021, Thanwerdas 2024).

    The map is one-to-one between correlation matrices and symmetric matrices with a zero diagonal, so the distance
    between these is a metric of correlation matrices. Its edges are those of `LogEuclidean`: on correlation matrices
    the diagonal of the logarithm says nothing that its edges do not.
    """

    title: ClassVar[str] = "Off-log of FC"
    called: ClassVar[str] = "offlog"
    summary: ClassVar[str] = (
        "The matrix logarithm of each recording's own Pearson FC without its diagonal (off-log metric)."
    )

    def apply(self, recording: FloatArray) -> FloatArray:
        """FC (P, P) to its off-log (P, P)."""
        logarithm = super().apply(recording)
        np.fill_diagonal(logarithm, 0.0)
        return logarithm


@dataclass(kw_only=True, eq=False)
class LogScaled(FullRankTransform):
    """log(D FC D) with the positive diagonal D that makes every row of D FC D sum to 1 (Thanwerdas 2024).

    The image is the symmetric matrices whose rows sum to 0. Unlike the off-log map it turns the correlation matrix of
    the inverse into the negative.
    """

    title: ClassVar[str] = "Log-scaled FC"
    called: ClassVar[str] = "logscaled"
    summary: ClassVar[str] = (
        "The matrix logarithm of each recording's own Pearson FC, scaled to unit row sums (log-scaled metric)."
    )

    def apply(self, recording: FloatArray) -> FloatArray:
        """FC (P, P) to its log-scaled map (P, P)."""
        matrix = full_rank(recording, self.eigenvalue_floor, self.shrink_to_identity)
        scaling = unit_row_sums(matrix)
        return matrix_log(matrix * np.outer(scaling, scaling))


def unit_row_sums(matrix: FloatArray) -> FloatArray:
    """Positive d, shape (P,), for which diag(d) M diag(d) has unit row sums.

    It is the minimum of the strictly convex d'Md / 2 - sum(log d), found by Newton's method. Shapes and units: matrix
    (P, P). Raises Unfit.
    """
    scaling = 1 / np.sqrt(np.diag(matrix))
    for _ in range(STEPS):
        gradient = matrix @ scaling - 1 / scaling
        if np.abs(scaling * gradient).max() <= NEAR:
            return scaling
        step = linalg.solve(matrix + np.diag(scaling**-2.0), -gradient, assume_a="pos")
        # A damped step of a self-concordant function keeps d positive and always descends.
        decrement = float(np.sqrt(max(-gradient @ step, 0.0)))
        scaling = scaling + step / (1 + decrement if decrement > 0.25 else 1)
    raise Unfit(
        "FC could not be scaled to unit row sums: it is too near to singular. Give --shrink-to-identity or "
        "--eigenvalue-floor."
    )


@dataclass(kw_only=True, eq=False)
class Cholesky(FullRankTransform):
    """The triangular factor L of FC = L L', mirrored: L + L' - diag(L). It depends on the order of the parcels."""

    equivariant: ClassVar[bool] = False
    diagonal: ClassVar[bool] = True
    title: ClassVar[str] = "Cholesky factor of FC"
    called: ClassVar[str] = "cholesky"
    summary: ClassVar[str] = "The Cholesky factor of each recording's own Pearson FC, mirrored to a symmetric matrix."

    def apply(self, recording: FloatArray) -> FloatArray:
        """FC (P, P) to its mirrored factor (P, P)."""
        regular = full_rank(recording, self.eigenvalue_floor, self.shrink_to_identity)
        factor = linalg.cholesky(regular, lower=True, check_finite=False)
        return factor + np.tril(factor, -1).T


@dataclass(kw_only=True, eq=False)
class LogCholesky(Cholesky):
    """The Cholesky factor with the logarithm of its diagonal (Lin 2019): its edges are those of `Cholesky`."""

    title: ClassVar[str] = "Log-Cholesky factor of FC"
    called: ClassVar[str] = "logcholesky"
    summary: ClassVar[str] = "The Cholesky factor of each recording's own Pearson FC, its diagonal on a log scale."

    def apply(self, recording: FloatArray) -> FloatArray:
        """FC (P, P) to its mirrored factor (P, P) with a logarithmic diagonal."""
        mirrored = super().apply(recording)
        np.fill_diagonal(mirrored, np.log(np.diag(mirrored)))
        return mirrored
