"""Analyses of the spectrum: what flattening does, and what else could."""
