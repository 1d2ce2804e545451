"""Maps of full-rank connectomes: matrix logarithm, Cholesky factors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import linalg

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome.spd import full_rank, matrix_log
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
