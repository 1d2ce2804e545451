"""Regressions beside kernel ridge: what the nested cross-validation is given in its place."""
