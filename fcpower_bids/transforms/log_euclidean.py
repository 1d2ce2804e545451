"""The log-Euclidean map: the matrix logarithm of FC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from fcpower_bids.core.connectivity import Array
from fcpower_bids.core.spd import clip_tolerance, eigendecompose, matrix_log, n_clipped, rank
from fcpower_bids.transforms.contract import Transform


@dataclass(kw_only=True, eq=False)
class LogEuclidean(Transform):
    """log FC = V diag(ln lambda) V' (Arsigny et al. 2006): the limit of (FC^alpha - I) / alpha at alpha -> 0.

    A rank-deficient FC (a short or band-passed scan) has no logarithm: it is refused unless one of the parameters says
    how to make it full rank, because that choice alone would then decide the result.

    Parameters
    ----------
    floor : float, optional
        Lift smaller eigenvalues to this value.
    shrinkage : float, optional
        Between 0 and 1: replace FC by (1 - shrinkage) FC + shrinkage I.
    """

    summary: ClassVar[str] = "The matrix logarithm of each recording's own Pearson FC (log-Euclidean map)."
    floor: float | None = None
    shrinkage: float | None = None

    @property
    def label(self) -> str:
        """``logeuclidean``."""
        return "logeuclidean"

    def apply(self, recording: Array) -> Array:
        """FC (P, P) to log FC (P, P)."""
        return matrix_log(recording, self.floor, self.shrinkage)

    def describe(self, recording: Array) -> dict[str, Any]:
        """The rank of FC and how it was made full."""
        eigenvalues, _ = eigendecompose(recording)
        tolerance = clip_tolerance(recording.dtype)
        return {
            "Rank": rank(eigenvalues, tolerance),
            "NumberClipped": n_clipped(eigenvalues, tolerance),
            "EigenvalueFloor": self.floor,
            "ShrinkageIntensity": self.shrinkage,
        }
