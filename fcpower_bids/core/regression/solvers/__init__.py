"""Regressions that take the place of kernel ridge in the nested cross-validation."""
