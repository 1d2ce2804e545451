"""The paper's equations as functions of arrays: float64 in, float64 out."""

from __future__ import annotations

ALPHA_STAR = 0.35
"""The exponent alpha* of FC^alpha (Section 3.3)."""
