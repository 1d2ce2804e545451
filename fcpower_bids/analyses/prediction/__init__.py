"""Analyses that predict phenotypes."""
