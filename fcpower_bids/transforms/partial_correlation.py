"""Partial correlation: the correlation of two parcels given all the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.transforms.contract import Transform
from fcpower_bids.transforms.precision import shrunk_covariance, shrunk_precision


def partial_of_precision(precision: FloatArray) -> FloatArray:
    """Turn a precision (P, P) into partial correlations (P, P)."""
    scale = 1 / np.sqrt(np.diag(precision))
    partial = -precision * np.outer(scale, scale)
    np.fill_diagonal(partial, 1.0)
    return np.asarray(partial)


@dataclass(kw_only=True, eq=False)
class PartialCorrelation(Transform):
    """-p_ij / sqrt(p_ii p_jj) of the inverse P of the Ledoit-Wolf shrunk covariance (the paper, Appendix E)."""

    needs: ClassVar[Literal["connectivity", "series"]] = "series"
    statistic: ClassVar[str] = "partialcorrelation"
    title: ClassVar[str] = "Partial correlation"
    summary: ClassVar[str] = (
        "Partial correlation from the inverse of the Ledoit-Wolf shrunk covariance of the z-scored series."
    )

    @property
    def label(self) -> str:
        """``partialcorrelation``."""
        return "partialcorrelation"

    @property
    def entities(self) -> tuple[tuple[str, str], ...]:
        """Only ``stat-partialcorrelation``: it is another statistic, not a version of Pearson FC."""
        return (("stat", self.statistic),)

    def apply(self, recording: FloatArray) -> FloatArray:
        """Series (T, P) to partial correlations (P, P) with a diagonal of 1."""
        return partial_of_precision(shrunk_precision(recording))

    def describe(self, recording: FloatArray) -> dict[str, Any]:
        """The shrinkage that the series asked for."""
        return {"Estimator": "Ledoit-Wolf", "ShrinkageIntensity": shrunk_covariance(recording)[1]}
