"""Analyses of data quality."""
