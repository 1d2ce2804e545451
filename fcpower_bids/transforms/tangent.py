"""Tangent space: the matrix logarithm of FC whitened by a reference of the group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome.connectivity import ParcelError, covered_parcels
from fcpower_bids.core.connectome.means import MEANS, TOLERANCE, whiten, whitening
from fcpower_bids.core.connectome.spd import full_rank, matrix_log
from fcpower_bids.transforms.contract import FullRankTransform


@dataclass(kw_only=True, eq=False)
class Tangent(FullRankTransform):
    """log(R^(-1/2) FC R^(-1/2)) with the reference R of the recordings it was fitted to (Varoquaux et al. 2010).

    A parcel that one of those recordings does not cover is left out for all. `reference_` (C, C): R of the covered
    parcels, after `fit`. `covered_` (P,): parcels that every fitted recording covers, after `fit`.
    """

    stateless: ClassVar[bool] = False
    summary: ClassVar[str] = "Tangent space: the matrix logarithm of Pearson FC after whitening by a mean of the group."
    reference: str = "harmonic"
    tolerance: float = TOLERANCE

    def __post_init__(self) -> None:
        if self.reference not in MEANS:
            raise ValueError(f"There is no tangent reference '{self.reference}'. Choose from: {', '.join(MEANS)}.")

    @property
    def label(self) -> str:
        """``tangentharmonic`` for the harmonic reference."""
        return f"tangent{self.reference}"

    def fit(self, X: Sequence[ArrayLike], y: object = None) -> Tangent:
        """Compute the reference of n recordings, each (P, P)."""
        if not len(X):
            raise ValueError("There is no recording to fit the tangent reference to.")
        if len({np.shape(recording) for recording in X}) > 1:
            raise ValueError("The recordings of a group must have the same parcels.")
        self.covered_ = np.all([covered_parcels(recording) for recording in X], axis=0)
        regular = [full_rank(self._block(recording), self.eigenvalue_floor, self.shrink_to_identity) for recording in X]
        exact = {"tolerance": self.tolerance} if self.reference == "riemannian" else {}
        self.reference_ = MEANS[self.reference](regular, **exact)
        self._whitener = whitening(self.reference_)[0]
        return self

    def select(self, recording: ArrayLike) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Return the parcels of the reference, which the recording must cover."""
        if not hasattr(self, "reference_"):
            raise ValueError("The tangent space needs a reference: call fit with the recordings of the group first.")
        missing = self.covered_ & ~covered_parcels(recording)
        if missing.any():
            raise ParcelError("A parcel of the tangent reference is not covered here", np.flatnonzero(missing))
        return self._block(recording), self.covered_

    def apply(self, recording: FloatArray) -> FloatArray:
        """FC (C, C) to its tangent vector at the reference, as a matrix (C, C)."""
        return matrix_log(whiten(full_rank(recording, self.eigenvalue_floor, self.shrink_to_identity), self._whitener))

    def describe(self, recording: FloatArray) -> dict[str, Any]:
        """The reference, with the rank of FC and the way it was made full."""
        return {**super().describe(recording), "TangentReference": self.reference}

    def _block(self, recording: ArrayLike) -> FloatArray:
        recording = np.asarray(recording)
        return recording if self.covered_.all() else recording[np.ix_(self.covered_, self.covered_)]
