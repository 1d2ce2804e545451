"""Maps of single edges: Fisher z, and normalisation by the degree of their parcels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome.connectivity import ParcelError, fisher_z
from fcpower_bids.transforms.contract import Transform


@dataclass(kw_only=True, eq=False)
class FisherZ(Transform):
    """z = arctanh(r) for every edge; the diagonal, where z is infinite, is 0.

    Two parcels that correlate perfectly are an error that names them.
    """

    title: ClassVar[str] = "Fisher z of FC"
    called: ClassVar[str] = "fisherz"
    summary: ClassVar[str] = "Fisher z of each Pearson correlation, z = arctanh(r); the diagonal is set to 0."

    def apply(self, recording: FloatArray) -> FloatArray:
        """FC (P, P) to Fisher z (P, P)."""
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

    def apply(self, recording: FloatArray) -> FloatArray:
        """FC (P, P) to normalised edges (P, P) with a diagonal of 0."""
        edges = np.array(recording, dtype=np.float64)
        np.fill_diagonal(edges, 0.0)
        degrees = np.abs(edges).sum(axis=0)
        if not degrees.all():
            raise ParcelError("A parcel correlates with no other, so its degree is zero", np.flatnonzero(degrees == 0))
        scale = 1 / np.sqrt(degrees)
        return edges * np.outer(scale, scale)
