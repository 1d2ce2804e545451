"""How many independent volumes each correlation rests on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from scipy import fft

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.transforms.contract import Transform


@dataclass(kw_only=True, eq=False)
class EdgeFreedom(Transform):
    """Effective degrees of freedom of each edge: T over the sum over all lags of the product of two autocorrelations.

    Source: Bayley and Hammersley (1946), Bartlett (1946). The variance of r is about (1 - r^2)^2 over them.
    """

    needs: ClassVar[Literal["connectivity", "series"]] = "series"
    statistic: ClassVar[str] = "freedom"
    title: ClassVar[str] = "Degrees of freedom of edges"
    called: ClassVar[str] = "freedom"
    summary: ClassVar[str] = (
        "Effective degrees of freedom of each correlation from the autocorrelations of its two series (Bayley and "
        "Hammersley), lags tapered to zero at twice the root of the volumes."
    )

    def apply(self, recording: FloatArray) -> FloatArray:
        """Series (T, P) to degrees of freedom (P, P), the diagonal that of a parcel with its like."""
        volumes = len(recording)
        centred = recording - recording.mean(axis=0)
        power = np.abs(fft.rfft(centred, fft.next_fast_len(2 * volumes), axis=0)) ** 2
        lags = np.arange(min(volumes, round(2 * np.sqrt(volumes))))
        correlation = fft.irfft(power, fft.next_fast_len(2 * volumes), axis=0)[lags]
        correlation = correlation / correlation[0]
        taper = 1 + np.cos(np.pi * lags / len(lags))  # Tukey's, twice: a lag stands for its negative too
        taper[0] = 1.0
        tapered = correlation * np.sqrt(taper)[:, None]
        return np.asarray(volumes / (tapered.T @ tapered))

    def describe(self, recording: FloatArray) -> dict[str, Any]:
        """How the variance of an edge follows."""
        return {"VarianceOfEdges": "(1 - r^2)^2 / value; of Fisher z 1 / (value - 3)"}
