"""The paper's equations as functions of arrays: float64 in, float64 out.

Inverses of a large cohort that exceed the memory lie in scratch files; no file of a dataset is read or written.
"""

from __future__ import annotations

ALPHA_STAR = 0.35
"""The exponent alpha* of FC^alpha (Section 3.3)."""
