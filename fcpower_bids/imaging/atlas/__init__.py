"""Parcellations: declared, found, read, merged."""
