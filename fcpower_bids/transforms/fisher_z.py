"""Fisher z of the edges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome.connectivity import fisher_z
from fcpower_bids.transforms.contract import Transform


@dataclass(kw_only=True, eq=False)
class FisherZ(Transform):
    """z = arctanh(r) for every edge; the diagonal, where z is infinite, is 0.

    Two parcels that correlate perfectly are an error that names them.
    """

    title: ClassVar[str] = "Fisher z of FC"
    summary: ClassVar[str] = "Fisher z of each Pearson correlation, z = arctanh(r); the diagonal is set to 0."

    @property
    def label(self) -> str:
        """``fisherz``."""
        return "fisherz"

    def apply(self, recording: FloatArray) -> FloatArray:
        """FC (P, P) to Fisher z (P, P)."""
        return fisher_z(recording)
