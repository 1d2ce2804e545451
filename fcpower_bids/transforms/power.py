"""FC^alpha: every eigenvalue of the recording's own FC raised to alpha."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome.spd import eigendecompose, spectral_power
from fcpower_bids.core.connectome.spectrum import clip_tolerance, n_clipped, rank
from fcpower_bids.transforms.contract import Transform


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

    def apply(self, recording: FloatArray) -> FloatArray:
        """FC (P, P) to FC^alpha (P, P)."""
        return spectral_power(recording, self.alpha)

    def describe(self, recording: FloatArray) -> dict[str, Any]:
        """The exponent, and how many eigenvalues of FC it left out."""
        eigenvalues, _ = eigendecompose(recording)
        tolerance = clip_tolerance(recording.dtype)
        return {
            "Alpha": float(self.alpha),
            "Rank": rank(eigenvalues, tolerance),
            "NumberClipped": n_clipped(eigenvalues, tolerance),
            "ClipTolerance": tolerance,
            "SmallestEigenvalue": float(eigenvalues[-1]),
        }
