"""The numbers that the paper selects."""

ALPHA_STAR = 0.35
"""The exponent alpha* of FC^alpha (Section 3.3)."""
