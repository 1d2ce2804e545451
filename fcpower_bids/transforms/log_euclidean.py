"""The log-Euclidean map: the matrix logarithm of FC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome.spd import matrix_log
from fcpower_bids.transforms.contract import FullRankTransform


@dataclass(kw_only=True, eq=False)
class LogEuclidean(FullRankTransform):
    """log FC = V diag(ln lambda) V' (Arsigny et al. 2006): the limit of (FC^alpha - I) / alpha at alpha -> 0."""

    title: ClassVar[str] = "Logarithm of FC"
    summary: ClassVar[str] = "The matrix logarithm of each recording's own Pearson FC (log-Euclidean map)."

    @property
    def label(self) -> str:
        """``logeuclidean``."""
        return "logeuclidean"

    def apply(self, recording: FloatArray) -> FloatArray:
        """FC (P, P) to log FC (P, P)."""
        return matrix_log(recording, self.eigenvalue_floor, self.shrink_to_identity)
