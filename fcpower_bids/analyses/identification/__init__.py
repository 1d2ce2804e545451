"""Analyses that identify people across sessions."""
