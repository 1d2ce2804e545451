"""Signed square root of the edges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.transforms.contract import Transform


@dataclass(kw_only=True, eq=False)
class SignedRoot(Transform):
    """sign(r) sqrt(|r|) for every edge."""

    summary: ClassVar[str] = "Signed square root of each Pearson correlation."

    @property
    def label(self) -> str:
        """``signedroot``."""
        return "signedroot"

    def apply(self, recording: FloatArray) -> FloatArray:
        """FC (P, P) to its signed root (P, P)."""
        return np.sign(recording) * np.sqrt(np.abs(recording))
